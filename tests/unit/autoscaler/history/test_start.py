"""The first size: from no jobs, from some, from strange ones."""

from __future__ import annotations

import dataclasses
import random
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from deeprec_ext.autoscaler.history import estimates
from deeprec_ext.autoscaler.history.history import Finished
from deeprec_ext.autoscaler.history.start import at_least, describe, first_size, likeness
from deeprec_ext.autoscaler.model import formula
from deeprec_ext.autoscaler.model.memory_model import Layout, for_count
from deeprec_ext.autoscaler.model.surroundings import UNKNOWN, Surroundings
from deeprec_ext.autoscaler.observe.observed import Limits, Model, Size, Window
from tests.unit.autoscaler.facts import fact

GIB = 1 << 30
ROOT = Path(__file__).resolve().parents[4]
LIMITS = Limits(min_ps=1, max_ps=8, min_workers=0, max_workers=16)
MODEL = fact(Model, 10**9, 10**6, 26, 512.0, 26_000.0, 1e6)


def truth(model: Model) -> tuple[float, ...]:
    """A step costs CPU in proportion to the batch and to the look-ups."""
    compute, serve = 2e-4 * model.batch_size, 1e-6 * model.lookups_per_step
    return (0.005, compute, 0.0, 0.0, serve, 0.0, 0.001, 0.0, 0.0, 5.0)


def finished(
    model: Model = MODEL, script: str = "train.py", noise: float = 0.02, seed: int = 0, number: int = 0,
    around: Surroundings = UNKNOWN,
) -> Finished:  # fmt: skip
    """A job that has had ten sizes, of processes with a core each, or on a host that they share."""
    chance, c, windows = random.Random(seed), truth(model), []
    for ps, workers in ((1, 0), (1, 1), (1, 3), (2, 3), (2, 5), (3, 7), (4, 7), (4, 11), (2, 7), (1, 7)):
        size = Size(ps, workers) if around.cores else Size(ps, workers, 1.0, 1.0)
        seconds = formula.step_seconds(c, around.place(size))
        rate = (workers + 1) * model.batch_size / seconds * chance.lognormvariate(0, noise)
        windows.append(
            fact(Window,
                0.0, 60.0, size, rate, model.batch_size,
                trainer_cpu_cores=formula.trainer_cores(c, ps, seconds),
                ps_cpu_cores=formula.ps_cores(c, ps, workers + 1, seconds), host_cores=around.cores,
            )
        )  # fmt: skip
    return Finished(script, 1000.0 + number, "succeeded", 600.0, model, tuple(windows), 2 * GIB, 3 * GIB, 10**6)


def best_size(model: Model) -> tuple[int, int]:
    """What brings 95 % of what can be had, by the truth, with the fewest pods."""

    def rate(ps: int, workers: int) -> float:
        return (workers + 1) / formula.step_seconds(truth(model), UNKNOWN.place(Size(ps, workers, 1.0, 1.0)))

    sizes = [(ps, workers) for ps in range(1, 9) for workers in range(17)]
    most = max(rate(*size) for size in sizes)
    return min((size for size in sizes if rate(*size) > 0.9 * most), key=sum)


def test_without_history_a_job_starts_small_and_says_so():
    start = first_size(MODEL, LIMITS, [])
    assert start.size == Size(1, 0)
    assert start.confidence <= 0.1
    assert "no job has finished yet" in start.reason
    assert first_size(Model.unknown(), dataclasses.replace(LIMITS, min_ps=2, min_workers=3), []).size == Size(2, 3)


def test_variables_that_need_more_ps_get_them_also_without_history():
    limits = dataclasses.replace(LIMITS, max_ps_memory_bytes=2 * GIB)
    start = first_size(fact(Model, table_bytes=6 * GIB, dense_bytes=0), limits, [], backups=False)
    assert start.size.ps > 4
    assert "variables need" in start.reason
    with_backups = first_size(fact(Model, table_bytes=6 * GIB), limits, [])
    assert with_backups.size.ps == 8  # as many as may be


def test_jobs_of_the_same_kind_say_where_to_start():
    history = [finished(seed=seed, number=seed) for seed in range(6)]
    start = first_size(MODEL, LIMITS, history, script="train.py")
    ps, workers = best_size(MODEL)
    assert start.confidence > 0.6
    assert start.jobs == 6
    assert abs(start.size.ps - ps) <= 1
    assert abs(start.size.workers - workers) <= 3
    place = UNKNOWN.place(Size(start.size.ps, start.size.workers, 1.0, 1.0))
    rate = start.size.trainers * 512.0 / formula.step_seconds(truth(MODEL), place)
    assert start.examples_per_second == pytest.approx(rate, rel=0.15)


def test_little_confidence_little_start():
    sure = first_size(MODEL, LIMITS, [finished(seed=seed) for seed in range(6)], script="train.py")
    unsure = first_size(MODEL, LIMITS, [finished(script="other.py")], script="train.py")
    assert unsure.confidence < sure.confidence
    assert 0 < unsure.size.workers < sure.size.workers
    assert "would be best: with less than 60% it begins" in unsure.reason and "% of the way there" in unsure.reason
    assert "of the way there" not in sure.reason


def test_a_model_between_others_costs_what_lies_between():
    """Look-ups decide how many PS; the regression sees that they do."""
    models = [dataclasses.replace(MODEL, lookups_per_step=lookups, fields=round(lookups / 1000))
              for lookups in (10_000.0, 20_000.0, 40_000.0, 80_000.0)]  # fmt: skip
    history = [finished(model, seed=seed, script="x.py") for model in models for seed in (1, 2)]
    few = first_size(dataclasses.replace(MODEL, lookups_per_step=14_000.0, fields=14), LIMITS, history, script="x.py")
    many = first_size(dataclasses.replace(MODEL, lookups_per_step=60_000.0, fields=60), LIMITS, history, script="x.py")
    assert few.size.ps < many.size.ps
    assert few.examples_per_second > 1.2 * many.examples_per_second


def test_jobs_of_nothing_alike_do_not_count():
    huge = dataclasses.replace(MODEL, table_bytes=10**15, batch_size=5e6, lookups_per_step=1e9, flops_per_example=1e12)
    start = first_size(MODEL, LIMITS, [finished(huge, script="other.py")] * 5, script="train.py")
    assert start.size == Size(1, 0)
    assert "no job like it" in start.reason


def test_a_model_that_is_unlike_those_of_its_script_hears_the_nearest_for_little():
    """64 times the tables and the batch: nobody knows what that costs, and jobs of its script know more than nothing."""
    larger, farther = (
        dataclasses.replace(MODEL, table_bytes=n * MODEL.table_bytes, batch_size=n * 512.0) for n in (64, 3000)
    )
    history = [finished(seed=1), finished(farther), finished(larger, script="other.py")]
    start = first_size(larger, LIMITS, history[:2], script="train.py")
    alike = first_size(larger, LIMITS, [finished(larger)], script="train.py")
    assert "no model like it has finished yet; the nearest of its script had 46.9 times its" in start.reason
    assert "of the way there" in start.reason and 0 < start.confidence < alike.confidence / 2
    assert start.jobs == 2 and start.like[0].likeness > start.like[1].likeness
    assert start.requests is not None and start.requests.worker_cpu > 0
    assert at_least(start, Size(3, 20)).size == dataclasses.replace(start.size, ps=max(3, start.size.ps), workers=20)
    assert at_least(alike, Size(8, 20)) == alike, "what jobs like it needed counts"
    other = first_size(larger, LIMITS, history, script="train.py")
    assert other.like[0].script == "other.py" and ": 1 job like it" in f": {other.reason}", "that of another script"


CENSUS = fact(Model, 0, 395_908, 0, 128.0, 3_840.0, 52_657.0)
DEEPFM = fact(Model, 33_280_000, 3_224_960, 26, 512.0, 26_624.0, 860_190.0)


def test_a_job_of_another_model_is_none_like_it_and_counts_little():
    """Two examples; both scripts are called `train.py`."""
    other = finished(DEEPFM, script="keras_deepfm/train.py")
    assert likeness(CENSUS, "census_wide_deep/train.py", other) < 0.1
    no_tables = dataclasses.replace(DEEPFM, table_bytes=0, fields=0)
    assert likeness(DEEPFM, "train.py", finished(no_tables, script="train.py")) < 0.6, (
        "it has none where this one has 26"
    )
    own = finished(CENSUS, script="census_wide_deep/train.py")
    alone, both = (
        first_size(CENSUS, LIMITS, jobs, script="census_wide_deep/train.py") for jobs in ([own], [own, other])
    )
    assert both.reason.startswith("1 job like it") and abs(both.size.workers - alone.size.workers) <= 1
    assert both.confidence == pytest.approx(alone.confidence, abs=0.03)
    strange = first_size(CENSUS, LIMITS, [other], script="census_wide_deep/train.py")
    assert strange.jobs == 0 and "no job like it has finished yet" in strange.reason


def test_a_job_that_was_stopped_counts_as_one_that_ended_only_where_its_sizes_say_something():
    whole, short = finished(), dataclasses.replace(finished(), windows=finished().windows[:1])
    confidence = {}
    for name, job in (("whole", whole), ("short", short)):
        for status in ("succeeded", "stopped"):
            start = first_size(MODEL, LIMITS, [dataclasses.replace(job, status=status)], script="train.py")
            confidence[name, status] = start.confidence
            assert ("1 job like it, stopped before the end" in start.reason) == ((name, status) == ("short", "stopped"))
    assert confidence["whole", "stopped"] == confidence["whole", "succeeded"]
    assert confidence["short", "stopped"] < 0.6 * confidence["short", "succeeded"]


def test_many_jobs_that_are_all_unlike_are_none_that_is_like_it():
    far = dataclasses.replace(
        MODEL, **{name: 9 * getattr(MODEL, name) for name in ("table_bytes", "flops_per_example")}
    )
    far = dataclasses.replace(far, batch_size=9 * 512.0, lookups_per_step=9 * MODEL.lookups_per_step)
    history = [finished(far, script="other.py", seed=seed) for seed in range(30)]
    assert 0.05 < likeness(MODEL, "train.py", history[0]) < 0.3
    start = first_size(MODEL, LIMITS, history, script="train.py")
    assert start.size == Size(1, 0) and "no job like it" in start.reason and start.confidence < 0.2


def test_jobs_that_are_heard_for_little_are_not_called_like_it():
    """One place said six, another one."""
    far = dataclasses.replace(MODEL, batch_size=9 * 512.0, lookups_per_step=9 * MODEL.lookups_per_step)
    others = [finished(far, script="other.py", seed=seed) for seed in range(5)]
    assert 0.05 < likeness(MODEL, "train.py", others[0]) < 0.3
    start = first_size(MODEL, LIMITS, [finished(seed=9), *others], script="train.py")
    assert start.jobs == 1 and start.reason.startswith("1 job like it") and len(start.like) > 1


def test_without_a_like_job_the_declared_variables_say_what_pods_request():
    tables = layout(*[100_000_000] * 40)
    model = fact(Model, table_bytes=sum(tables.sizes))
    limits = dataclasses.replace(LIMITS, max_ps_memory_bytes=2 * GIB)
    start = first_size(model, limits, [], backups=False, layout=tables)
    assert start.requests is not None and 0.5 * GIB < start.requests.ps_memory_bytes <= 2 * GIB
    assert first_size(model, LIMITS, [], backups=False, layout=tables).requests is None, (
        "it may be more than any node has"
    )


def test_a_job_that_writes_no_checkpoint_needs_no_room_for_one():
    tables = layout(*[100_000_000] * 40)
    model = fact(Model, table_bytes=sum(tables.sizes))
    limits = dataclasses.replace(LIMITS, max_ps_memory_bytes=2 * GIB)
    counts = [
        first_size(model, limits, [], backups=False, layout=tables, checkpoints=written).size.ps
        for written in (True, False)
    ]
    assert counts[0] > counts[1]


def test_strangers_say_how_far_the_nearest_was():
    huge = dataclasses.replace(MODEL, table_bytes=10**6 * MODEL.table_bytes)
    start = first_size(MODEL, LIMITS, [finished(huge, script="other.py")], script="train.py")
    assert "the nearest, other.py, had 1e+06 times its bytes of tables" in start.reason
    assert start.jobs == 0 and start.like == () and start.requests is None


def on(machine: str, seed: int = 0, cores: float = 1.0, around: Surroundings = UNKNOWN) -> Finished:
    """A job whose trainers used so many cores each, or as many as they found."""
    job = finished(seed=seed, around=around)
    windows = [dataclasses.replace(one, trainer_cpu_cores=cores) for one in job.windows] if cores > 1 else job.windows
    return dataclasses.replace(job, machine=machine, windows=tuple(windows))


def test_jobs_of_another_machine_weigh_less_and_it_is_said():
    jobs = [on("64 x other", seed) for seed in range(2)]
    here = first_size(MODEL, LIMITS, jobs, script="train.py", machine="64 x other")
    there = first_size(MODEL, LIMITS, jobs, script="train.py", machine="2 x mine")
    assert there.confidence < 0.9 * here.confidence and there.size.workers <= here.size.workers
    assert "2 jobs like it, on another kind of machine" in there.reason and "machine" not in here.reason
    assert all(one.elsewhere for one in there.like) and not any(one.elsewhere for one in here.like)
    mixed = first_size(MODEL, LIMITS, [*jobs, finished(), on("2 x mine", 5)], script="train.py", machine="2 x mine")
    assert "4 jobs like it, 3 of them on another kind" in mixed.reason, "one of which nobody knows where it was"
    assert mixed.like[0].elsewhere is False, "it weighs most"


def test_what_a_large_machine_did_is_not_expected_of_a_small_one():
    large = [on("64 x other", seed, around=Surroundings(64.0, 64.0)) for seed in range(6)]
    there = first_size(MODEL, LIMITS, large, script="train.py", machine="64 x other", cores=64)
    here = first_size(MODEL, LIMITS, large, script="train.py", machine="2 x mine", cores=2)
    assert here.examples_per_second < there.examples_per_second / 4 and here.size.workers <= there.size.workers


def test_memory_carries_over_from_another_machine_and_cpu_does_not():
    cloud = dataclasses.replace(LIMITS, resizable=True)
    small, large = on("2 x mine"), on("64 x other", cores=8.0)
    both, mine, theirs = (
        first_size(MODEL, cloud, jobs, script="train.py", machine="2 x mine").size
        for jobs in ([large, small], [small], [large])
    )
    assert both.worker_cpu == mine.worker_cpu < theirs.worker_cpu
    assert theirs.worker_memory_bytes == mine.worker_memory_bytes


def test_without_features_only_the_same_script_is_alike():
    assert likeness(Model.unknown(), "train.py", finished()) == 1.0
    assert likeness(Model.unknown(), "other.py", finished()) == 0.0
    assert likeness(Model.unknown(), "", finished(script="")) == 0.0
    assert likeness(MODEL, "train.py", finished()) == 1.0
    assert 0 < likeness(MODEL, "other.py", finished()) < 1.0
    farther = dataclasses.replace(MODEL, table_bytes=8 * MODEL.table_bytes)
    assert likeness(farther, "train.py", finished()) < 1.0
    assert (
        first_size(Model.unknown(), LIMITS, [finished(seed=seed) for seed in range(4)], script="train.py").size.workers
        > 0
    )


def test_limits_are_never_left():
    history = [finished(seed=seed) for seed in range(6)]
    tight = Limits(2, 3, 1, 4, total_cpu=5.0)
    requests = Size(1, 0, 1.0, 1.0)
    size = first_size(MODEL, tight, history, script="train.py", requests=requests).size
    assert 2 <= size.ps <= 3
    assert 1 <= size.workers <= 4
    assert size.cpu <= 5.0
    assert (size.ps_cpu, size.worker_cpu) == (1.0, 1.0)


def test_a_trainer_beside_a_single_ps_gets_memory_for_its_copies():
    cloud = dataclasses.replace(LIMITS, resizable=True, max_ps=1)
    with_copies, without = (first_size(MODEL, cloud, [], backups=backups).size for backups in (True, False))
    assert with_copies.worker_memory_bytes - without.worker_memory_bytes > MODEL.table_bytes
    two = dataclasses.replace(LIMITS, resizable=True, min_ps=2, max_ps=2)
    assert first_size(MODEL, two, []).size.worker_memory_bytes == without.worker_memory_bytes
    # A job that had one PS for a while has shown what that takes; one that never had has not.
    had = finished()
    never = dataclasses.replace(had, windows=tuple(window for window in had.windows if window.size.ps > 1))
    bytes_of = {len(job.windows): first_size(MODEL, cloud, [job], script="train.py").size.worker_memory_bytes
                for job in (had, never)}  # fmt: skip
    assert bytes_of[len(never.windows)] - bytes_of[len(had.windows)] > MODEL.table_bytes


def layout(*tables: int) -> Layout:
    """One table a slot."""
    return Layout(tables, tables, tuple(size // 64 for size in tables), (1,) * len(tables))


def test_the_declared_variables_say_how_many_ps_hold_them():
    """Of the first job there is room for a checkpoint, too, for which a PS copies its tables."""
    limits = dataclasses.replace(LIMITS, max_ps_memory_bytes=2 * GIB)
    tables = layout(*[100_000_000] * 40)
    model = fact(Model, table_bytes=sum(tables.sizes))
    start = first_size(model, limits, [], backups=False, layout=tables)
    assert start.size.ps == 6
    five, six = (for_count(tables, count, backups=False) for count in (5, 6))
    assert 1.4 * five.total < 2 * GIB, "while it trains, with room"
    assert six.peak < five.peak < 2 * GIB < 1.2 * five.peak
    assert "its variables need 6 PS" in start.reason


def test_of_hundreds_of_ps_about_as_many_are_taken_as_are_needed_and_few_numbers_are_looked_at(monkeypatch) -> None:
    looked: list[int] = []

    def counted(layout, ps, **words):
        looked.append(ps)
        return for_count(layout, ps, **words)

    monkeypatch.setattr(estimates, "for_count", counted)
    limits = dataclasses.replace(LIMITS, max_ps=1000, max_ps_memory_bytes=100 * GIB)
    tables = layout(*[10**10] * 1000)  # 10 TB
    model = fact(Model, table_bytes=sum(tables.sizes))
    start = first_size(model, limits, [], backups=False, layout=tables)
    assert "out of memory" not in start.reason and len(set(looked)) < 200
    needed = estimates.ps_memory(model, [], tables, backups=False)
    assert needed(Size(start.size.ps, 0)).high <= 100 * GIB < needed(Size(round(0.93 * start.size.ps), 0)).high


@pytest.mark.parametrize(("free", "told"), [(0, False), (5 * 10**9, True), (20 * 10**9, False)])
def test_a_host_without_room_for_the_variables_is_told_before_anything_is_made(free: int, told: bool) -> None:
    start = first_size(MODEL, LIMITS, [], layout=layout(*[10**9] * 8), free_bytes=free)
    assert ("more than the" in start.reason) == told


def test_more_ps_do_not_help_a_table_that_no_ps_has_room_for():
    limits = dataclasses.replace(LIMITS, max_ps_memory_bytes=2 * GIB)
    tables = layout(3_000_000_000, *[100_000_000] * 15)
    start = first_size(fact(Model, table_bytes=sum(tables.sizes)), limits, [], backups=False, layout=tables)
    assert start.size.ps == 2 and "may have 2.1 GB: it may run out of memory" in start.reason


def test_a_run_of_the_same_variables_that_needed_more_is_given_more():
    cloud = dataclasses.replace(LIMITS, resizable=True, max_ps=1)
    tables = layout(*[10**9 // 8] * 8)
    computed = for_count(tables, 1)
    sizes = []
    for beside in (1, 3):
        job = dataclasses.replace(
            finished(), fingerprint="same", ps_computed_bytes=computed.total, ps_stored_bytes=computed.stored,
            ps_memory_bytes=computed.stored + beside * (computed.total - computed.stored),
        )  # fmt: skip
        start = first_size(
            MODEL, cloud, [job], script="train.py", layout=tables, fingerprint="same", checkpoints=False
        )  # fmt: skip
        sizes.append(start.size.ps_memory_bytes)
        assert job.ps_memory_bytes < sizes[-1] < 1.5 * job.ps_memory_bytes
    assert sizes[1] > sizes[0] + computed.process


def test_requests_are_made_where_they_can_be_and_are_not_named_otherwise():
    history = [finished(seed=seed) for seed in range(3)]
    assert first_size(MODEL, LIMITS, history, script="train.py").size.cpu == 0
    cloud = dataclasses.replace(LIMITS, resizable=True, max_worker_memory_bytes=3 * GIB)
    size = first_size(MODEL, cloud, history, script="train.py").size
    assert 0.5 < size.worker_cpu <= 1.2
    assert size.ps_memory_bytes > 10**9 / size.ps
    assert size.worker_memory_bytes == 3 * GIB  # history says more, the limit says less
    fresh = first_size(MODEL, cloud, []).size
    assert (fresh.ps_cpu, fresh.worker_cpu) == (1.0, 1.0)
    assert fresh.ps_memory_bytes > 10**9


def test_requests_are_what_similar_jobs_used_and_headroom_where_nothing_is_named():
    history = [finished(seed=seed) for seed in range(3)]
    start = first_size(MODEL, LIMITS, history, script="train.py")
    asked = start.requests
    assert asked is not None and (asked.ps, asked.workers) == (start.size.ps, start.size.workers)
    busiest = [max(window.trainer_cpu_cores for window in job.windows) for job in history]
    assert asked.worker_cpu == pytest.approx(1.2 * statistics.median(busiest), abs=0.01)
    assert (asked.ps_memory_bytes, asked.worker_memory_bytes) == (2.5 * GIB, 3.75 * GIB)
    assert start.size.cpu == 0, "the model is asked without them: they hold nobody"
    named = Size(1, 0, 3.0, 0.0, 0, GIB)
    rest = first_size(MODEL, LIMITS, history, script="train.py", requests=named).requests
    assert rest is not None and (rest.ps_cpu, rest.worker_memory_bytes) == (0, 0), "what is written stays"
    assert rest.worker_cpu == asked.worker_cpu and rest.ps_memory_bytes == asked.ps_memory_bytes
    assert first_size(MODEL, LIMITS, [], script="train.py").requests is None


def test_requests_keep_the_limits_of_a_pod_and_together_the_quota():
    history = [finished(seed=seed) for seed in range(3)]
    cloud = dataclasses.replace(LIMITS, resizable=True, max_ps_memory_bytes=GIB, max_worker_cpu=0.5)
    asked = first_size(MODEL, cloud, history, script="train.py").requests
    assert asked is not None and (asked.ps_memory_bytes, asked.worker_cpu) == (GIB, 0.5)
    limits = dataclasses.replace(LIMITS, total_cpu=2.0, total_memory_bytes=4 * GIB)
    asked = first_size(MODEL, limits, history, script="train.py", requests=Size(1, 0, 0.5)).requests
    assert asked is not None and asked.ps_cpu == 0
    assert asked.workers > 1 and asked.cpu + 0.5 * asked.ps <= 2.1 and asked.memory_bytes <= 4 * GIB


def test_fewer_ps_than_any_job_had_are_each_larger():
    at_most = dataclasses.replace(LIMITS, max_ps=1)
    had = finished()
    four = dataclasses.replace(had, windows=tuple(window for window in had.windows if window.size.ps == 4))
    assert four.windows
    asked = first_size(Model.unknown(), at_most, [four], script="train.py").requests
    assert asked is not None and asked.ps_memory_bytes == 1.25 * 4 * 2 * GIB


def test_what_was_not_measured_is_not_requested():
    blank = dataclasses.replace(
        finished(), ps_memory_bytes=0, worker_memory_bytes=0, model=Model.unknown(), backups=False,
        windows=tuple(dataclasses.replace(one, ps_cpu_cores=0.0, trainer_cpu_cores=0.0) for one in finished().windows),
    )  # fmt: skip
    asked = first_size(Model.unknown(), LIMITS, [blank], script="train.py", backups=False).requests
    assert asked is not None and asked.cpu == asked.memory_bytes == 0


def test_jobs_without_windows_teach_nothing_and_do_no_harm():
    empty = dataclasses.replace(finished(), windows=())
    broken = dataclasses.replace(finished(), windows=(fact(Window, 0, 1, Size(1, 1), 0.0),))
    assert first_size(MODEL, LIMITS, [empty, broken], script="train.py").size == Size(1, 0)


def test_the_start_is_described_in_one_line():
    text = describe(first_size(MODEL, LIMITS, [finished(seed=seed) for seed in range(6)], script="train.py"))
    assert "PS and" in text and "confidence" in text and "\n" not in text


def test_scientific_libraries_are_imported_on_first_use_only():
    code = (
        "import sys\n"
        "from deeprec_ext.autoscaler.history import finished, history, start\n"
        "from deeprec_ext.autoscaler.model import memory_model, throughput\n"
        "from deeprec_ext.autoscaler.observe.observed import Limits, Model\n"
        "start.first_size(Model.unknown(), Limits(), [])\n"
        "assert throughput.fit([]) is None\n"
        "print([name for name in ('numpy', 'scipy', 'sklearn', 'tensorflow') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.stdout == "[]\n", done.stderr
