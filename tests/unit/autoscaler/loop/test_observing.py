"""What the loop hands to the builder, under a clock that is moved by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from deeprec_ext.aimaster.core.records import Scaling
from deeprec_ext.aimaster.failover.failures import Failures
from deeprec_ext.autoscaler.loop.observing import observe, of_a_step, progress_of
from deeprec_ext.autoscaler.observe.changes import changes_of
from deeprec_ext.autoscaler.observe.growth import Growth
from deeprec_ext.autoscaler.observe.observed import Observed, Progress
from deeprec_ext.options import Settings
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.collected import HandClock, flush, make_job, make_scalings, report_everything, steps, tell


def test_what_processes_tell_for_minutes_reaches_the_policy(tmp_path: Path) -> None:
    clock = HandClock()
    job = make_job(tmp_path, clock, worker_memory_bytes=3 << 30)

    def look() -> Observed:
        return observe(
            job,
            make_scalings(job),
            number=3,
            windows=(),
            latest=job.metrics.latest,
            growth=Growth(),
            hold=False,
            one_host=True,
            free_memory_bytes=0,
            foretold={},
            first=None,
            stood=(),
        )

    def use(name: str):
        return next(use for use in look().roles if use.name == name)

    report_everything(job)
    for count in range(70):
        for name, rate in (("chief-0", 10.0), ("worker-0", 4.0)):
            tell(job, name, **steps(rate))
            beat = pb.Heartbeat(training=True, step=count + 1, steps_per_second=rate, examples_per_second=64 * rate)
            job.members.beat(job.members.get(name), beat)
        flush(job, clock)
        if count == 30:
            assert use("worker-0").step_seconds == 0.25 and use("worker-0").step_seconds_lasting == 0.0
    assert (use("worker-0").step_seconds_lasting, use("chief-0").step_seconds_lasting) == (0.25, 0.1)
    assert use("worker-0").stepless_seconds == 2.0 and use("worker-0").age_seconds == pytest.approx(140.0)
    assert use("ps-0").age_seconds == pytest.approx(140.0) and use("ps-0").stepless_seconds == 0.0
    assert look().model.batch_size == 64.0

    report_everything(job)
    flush(job, clock)
    Failures(job).add("worker-0", "killed", job.members.get("worker-0"))
    assert [loss.memory_limit_bytes for loss in look().losses] == [2 * 10**9]  # of its container
    tell(job, "worker-0", process=pb.ProcessSample(rss_bytes=1, memory_limit_bytes=2 * 10**9, shared_limits=True))
    Failures(job).add("worker-0", "killed", job.members.drop("worker-0", "killed"))
    assert look().losses[-1].memory_limit_bytes == 3 << 30  # as requested: the container is that of others too
    flush(job, clock, 60.0)
    Failures(job).add("worker-0", "killed", None)
    assert look().losses[-1].memory_limit_bytes == 3 << 30


def test_what_is_of_a_container_of_all_is_nobodys_own(tmp_path: Path) -> None:
    """Else each PS would use all memory of the container, and more PS would be the remedy."""
    job = make_job(tmp_path, HandClock())
    report_everything(job)
    assert (use_of(job, "ps-0").working_set_bytes, use_of(job, "ps-0").memory_limit_bytes) == (10**9, 2 * 10**9)
    sample = pb.ProcessSample(
        rss_bytes=10**8, working_set_bytes=10**9, memory_limit_bytes=2 * 10**9, cpu_limit_cores=2, shared_limits=True
    )
    for name in ("ps-0", "worker-0"):
        job.members.beat(job.members.get(name), pb.Heartbeat(rss_bytes=10**8))
        tell(job, name, interval_seconds=2, process=sample)
        use = use_of(job, name)
        assert (use.working_set_bytes, use.memory_limit_bytes, use.cpu_limit_cores) == (10**8, 0, 0.0)


def test_what_a_step_without_ps_consists_of_is_the_slowest_worker_and_the_shortest_sum(tmp_path: Path) -> None:
    clock = HandClock()
    job = make_job(tmp_path, clock, slots=0, ps=0, workers=2, settings=Settings(step_batch="each"))
    assert job.spec.sums and of_a_step(job, job.metrics.latest) == (0.0, 0.0)
    for _ in range(70):
        for name, summing in (("chief-0", 0.07), ("worker-0", 0.02), ("worker-1", 0.08)):
            tell(job, name, **steps(10.0, sum_seconds=summing))
        flush(job, clock)
    assert of_a_step(job, job.metrics.latest) == pytest.approx((0.08, 0.02))
    use = use_of(job, "worker-0")
    assert (use.step_seconds, use.sum_seconds) == (0.1, 0.02)
    assert use.own_seconds == use.step_seconds_lasting == pytest.approx(0.08)
    assert observed_of(job).local_batch


def observed_of(job) -> Observed:
    return observe(
        job, make_scalings(job), number=3, windows=(), latest=job.metrics.latest, growth=Growth(), hold=False, one_host=True,
        free_memory_bytes=0, foretold={}, first=None, stood=(),
    )  # fmt: skip


def use_of(job, name):
    flush(job, job.clock)
    return next(use for use in observed_of(job).roles if use.name == name)


def test_a_change_of_a_decision_has_its_number_and_what_it_was_to_bring() -> None:
    records = [
        Scaling(
            1, "scale-up", "ps", from_count=1, to_count=2, workers_from=0, workers_to=2, outcome="committed", decision=3
        ),
        Scaling(2, "scale-down", "worker", from_count=2, to_count=1, outcome="committed", decision=-1),
    ]
    found = changes_of(records, 0.0, {3: 24_600.0})
    assert [(one.role, one.from_count, one.to_count) for one in found] == [
        ("ps", 1, 2),
        ("worker", 0, 2),
        ("worker", 2, 1),
    ]
    assert [(one.decision, one.foretold, one.manual) for one in found] == [(3, 24_600.0, False)] * 2 + [(-1, 0.0, True)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ([pb.DataStatus(purpose="train", records=5000, trained=1000)], Progress(1000, 5000)),
        ([pb.DataStatus(purpose="train", records=1200, trained=300, steps=True)], Progress(9600, 38400)),
        ([pb.DataStatus(purpose="train", records=1200, steps=True)], Progress(9600, 0)),
        ([pb.DataStatus(purpose="train", trained=7), pb.DataStatus(purpose="evaluate", records=9)], Progress(9600, 19200)),
    ],
    ids=["records", "steps", "no step yet", "without end"],
)  # fmt: skip
def test_what_is_left_is_told_in_examples_also_where_steps_are_counted(data, expected) -> None:
    """A step is no example: a job of 900 more steps is not over in a moment."""
    job = SimpleNamespace(
        ledger=SimpleNamespace(status=lambda: data), store=SimpleNamespace(examples=lambda: 9600),
        members=SimpleNamespace(step=300, last_step=600),
    )  # fmt: skip
    assert progress_of(job) == expected
