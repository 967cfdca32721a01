"""Decisions on jobs without PS: on workers alone, by what each of them does before its sum."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from deeprec_ext.autoscaler.observe.observed import Change, Host, Limits, Observed, Progress, Size, Window
from deeprec_ext.autoscaler.policy.decide import decide
from deeprec_ext.autoscaler.policy.decision import Decision
from deeprec_ext.autoscaler.policy.evidence import Evidence
from deeprec_ext.autoscaler.policy.limits import contradiction, describe, fits, nearest
from deeprec_ext.autoscaler.policy.returning import freed
from tests.unit.autoscaler.facts import fact
from tests.unit.autoscaler.policy.jobs import POLICY, seen, uses, windows

LIMITS = Limits(0, 0, 0, 8)


def job(workers: int, rate: float, own: float, summing: float, **more: Any) -> Observed:
    """On a host with cores to spare; of a step `own` seconds before the sum."""
    size = Size(0, workers)
    found = windows(size, rate, 120.0, own_seconds=own, sum_seconds=summing)
    records = rate * (own + summing) / (workers + 1)
    of_a_worker = {"step_seconds": own + summing, "step_seconds_lasting": own, "sum_seconds": summing}
    names = ["chief_0", *(f"worker_{n}" for n in range(workers))]
    given = {
        "limits": LIMITS, "roles": uses(size, **dict.fromkeys(names, of_a_worker)),
        "windows": tuple(dataclasses.replace(one, examples_per_step=records) for one in found), **more,
    }  # fmt: skip
    return seen(size, rate, **given)


def decided(observed: Observed) -> Decision:
    decision = decide(observed, POLICY)
    assert decision.size.ps == 0 and "PS" not in decision.reason, decision
    assert decide(Observed.from_json(observed.to_json()), POLICY) == decision
    return decision


def test_limits_without_ps_are_met_by_sizes_without() -> None:
    assert LIMITS.sums and not Limits(1, 2, 0, 2).sums
    assert not contradiction(Size(0, 3), LIMITS)
    assert fits(Size(0, 3), LIMITS) and not fits(Size(1, 3), LIMITS) and not fits(Size(0, 9), LIMITS)
    assert nearest(Size(0, 12), LIMITS) == Size(0, 8)
    assert describe(Size(0, 1, worker_cpu=2.0)) == "1 worker, 2 cores per worker"


@pytest.mark.parametrize(("size", "limits"), [(Size(0, 1), Limits(1, 4, 0, 4)), (Size(1, 1), LIMITS)])
def test_a_size_of_the_other_kind_of_job_is_none(size: Size, limits: Limits) -> None:
    decision = decide(seen(size, limits=limits), POLICY)
    assert (decision.action, decision.reason) == ("keep", "the size that was observed is none")


def test_it_starts_with_the_fewest_workers_or_as_many_as_were_asked_for() -> None:
    for workers, why in ((0, "the fewest it may have"), (3, "as it was asked for")):
        decision = decided(dataclasses.replace(job(workers, 100.0, 0.1, 0.0), number=0))
        assert (decision.action, decision.size) == ("start", Size(0, workers)) and why in decision.reason


def test_a_step_that_is_computing_is_shared_by_more_workers_and_the_reason_says_what_a_step_is() -> None:
    decision = decided(job(1, 1000.0, 0.2, 0.01))
    assert decision.action == "explore" and decision.size.workers == 2
    assert "of it the sum (here a step of 210 ms, 10 ms of it the sum)" in decision.reason
    assert decision.prediction.examples_per_second > 1.2 * 1000


def test_a_step_that_is_the_sum_is_made_by_fewer() -> None:
    decision = decided(job(3, 1000.0, 0.005, 0.2))
    assert decision.size.workers < 3
    assert "to train +" in decision.reason and "less cost" in decision.reason


def test_a_worker_alone_whose_computing_fills_the_host_is_left_alone() -> None:
    host = Host("host-0", 2.0, 1.95, 0.0, 0, 1, 0)
    alone = job(0, 1000.0, 0.2, 0.0, hosts=(host,), one_host=True)
    full = dataclasses.replace(
        alone,
        windows=tuple(
            dataclasses.replace(one, trainer_cpu_cores=1.95, host_cores=2.0, others_cores=0.0) for one in alone.windows
        ),
    )
    decision = decided(full)
    assert decision.action == "keep" and "the CPU of the trainers is what it waits for" in decision.reason
    assert "1 worker: +3% predicted" in decision.reason, "the other 3 % of the two cores, and not nearly twice as fast"


def test_nothing_is_tried_blindly() -> None:
    """With PS a first worker more is tried where the model sees nothing in it, to learn from it."""
    fixed = job(1, 1000.0, 0.2, 0.0)
    before = windows(Size(0, 0), 990.0, 20.0, own_seconds=0.2)
    known = [dataclasses.replace(one, examples_per_step=2 * fixed.windows[0].examples_per_step) for one in before]
    decision = decided(dataclasses.replace(fixed, windows=(*known, *fixed.windows), time=300.0))
    assert decision.size.workers <= 1


def straggling(slow: float, **more: Any) -> Observed:
    """Five workers make each step in a second, of which worker-2 computes so much, and the others 0.2."""
    observed = job(4, 1000.0, slow, 1.0 - slow, progress=Progress(0, 10**8), **more)
    like = {"step_seconds": 1.0, "step_seconds_lasting": 0.2, "sum_seconds": 0.8}
    roles = tuple(
        dataclasses.replace(one, **like) if one.name != "worker-2" else one for one in observed.roles
    )  # fmt: skip
    return dataclasses.replace(observed, roles=roles)


def test_a_straggler_is_who_computes_longer_and_not_whose_steps_are() -> None:
    decision = decided(straggling(0.9))
    assert (decision.action, decision.replace) == ("replace", "worker-2")
    assert "worker-2 needs 900 ms of a step before its sum, 4.5 times as long as the median worker" in decision.reason
    assert decided(straggling(0.25)).action != "replace"


def test_a_straggler_of_a_minute_is_none() -> None:
    observed = straggling(0.9)
    roles = [dataclasses.replace(one, step_seconds_lasting=0.2) for one in observed.roles]
    assert decided(dataclasses.replace(observed, roles=tuple(roles))).action != "replace"


def test_workers_set_by_hand_stay_and_no_ps_is_spoken_of() -> None:
    made = fact(Change, 100.0, "scale-up", "worker", 0, 1, "committed", 5.0, manual=True)
    decision = decided(job(1, 1000.0, 0.2, 0.01, changes=(made,)))
    assert decision.action == "keep" and "the number of workers was set by hand" in decision.reason


@pytest.mark.parametrize(("used", "tried"), [(0.9, True), (0.2, False)])
def test_cores_that_others_free_are_no_reason_to_go_back_to_a_size_that_never_wanted_them(
    used: float, tried: bool
) -> None:
    def at(size: Size, start: float, others: float) -> list[Window]:
        return windows(size, 1000.0, start, trainer_cpu_cores=used / size.trainers, host_cores=2.0, others_cores=others)

    observed = job(
        1, 1000.0, 0.1, 0.0, one_host=True, hosts=(Host("host-0", 2.0, used, 0.0, 0, 2, 0),), time=160.0,
        windows=(*at(Size(0, 0), 20.0, 1.1), *at(Size(0, 1), 120.0, 0.0)), first=Size(0, 0),
    )  # fmt: skip
    assert (freed(Evidence(observed, POLICY)) is not None) is tried
