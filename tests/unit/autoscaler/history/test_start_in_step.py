"""The first size of a job without PS: by jobs of its script that had none either, and by no others."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from deeprec_ext.autoscaler.history.estimates import estimate, ps_memory
from deeprec_ext.autoscaler.history.history import Finished
from deeprec_ext.autoscaler.history.start import describe, first_size
from deeprec_ext.autoscaler.model.memory_model import Layout
from deeprec_ext.autoscaler.model.synchronous import fit
from deeprec_ext.autoscaler.observe import building
from deeprec_ext.autoscaler.observe.observed import Limits, Model, Size
from deeprec_ext.autoscaler.policy.decide import decide
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.autoscaler.facts import fact
from tests.unit.autoscaler.history.test_start import LIMITS as WITH_PS
from tests.unit.autoscaler.history.test_start import MODEL
from tests.unit.autoscaler.history.test_start import finished as with_ps
from tests.unit.autoscaler.model.test_synchronous import TRUTH, rate, windows

GIB = 1 << 30
LIMITS = Limits(min_ps=0, max_ps=0, max_workers=16)
FLAT = (0.05, 0.0001, 0.1, 0.02, 1.0)
"""A step of which little is computed: 74 ms alone, and 100 ms more to sum it with anybody."""


def finished(*workers: int, truth: tuple[float, ...] = TRUTH, **more: Any) -> Finished:
    """A job that has had so many workers in turn."""
    found = tuple(windows(truth, *workers, trainer_cpu_cores=0.9, **more))
    kept = {one.size: one for one in found}.values()
    model = fit(found)
    assert model is not None
    return Finished(
        "train.py", 1000.0, "succeeded", 600.0, fact(Model, batch_size=240.0), tuple(kept), 0, 3 * GIB, 10**6,
        backups=False, name="before", autoscaled=True, strategy="allreduce",
    )  # fmt: skip


def first(jobs: list[Finished], limits: Limits = LIMITS, script: str = "train.py", **more: Any) -> Any:
    return first_size(Model.unknown(), limits, jobs, script=script, **more)


def test_the_next_job_of_a_script_begins_with_the_size_that_was_good() -> None:
    start = first([finished(0, 1, 3)])
    assert start.size.ps == 0 and start.size.workers in (2, 3), describe(start)
    assert start.jobs == 1 and "1 job like it" in start.reason and "PS" not in describe(start)
    assert start.examples_per_second == pytest.approx(rate(TRUTH, start.size.workers), rel=0.15)
    assert first([finished(0, 1, 3), finished(0, 1, 3), finished(1, 3)]).size.workers == 3


def test_where_the_sum_was_most_of_a_step_it_begins_alone() -> None:
    assert first([finished(0, 1, 2, truth=FLAT)]).size == Size(0, 0)


def test_it_begins_with_no_more_workers_than_were_measured_and_than_it_may_have() -> None:
    jobs = [finished(0, 1, 2) for _ in range(4)]
    assert first(jobs).size.workers == 2, "what a third one brings nobody knows"
    assert first(jobs, dataclasses.replace(LIMITS, max_workers=1)).size.workers == 1
    assert first(jobs, dataclasses.replace(LIMITS, min_workers=5)).size.workers == 5


def test_jobs_with_ps_say_nothing_of_it_nor_it_of_them() -> None:
    other = [dataclasses.replace(with_ps(), script="train.py") for _ in range(4)]
    start = first(other)
    assert (start.size, start.jobs) == (Size(0, 0), 0) and "no job like it has finished yet" in start.reason
    alone = [finished(0, 1, 3) for _ in range(4)]
    found = first_size(MODEL, WITH_PS, alone, script="train.py")
    assert (found.size, found.jobs, found.like) == (Size(1, 0), 0, ())
    assert first_size(MODEL, WITH_PS, [*alone, *other], script="train.py") == first_size(
        MODEL, WITH_PS, other, script="train.py"
    )
    layout = Layout.of(pb.Catalogue(variables=[pb.Variable(name="t", slot=0, bytes=GIB, shape=[1 << 20, 64])]), 4)
    size = Size(1, 1)
    assert estimate(MODEL, size, alone, layout=layout) == estimate(MODEL, size, [], layout=layout)
    assert ps_memory(MODEL, alone, layout)(size) == ps_memory(MODEL, [], layout)(size)


def test_another_script_says_nothing_of_it() -> None:
    start = first([finished(0, 1, 3)], script="other.py")
    assert (start.size, start.jobs) == (Size(0, 0), 0)


def test_what_its_workers_used_is_what_pods_request() -> None:
    start = first([finished(0, 1, 3)])
    assert start.requests is not None and start.requests.ps_cpu == start.requests.ps_memory_bytes == 0
    assert start.requests.worker_cpu == pytest.approx(1.2 * 0.9, abs=0.01)
    assert start.requests.worker_memory_bytes >= 1.25 * 3 * GIB
    resizable = dataclasses.replace(LIMITS, resizable=True, max_worker_cpu=4.0)
    sized = first([finished(0, 1, 3)], resizable, requests=Size(0, 0)).size
    assert (sized.ps_cpu, sized.ps_memory_bytes) == (0.0, 0) and sized.worker_cpu > 1.0


def test_the_size_and_its_reason_are_in_the_first_decision() -> None:
    start = first([finished(0, 1, 3)])
    seen = building.before_the_start(
        size=start.size, limits=LIMITS, objective="fastest", deadline_seconds=0.0, backups=False, start=start.reason
    )
    decision = decide(seen, Policy())
    assert (decision.action, decision.size.ps, decision.size.workers) == ("start", 0, start.size.workers)
    assert f"the job starts with {start.size.workers} workers" in decision.reason and "1 job like it" in decision.reason
