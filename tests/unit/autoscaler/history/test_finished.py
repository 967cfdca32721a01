"""What the history keeps of a job, from time series as Gazer writes them."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.aimaster.core.records import Scaling
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.autoscaler.history.finished import SETTLE_SECONDS, brought_by, finished_job, windows_of
from deeprec_ext.autoscaler.history.possible import complaint
from deeprec_ext.autoscaler.history.use import Brought
from deeprec_ext.autoscaler.model import synchronous
from deeprec_ext.autoscaler.model.memory_model import PROCESS_BYTES, VARIABLE_BYTES
from deeprec_ext.autoscaler.observe import building
from deeprec_ext.autoscaler.observe.changes import changes_of
from deeprec_ext.autoscaler.observe.observed import Limits, Model, Progress, Size
from deeprec_ext.autoscaler.outcomes.account import Account
from deeprec_ext.autoscaler.outcomes.brought import brought as brought_to_the_summary
from deeprec_ext.gazer.series import Series
from deeprec_ext.gazer.series_lines import Line
from deeprec_ext.history.words import brought as in_words
from deeprec_ext.proto import deeprec_ext_pb2 as pb

BEGIN, EVERY = 1_700_000_000.0, 2.0
NOTHING: frozenset[str] = frozenset()


def line(values: list[float], begin: float = BEGIN, metric: str = "") -> Line:
    times = [begin + EVERY * number for number in range(len(values))]
    return Line("", metric, times, list(values), list(values))


def job(speed: list[float], ps: list[float], trainers: list[float]) -> dict[str, Line]:
    return {"examples_per_second": line(speed), "ps": line(ps), "workers": line(trainers)}


def test_a_job_of_one_size_is_one_window_without_its_start():
    lines = job([1.0] * 5 + [100.0, 110.0, 90.0] * 10, [2.0] * 35, [3.0] * 35)
    (window,) = windows_of(lines, {}, {}, {}, 64.0, NOTHING)
    assert window.size == Size(2, 2)
    assert window.examples_per_second == 100.0
    assert window.examples_per_step == 64.0
    assert window.seconds == 35 * EVERY - SETTLE_SECONDS


def test_each_size_is_a_window_and_what_follows_a_change_is_left_out():
    lines = job([100.0] * 30 + [5.0] * 5 + [150.0] * 25, [1.0] * 30 + [2.0] * 30, [2.0] * 60)
    windows = windows_of(lines, {}, {}, {}, 64.0, NOTHING)
    assert {(window.size, window.examples_per_second) for window in windows} == {
        (Size(1, 1), 100.0),
        (Size(2, 1), 150.0),
    }


def test_a_size_that_comes_back_is_one_window():
    lines = job([100.0] * 20 + [200.0] * 20 + [100.0] * 20, [1.0] * 20 + [2.0] * 20 + [1.0] * 20, [2.0] * 60)
    assert [window.size for window in windows_of(lines, {}, {}, {}, 1.0, NOTHING)] == [Size(1, 1), Size(2, 1)]


def test_cpu_is_that_of_the_processes_alive():
    lines = job([100.0] * 60, [2.0] * 60, [2.0] * 60)
    ps = {"ps-0": {"cpu_cores": line([0.5] * 60)}, "ps-1": {"cpu_cores": line([0.25] * 60)},
          "ps-2": {"cpu_cores": line([9.0] * 3)}}  # fmt: skip
    trainers = {"chief-0": {"cpu_cores": line([1.0] * 60)}, "worker-0": {"cpu_cores": line([2.0] * 60)}}
    (window,) = windows_of(lines, ps, trainers, {}, 1.0, NOTHING)
    assert window.ps_cpu_cores == 0.75
    assert window.trainer_cpu_cores == 1.5


def test_limits_count_where_they_were_requested_and_change_the_size():
    lines = job([100.0] * 30 + [200.0] * 30, [1.0] * 60, [1.0] * 60)
    ps = {"ps-0": {"cpu_limit_cores": line([0.5] * 30 + [1.0] * 30), "memory_limit_bytes": line([2e9] * 60)}}
    sizes = [window.size for window in windows_of(lines, ps, {}, {}, 1.0, frozenset({"ps_cpu"}))]
    assert sizes == [Size(1, 0, 0.5), Size(1, 0, 1.0)]
    assert [window.size for window in windows_of(lines, ps, {}, {}, 1.0, NOTHING)] == [Size(1, 0)]


@pytest.mark.parametrize(
    "lines",
    [{}, job([], [], []), job([100.0] * 4, [1.0] * 4, [1.0] * 4), job([0.0] * 40, [1.0] * 40, [1.0] * 40),
     job([100.0] * 40, [0.0] * 40, [1.0] * 40), job([100.0] * 40, [math.nan] * 40, [1.0] * 40),
     job([100.0] * 40, [1.5] * 40, [1.0] * 40), job([math.nan] * 40, [1.0] * 40, [1.0] * 40)],
)  # fmt: skip
def test_what_says_nothing_teaches_nothing(lines):
    assert windows_of(lines, {}, {}, {}, 1.0, NOTHING) == []


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """A job with one PS and one trainer, 80 s long."""
    store = Store(tmp_path / "aimaster.db")
    store.put(step=1000, slots=4, started=BEGIN)
    store.save_totals([("one", 64_000)])
    catalogue = pb.Catalogue(
        variables=[pb.Variable(name="t", slot=1, shape=[100, 4], bytes=1600, update=pb.Variable.ROWS)]
    )
    store.put_blob("catalogue", catalogue.SerializeToString())
    series = Series(store)
    with store.transaction():
        for number in range(40):
            series.add(BEGIN + EVERY * number, {
                "job": {"examples_per_second": 800.0, "steps_per_second": 12.5, "ps": 1.0, "workers": 1.0},
                "ps-0": {"cpu_cores": 0.25, "rss_bytes": 1e9 + number}, "chief-0": {"cpu_cores": 0.5, "rss_bytes": 2e9},
            })  # fmt: skip
    store.close()
    return tmp_path


def test_a_run_directory_becomes_a_job_of_the_history(workdir):
    found = finished_job(workdir, script="train", status="succeeded", seconds=81.23456, finished=BEGIN + 81)
    assert found is not None
    assert (found.script, found.status, found.seconds, found.examples) == ("train", "succeeded", 81.235, 64_000)
    assert found.model.batch_size == 64.0
    assert (found.model.table_bytes, found.model.fields, found.model.largest_slot_bytes) == (1600, 1, 1600)
    (window,) = found.windows
    assert (window.size, window.examples_per_second) == (Size(1, 0), 800.0)
    assert (window.trainer_cpu_cores, window.ps_cpu_cores) == (0.5, 0.25)
    assert found.fingerprint and found.ps_stored_bytes == 1600
    assert found.ps_computed_bytes == PROCESS_BYTES + VARIABLE_BYTES + 1600
    assert found.machine == ""  # its processes told of none
    assert found.ps_memory_bytes == pytest.approx(1e9 + 39)
    assert found.worker_memory_bytes == 2_000_000_000


def test_what_the_job_had_declared_of_its_model_is_kept(workdir):
    store = Store(workdir / "aimaster.db")
    store.put_blob("declaration", pb.Declaration(lookups_per_example=26, flops_per_example=9e4).SerializeToString())
    store.close()
    found = finished_job(workdir, script="train", status="succeeded", seconds=81.0, finished=BEGIN + 81)
    assert found is not None
    assert (found.model.lookups_per_step, found.model.flops_per_example) == (26 * 64.0, 9e4)


@pytest.mark.parametrize(("declared", "batch"), [(48, 48.0), (0, 64.0)])
def test_the_batch_of_a_job_that_went_on_from_a_checkpoint_is_that_of_its_steps(workdir, declared, batch):
    """Its global step counts those of jobs before."""
    store = Store(workdir / "aimaster.db")
    store.put(step=1_001_000)
    store.put_blob("declaration", pb.Declaration(batch_size=declared, lookups_per_example=26).SerializeToString())
    store.close()
    found = finished_job(workdir, script="train", status="succeeded", seconds=81.0, finished=BEGIN + 81)
    assert found is not None
    assert (found.model.batch_size, found.model.lookups_per_step) == (batch, 26 * batch)
    assert {window.examples_per_step for window in found.windows} == {batch}


def test_what_a_checkpoint_copied_is_kept_where_one_was_written(workdir):
    copied = []
    for checkpoint in (None, {"step": 500, "time": BEGIN}):
        store = Store(workdir / "aimaster.db")
        store.put(**({"checkpoint": checkpoint} if checkpoint else {}))
        store.close()
        found = finished_job(workdir, script="train", status="succeeded", seconds=81.0, finished=BEGIN + 81)
        assert found is not None
        copied.append(found.ps_copied_bytes)
    assert copied == [0, 1600]


@pytest.mark.parametrize(
    ("kinds", "machine"), [(["64 x some"], "64 x some"), (["64 x some", "8 x other"], ""), (["64 x some", ""], "")]
)
def test_the_kind_of_machine_is_that_of_all_its_processes(workdir, kinds, machine):
    store = Store(workdir / "aimaster.db")
    store.put(machine_kinds=kinds)
    store.close()
    found = finished_job(workdir, script="train", status="succeeded", seconds=81.0, finished=BEGIN + 81)
    assert found is not None and found.machine == machine


def test_a_job_that_never_trained_is_not_kept(tmp_path):
    Store(tmp_path / "aimaster.db").close()
    assert finished_job(tmp_path, script="train", status="failed", seconds=3.0, finished=BEGIN) is None


def test_a_job_of_ten_seconds_is_kept_without_throughput(workdir):
    store = Store(workdir / "aimaster.db")
    store.write("DELETE FROM gazer_samples WHERE time > ?", [((BEGIN + 10) * 1000,)])
    store.close()
    found = finished_job(workdir, script="train", status="succeeded", seconds=10.0, finished=BEGIN)
    assert found is not None
    assert found.windows == ()


# ---------------------------------------------------------------------------------------------- what changes brought


def grown(at: float, trainers: int, **more: Any) -> Scaling:
    """From one trainer to so many; ended so many seconds after the first interval."""
    changed = {"from_count": 0, "to_count": trainers - 1, "outcome": "committed", **more}
    return Scaling(1, "scale-up", "worker", started=BEGIN + at, **changed)


def brought(speed: list[float], trainers: list[float], *scalings: Scaling) -> Brought:
    lines = job(speed, [1.0] * len(speed), trainers)
    return brought_by(lines, windows_of(lines, {}, {}, {}, 1.0, NOTHING), scalings, 0.0)


def test_what_changes_brought_counts_their_pauses() -> None:
    """60 s with 100 examples/s, 10 s of pause, 48 s with 300, which would have taken 144 s."""
    scaling = grown(60.0, 3, seconds=10.0, pause_seconds=(2.0, 10.0), outcome="committed")
    found = brought([100.0] * 31 + [0.0] * 5 + [300.0] * 24, [1.0] * 31 + [3.0] * 29, scaling)
    assert found == Brought(1, 0, 100.0, 171.667, 86.0, gained=found.gained, by_hand=1)
    assert found.gained == pytest.approx(86.0 / 58.0, rel=0.1)


def test_a_change_that_made_it_slower_has_cost_time() -> None:
    found = brought([100.0] * 30 + [50.0] * 30, [1.0] * 30 + [3.0] * 30, grown(58.0, 3))
    assert found.saved_seconds == -30.0


def test_time_in_which_a_job_stood_until_it_was_resumed_saves_nothing() -> None:
    """60 s with 100 examples/s, then 60 s with 300, which would have taken 180, and in between ten minutes of nothing."""
    away, lines = 600.0, job([100.0] * 30 + [300.0] * 30, [1.0] * 60, [1.0] * 30 + [3.0] * 30)
    late = {
        name: dataclasses.replace(line, times=[*line.times[:45], *(time + away for time in line.times[45:])])
        for name, line in lines.items()
    }
    found, resumed = (
        brought_by(one, windows_of(one, {}, {}, {}, 1.0, NOTHING), [grown(58.0, 3)], 0.0) for one in (lines, late)
    )
    assert found.saved_seconds == 120.0
    assert resumed.saved_seconds == pytest.approx(120.0, abs=7.0)


def test_a_job_that_kept_its_size_saved_nothing() -> None:
    assert brought([100.0] * 60, [1.0] * 60) == Brought(0, 0, 100.0, 100.0, 0.0, gained=0.0)


@pytest.mark.parametrize("replaced", ["", "ps-0"], ids=["came back after a loss", "replaced"])
def test_a_ps_that_comes_again_and_moved_slots_are_no_changes_of_size(replaced: str) -> None:
    others = [
        Scaling(1, "replace", "ps", replace=replaced, from_count=0 if not replaced else 1, to_count=1, started=BEGIN + 20.0,
                seconds=2.0, outcome="committed"),
        Scaling(2, "replace", "ps", replace=replaced, to_count=1, started=BEGIN + 24.0, outcome="rolled_back"),
        Scaling(3, "rebalance", "ps", from_count=1, to_count=1, started=BEGIN + 30.0, outcome="committed"),
    ]  # fmt: skip
    found = brought([100.0] * 60, [1.0] * 60, *others)
    assert (found.changes, found.not_made) == (0, 0)
    both = brought([100.0] * 30 + [300.0] * 30, [1.0] * 30 + [3.0] * 30, *others, grown(58.0, 3))
    assert (both.changes, both.not_made) == (1, 0)


def test_a_first_size_that_was_left_too_soon_is_not_compared_with() -> None:
    found = brought([100.0] * 8 + [300.0] * 30, [1.0] * 8 + [3.0] * 30, grown(14.0, 3))
    assert (found.first_examples_per_second, found.saved_seconds) == (0.0, 0.0) and found.examples_per_second > 200


@pytest.mark.parametrize("lines", [{}, job([], [], []), job([math.nan] * 40, [1.0] * 40, [1.0] * 40)])
def test_of_a_job_without_figures_nothing_is_said(lines: dict[str, Line]) -> None:
    made = [grown(0.0, 3), grown(0.0, 3), grown(0.0, 3, outcome="rolled_back")]
    assert brought_by(lines, (), made, 0.0) == Brought(2, 1, by_hand=2)


def test_the_history_says_what_the_summary_says_of_the_same_changes() -> None:
    """Whoever compares the page with the report finds one figure."""
    scaling = grown(60.0, 3, seconds=4.0, pause_seconds=(1.5,), decision=1)
    speed, trainers = [100.0] * 32 + [250.0] * 40, [1.0] * 32 + [3.0] * 40
    lines = job(speed, [1.0] * 72, trainers)
    windows = windows_of(lines, {}, {}, {}, 1.0, NOTHING)
    changes = tuple(changes_of([scaling], BEGIN, {1: 300.0}))
    seen = building.observation(
        number=2, time=142.0, size=Size(1, 2), limits=Limits(), objective="", deadline_seconds=0.0, model=Model.unknown(),
        windows=windows, roles=(), hosts=(), one_host=True, slots=(), changes=changes, losses=(),
        progress=Progress(0, 0), backups=False, copies_bytes=0, hold=False, busy=False, reclaimed=(), first=None, stood=(),
        local_batch=False,
    )  # fmt: skip
    told = brought_to_the_summary([seen], 0.1)
    assert told is not None
    found = brought_by(lines, windows, [scaling], 0.1)
    assert found.saved_seconds == pytest.approx(-told.account.lost_seconds, abs=1e-3)
    assert (found.by_hand, told.by_hand) == (0, 0)


def test_of_a_job_that_was_scaled_by_itself_the_history_has_the_figure_of_its_decisions_record(workdir: Path) -> None:
    """Whatever time series say: `decisions`, the report and the summary told 4.5 s of a job of which `jobs` told 43.5 s."""
    account = Account((1, 0), 100.0, 50.0, 91.0)
    parts: dict[str, Any] = {"script": "train", "status": "succeeded", "seconds": 81.0, "finished": BEGIN + 81}
    found = finished_job(workdir, **parts, autoscaled=True, recorded=account)
    assert found is not None and found.brought.saved_seconds == -4.5 and found.brought.gained == -0.09
    assert complaint(found) == ""
    changed = dataclasses.replace(found, brought=dataclasses.replace(found.brought, changes=2, by_hand=1))
    assert in_words(changed) == "2 changes (1 by hand), cost 4.5 s (-9.0% since the first one)"
    without = finished_job(workdir, **parts, autoscaled=True)
    assert without is not None and without.brought.first_examples_per_second == 800.0, "its record is gone"


# ---------------------------------------------------------------------------------------------------- without PS


def in_step(directory: Path, **metrics: float) -> Path:
    """A job that had 1 worker and then 3: each trains 24 records of a step, which takes 240 ms and a sum of 10."""
    store = Store(directory / "aimaster.db")
    store.put(step=1000, slots=0, started=BEGIN)
    store.save_totals([("one", 64_000)])
    store.save_scaling(Scaling(
        1, "scale-up", "worker", from_count=1, to_count=3, outcome="committed", started=BEGIN + 78
    ))  # fmt: skip
    series = Series(store)
    with store.transaction():
        for number in range(80):
            trainers = 2.0 if number < 40 else 4.0
            names = ["chief-0", *(f"worker-{index}" for index in range(int(trainers) - 1))]
            series.add(BEGIN + EVERY * number, {
                "job": {"examples_per_second": 96.0 * trainers, "steps_per_second": 4.0, "ps": 0.0, "workers": trainers},
                **{name: {"cpu_cores": 0.5, "rss_bytes": 2e9, "step_seconds": 0.25, "sum_seconds": 0.01 + 0.001 * place}
                   for place, name in enumerate(names)},
            })  # fmt: skip
    store.close()
    return directory


def test_a_job_without_ps_is_kept_with_what_its_steps_consist_of(tmp_path: Path) -> None:
    found = finished_job(
        in_step(tmp_path), script="train", status="succeeded", seconds=160.0, finished=BEGIN + 160, autoscaled=True
    )
    assert found is not None and found.sums and found.strategy == "allreduce" and complaint(found) == ""
    assert [window.size for window in found.windows] == [Size(0, 1), Size(0, 3)]
    for window in found.windows:
        assert window.examples_per_step == pytest.approx(24.0), "of one worker"
        assert (window.own_seconds, window.sum_seconds) == pytest.approx((0.24, 0.01))
    assert found.worker_memory_bytes == 2 * 10**9 and found.ps_memory_bytes == 0 and not found.backups
    assert (found.examples, found.brought.changes, found.brought.first_examples_per_second) == (64_000, 1, 192.0)
    fitted = synchronous.fit(found.windows)
    assert fitted is not None and found.fitted.coefficients == fitted.coefficients
    assert fitted.local, "a worker's part of a step did not get smaller"
    assert in_words(found).startswith("1 change")


def test_a_moment_without_ps_is_no_size_of_a_job_with_them_nor_one_with_ps_of_a_job_without() -> None:
    lines = job([100.0] * 40, [1.0] * 40, [2.0] * 40)
    assert windows_of(lines, {}, {}, {}, 1.0, NOTHING, sums=True) == []
    assert windows_of(job([100.0] * 40, [0.0] * 40, [2.0] * 40), {}, {}, {}, 1.0, NOTHING) == []


@pytest.mark.parametrize(
    ("strategy", "ps", "why"), [("allreduce", 1, "1 PS"), ("ps", 0, "0 PS"), ("gossip", 1, "strategy is 'gossip'")]
)
def test_what_a_strategy_cannot_have_is_no_job(tmp_path: Path, strategy: str, ps: int, why: str) -> None:
    found = finished_job(in_step(tmp_path), script="train", status="succeeded", seconds=1.0, finished=BEGIN)
    assert found is not None
    windows = tuple(dataclasses.replace(one, size=Size(ps, one.size.workers)) for one in found.windows)
    assert why in complaint(dataclasses.replace(found, strategy=strategy, windows=windows))
