"""What the history keeps of a job, from time series as Gazer writes them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.autoscaler.history.finished import SETTLE_SECONDS, finished_job, windows_of
from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.gazer.series import Series
from deeprec_ext.gazer.series_lines import Line
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
                "job": {"examples_per_second": 800.0, "ps": 1.0, "workers": 1.0},
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
    assert found.ps_memory_bytes == pytest.approx(1e9 + 39)
    assert found.worker_memory_bytes == 2_000_000_000


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
