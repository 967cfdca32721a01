"""Whatever is observed: never outside of the limits, never flapping, the same each time, and never an exception."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deeprec_ext.autoscaler.observe.observed import (
    Change,
    Host,
    Limits,
    Loss,
    Model,
    Observed,
    Progress,
    RoleUse,
    Size,
    SlotUse,
    Window,
)
from deeprec_ext.autoscaler.observe.sane import sane_size
from deeprec_ext.autoscaler.policy.decide import decide
from deeprec_ext.autoscaler.policy.decision import ACTIONS, Decision
from deeprec_ext.autoscaler.policy.limits import contradiction, fits
from tests.unit.autoscaler.policy.jobs import LIMITS, POLICY, Job, saturating

ODD = [0.0, -1.0, 1e-300, 1e300, math.nan, math.inf, -math.inf]
numbers = st.one_of(st.floats(0, 1e6), st.floats(0, 1), st.sampled_from(ODD), st.floats())
counts = st.one_of(st.integers(0, 20), st.integers(-3, 10**6), st.just(10**30))
amounts = st.one_of(st.sampled_from([0, 1 << 28, 1 << 30, 1 << 33]), st.integers(-5, 1 << 50))
names = st.sampled_from(
    ["ps-0", "ps-1", "ps-2", "chief-0", "worker-0", "worker-1", "worker-2", "evaluator-0", "", "ps"]
)
sizes = st.builds(Size, st.integers(1, 8), st.integers(0, 12), st.sampled_from([0.0, 0.5, 2.0]),
                  st.sampled_from([0.0, 1.0, 3.0]), st.sampled_from([0, 1 << 30]), st.sampled_from([0, 1 << 30]))  # fmt: skip
odd_sizes = st.one_of(sizes, sizes, st.builds(Size, counts, counts, numbers, numbers, amounts, amounts))
times = st.one_of(st.floats(0, 5000), numbers)


def _observed(wild: bool) -> st.SearchStrategy[Observed]:
    number = numbers if wild else st.floats(0, 1e5)
    time = times if wild else st.floats(0, 5000)
    size = odd_sizes if wild else sizes
    limits = st.builds(
        Limits, st.integers(0, 4), st.integers(1, 9), st.integers(0, 4), st.integers(0, 14), st.sampled_from([0.0, 4.0]),
        st.sampled_from([0.0, 4.0]), st.sampled_from([0, 1 << 31]), st.sampled_from([0, 1 << 31]),
        st.sampled_from([0.0, 3.0, 20.0]), st.sampled_from([0, 1 << 33]), st.booleans(),
    )  # fmt: skip
    if wild:
        odd = st.builds(Limits, counts, counts, counts, counts, numbers, numbers, amounts, amounts, numbers, amounts)
        limits = st.one_of(limits, limits, odd)
    role = st.builds(
        RoleUse, names, number, number, amounts, amounts, number, number, number, number, number, number, number, number,
        number, amounts,
    )  # fmt: skip
    change = st.builds(
        Change, time, st.sampled_from(["scale-up", "scale-down", "rebalance", "replace", "resize", "?"]),
        st.sampled_from(["ps", "worker", ""]), st.integers(0, 9), st.integers(0, 9),
        st.sampled_from(["committed", "rolled_back", "refused", ""]), number, number, amounts, st.booleans(),
        st.integers(-1, 9),
    )  # fmt: skip
    causes = st.sampled_from(["oom", "oom: cgroup", "killed", "hung", "preempted", ""])
    window = st.builds(
        Window,
        time,
        number,
        size,
        number,
        number,
        number,
        number,
        number,
        number,
        number,
        st.booleans(),
        number,
        number,
    )
    host = st.builds(
        Host, st.sampled_from(["host-0", "host-1", ""]), number, number, number, st.integers(0, 9), st.integers(0, 9)
    )
    slot = st.builds(SlotUse, st.integers(0, 12) if not wild else counts, names, amounts, number)
    return st.builds(
        Observed, st.integers(1, 99) if not wild else st.integers(-1, 99), time, size, limits,
        st.sampled_from(["fastest", "cheapest", "deadline"] + ["?"] * wild), number,
        st.builds(Model, amounts, amounts, st.integers(0, 9), number, number, number, amounts),
        st.lists(window, max_size=8).map(tuple), st.lists(role, max_size=8).map(tuple),
        st.lists(host, max_size=3).map(tuple), st.booleans(), st.lists(slot, max_size=8).map(tuple),
        st.lists(change, max_size=6).map(tuple), st.lists(st.builds(Loss, time, names, causes, amounts), max_size=3).map(tuple),
        st.builds(Progress, amounts, amounts), st.booleans(), amounts, st.sampled_from([False, False, False, True]),
        st.sampled_from([False, False, False, True]), st.lists(names, max_size=2).map(tuple), st.just(""),
    )  # fmt: skip


LOOSE = settings(deadline=None, max_examples=250, suppress_health_check=list(HealthCheck), derandomize=True)


def check(observed: Observed) -> Decision:
    decision = decide(observed, POLICY)
    assert decision.action in ACTIONS
    assert decision.reason and "\n" not in decision.reason
    if decision.action == "keep":
        assert decision.size is observed.size
    else:
        assert sane_size(observed.size) and not contradiction(observed.size, observed.limits)
        if decision.action not in ("replace", "rebalance"):
            assert fits(decision.size, observed.limits)
        else:
            assert decision.size == observed.size
        if not observed.limits.resizable:
            requests = ("ps_cpu", "worker_cpu", "ps_memory_bytes", "worker_memory_bytes")
            assert all(getattr(decision.size, name) == getattr(observed.size, name) for name in requests)
    assert not (observed.hold or observed.busy) or decision.action in ("keep", "start")
    return decision


@LOOSE
@given(_observed(wild=False))
def test_a_decision_is_always_within_the_limits(observed):
    check(observed)


@LOOSE
@given(_observed(wild=True))
def test_no_observation_however_odd_raises(observed):
    check(observed)


@settings(parent=LOOSE, max_examples=100)
@given(_observed(wild=True), st.randoms(use_true_random=False))
def test_the_same_observation_gives_the_same_decision_in_whatever_order_it_is_told(observed, chance):
    first = decide(observed, POLICY)
    again = Observed.from_json(observed.to_json())
    assert decide(again, POLICY).to_json() == first.to_json()
    if len({role.name for role in observed.roles}) == len(observed.roles):
        shuffled = dataclasses.replace(observed, roles=tuple(chance.sample(observed.roles, len(observed.roles))))
        assert decide(shuffled, POLICY).to_json() == first.to_json()


# ------------------------------------------------------------------------------------------------ over time

OFTEN = 10.0
SELDOM = 40.0
"""Seconds between looks: a look costs about 20 ms, and most are alike."""


def seeds(count: int) -> list[Any]:
    """All but the first two are for long runs of the tests; the first is looked at often."""
    return [pytest.param(one, marks=pytest.mark.long) if one > 1 else one for one in range(count)]


@pytest.mark.parametrize("seed", seeds(8))
@pytest.mark.parametrize("objective", ["fastest", "cheapest"])
def test_a_steady_job_converges_and_is_left_alone(seed, objective):
    """Four hours, with windows that scatter by 5 %: a few decisions in the beginning, at most one an hour then."""
    chance = random.Random(seed)
    truth = saturating(chance.uniform(1e3, 1e5), chance.uniform(0.5, 12), chance.uniform(300, 1e5))
    job = Job(Size(chance.randint(1, 4), chance.randint(0, 8)), lambda size, now: truth(size, now) * chance.gauss(1, 0.05),
              objective=objective, look=SELDOM if seed else OFTEN)  # fmt: skip
    job.run(3600)
    job.look = SELDOM
    assert len(job.decisions) <= 16
    early = len(job.decisions)
    job.run(3 * 3600)
    assert len(job.decisions) - early <= 3
    assert fits(job.size, LIMITS)


@pytest.mark.parametrize("seed", seeds(12))
def test_whatever_throughput_answers_a_role_changes_its_direction_twice_an_hour_at_most(seed):
    """An adversary: each size is fast or slow at will, and differently every time."""
    chance = random.Random(seed)
    mood: dict[tuple, float] = {}

    def rate(size: Size, now: float) -> float:
        key = (size, int(now // chance.choice([200, 900])))
        return mood.setdefault(key, 10 ** chance.uniform(1, 4)) * chance.gauss(1, 0.01)

    job = Job(Size(2, 4), rate, objective=chance.choice(["fastest", "cheapest"]), look=SELDOM if seed % 2 else OFTEN)
    for hour in range(1, 4):
        before = job.flips()
        job.run(3600)
        assert job.flips() - before <= 2 * 2 * (POLICY.reversals_per_hour + 1), f"hour {hour}"
    assert len(job.decisions) <= 3 * (POLICY.changes_per_hour + 1)


def test_a_cluster_that_refuses_everything_is_not_asked_all_the_time():
    job = Job(Size(1, 1), saturating(1e4, 8), outcome=lambda number: "rolled_back")
    job.run(3600)
    assert len(job.decisions) <= 14  # waits double: 60 s, 120 s, ... for workers, and for PS
    assert job.size == Size(1, 1)


def test_a_clock_that_jumps_makes_nothing_wild():
    chance = random.Random(1)
    job = Job(Size(1, 2), saturating(1e4, 4))
    for _ in range(30):
        job.run(300)
        job.now = max(0.0, job.now + chance.choice([-5000, 0, 0, 4000]))
    assert fits(job.size, LIMITS)
    assert len(job.decisions) <= 60


def test_all_noise_is_never_followed():
    chance = random.Random(3)
    job = Job(Size(2, 4), lambda size, now: 10 ** chance.uniform(0, 5))
    job.run(2 * 3600)
    assert len(job.decisions) <= 4
