"""Gradients that come in buckets: summed while the rest is computed, whole or not at all."""

from __future__ import annotations

import contextlib
import random
import threading
from typing import Any

import numpy as np
import pytest

from deeprec_ext.allreduce import given as givens
from deeprec_ext.allreduce.ahead import Ahead
from deeprec_ext.allreduce.given import Given, cut
from deeprec_ext.allreduce.meeting import Listener
from deeprec_ext.allreduce.ring import Ring
from deeprec_ext.allreduce.summing import OtherError, Summing
from tests.unit.allreduce.members import DEADLINE, Coordinator, GoneError, Told, all_of, call
from tests.unit.allreduce.test_summing import until

SIZES, STARTS = (3, 50, 70, 400), (0, 2, 3)


def zeros(*megabytes: float) -> list[Any]:
    return [np.zeros(int(one * (1 << 20) / 4), np.float32) for one in megabytes]


@pytest.mark.parametrize(
    ("megabytes", "exact", "starts"),
    [
        ((1, 1, 1), 0, (0,)), ((40,), 0, (0,)), ((1, 5), 0, (0, 1)), ((5, 1), 0, (0,)), ((40, 0.1, 40, 0.1), 0, (0, 2)),
        ((10, 10, 10, 0.1), 0, (0, 1, 2)), ((5, 5, 5, 5, 0.5, 0.5), 2, (0, 1, 2, 3)), ((0.1, 9), 1, (0,)),
    ],
)  # fmt: skip
def test_buckets_are_of_some_megabytes_and_what_is_small_is_one(megabytes, exact, starts):
    assert cut(zeros(*megabytes), exact) == starts


def test_there_are_never_more_than_a_few_buckets():
    for count in (1, 7, 8, 100, 1000):
        starts = cut(zeros(*[1000 / count] * count))
        assert len(starts) <= givens.BUCKETS_MAX and starts[0] == 0 and list(starts) == sorted(set(starts))


class One:
    def __init__(self, coordinator: Coordinator, name: str) -> None:
        self.name, self.told, self.listener = name, Told(coordinator, name), Listener()
        self.state = np.zeros(1)
        self.summing = Summing(self.listener, self.told, self)
        self.ahead = Ahead()

    def take(self) -> list[Any]:
        return [self.state]

    def put(self, arrays: Any) -> None:
        (self.state,) = arrays

    def gradients(self) -> list[Any]:
        random = np.random.RandomState(ord(self.name))
        return [random.standard_normal(size).astype(np.float32) for size in SIZES]

    def begin(self, weight: float = 1.0, **how: Any) -> Given:
        given = Given([np.zeros(size, np.float32) for size in SIZES], STARTS)
        self.ahead.begin(lambda: self.summing.sum(given, weight, **how))
        return given

    def bring(self, given: Given, *buckets: int) -> None:
        ends = (*STARTS[1:], len(SIZES))
        for bucket in buckets:
            given.put(bucket, self.gradients()[STARTS[bucket] : ends[bucket]])

    def sum(self, weight: float = 1.0, order: tuple[int, ...] = (2, 1, 0), **how: Any) -> Any:
        self.bring(self.begin(weight, **how), *order)
        return self.ahead.result(DEADLINE)


@pytest.fixture
def job():
    coordinator = Coordinator()
    members = {name: One(coordinator, name) for name in "abc"}

    def announce(names: str) -> None:
        coordinator.announce({name: members[name].listener.port for name in names})

    yield members, announce
    coordinator.end()
    for one in members.values():
        one.summing.give_up()
        one.ahead.close()
        one.summing.close()
        one.listener.close()


def begun(members: Any, announce: Any, names: str = "abc") -> list[Any]:
    """All of these have the same state: what they give from now on counts."""
    announce(names)
    all_of([members[name].sum for name in names])
    return [members[name] for name in names]


def mean(members: Any, weights: Any) -> list[Any]:
    given = [one.gradients() for one in members]
    return [np.average(arrays, 0, weights) for arrays in zip(*given)]


def same(found: Any, expected: Any) -> None:
    for one in found:
        for array, first, right in zip(one.arrays, found[0].arrays, expected):
            np.testing.assert_array_equal(array, first)
            np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-6)


def test_buckets_that_become_ready_in_another_order_on_each_member_are_not_mixed_up(job):
    there = begun(*job)
    for seed in range(5):
        chance = random.Random(seed)
        works = []
        for weight, one in enumerate(there, 1):
            order = tuple(chance.sample(range(3), 3))
            works.append(lambda one=one, weight=weight, order=order: one.sum(weight, order))
        found = all_of(works)
        same(found, mean(there, (1, 2, 3)))
        assert [(one.weight, one.counted, one.step) for one in found] == [(6.0, True, seed + 2)] * 3


def test_a_bucket_is_summed_while_the_rest_is_computed(job, monkeypatch):
    there, done = begun(*job), []
    ring_sum = Ring.sum

    def watched(self: Any, buffer: Any, **words: Any) -> None:
        ring_sum(self, buffer, **words)
        done.append(buffer.size)

    monkeypatch.setattr(Ring, "sum", watched)
    given = [one.begin() for one in there]
    until(lambda: done.count(4 + 3) == 3)  # the weights are summed before anything is computed
    for one, of in zip(there, given):
        one.bring(of, 2)
    until(lambda: done.count(400) == 3)
    assert 53 not in done and 70 not in done
    for one, of in zip(there, given):
        one.bring(of, 0, 1)
    found = [one.ahead.result(DEADLINE) for one in there]
    assert [one for one in done if one > 4 + 3] == [400] * 3 + [one for one in done if one in (53, 70)]
    same(found, mean(there, (1, 1, 1)))


def test_who_has_nothing_sums_with_those_who_give_buckets(job):
    a, b, c = begun(*job)
    nothing = Given.whole([np.zeros(size, np.float32) for size in SIZES], STARTS)
    works = [a.sum, lambda: b.summing.sum(nothing, 0.0, vote=True), lambda: c.sum(3.0)]
    same(all_of(works), mean((a, c), (1, 3)))


def test_where_nobody_gives_nothing_is_waited_for(job):
    """All are new, or have no weight: the sum is over before a bucket is there."""
    there = begun(*job)
    for one in there:
        one.begin(0.0)
    for one in there:
        found = one.ahead.result(DEADLINE)
        assert found.weight == 0 and all(not array.any() for array in found.arrays)


def test_gradients_are_rounded_in_every_bucket_and_what_is_exact_is_not(job):
    members, announce = job
    for one in members.values():
        one.summing.half = True
    there = begun(members, announce)
    found = all_of([lambda one=one: one.sum(exact=1) for one in there])
    expected = mean(there, (1, 1, 1))
    for one in found:
        for at, (array, first, right) in enumerate(zip(one.arrays, found[0].arrays, expected)):
            np.testing.assert_array_equal(array, first)
            np.testing.assert_allclose(array, right, rtol=1e-6 if at == 3 else 2e-2, atol=1e-6 if at == 3 else 5e-3)
            assert at == 3 or not np.allclose(array, right, rtol=1e-6, atol=0)


def test_a_member_that_dies_between_two_buckets_is_in_none_of_them(job):
    """Its first bucket was summed: the others make the whole step again, without it."""
    members, announce = job
    a, b, c = begun(members, announce)
    given = [one.begin() for one in (a, b, c)]
    for one, of in zip((a, b, c), given):
        one.bring(of, 2)
    a.bring(given[0], 1)
    b.bring(given[1], 1)
    ring = c.summing._ring
    c.told.dead = True
    given[2].fail(RuntimeError("it is dead"))
    ring.give_up()
    announce("ab")
    for one, of in zip((a, b), given):
        one.bring(of, 0)
    found = [one.ahead.result(DEADLINE) for one in (a, b)]
    same(found, mean((a, b), (1, 1)))
    assert [(one.step, one.counted, one.members) for one in found] == [(2, True, 2)] * 2
    with pytest.raises(RuntimeError, match="it is dead"):
        c.ahead.result(DEADLINE)


def test_a_step_that_fails_within_its_sum_does_not_hold_up_the_others(job):
    members, announce = job
    a, b, c = begun(members, announce)
    given = c.begin()
    c.bring(given, 2)
    others = [call(one.sum) for one in (a, b)]
    given.fail(RuntimeError("no more memory"))
    c.summing.give_up()
    with pytest.raises(RuntimeError, match="no more memory"):
        c.ahead.result(DEADLINE)
    c.summing.forget()
    announce("ab")
    for one in others:
        one.join(DEADLINE)
        assert not one.is_alive()
    assert a.summing.step == b.summing.step == 2
    announce("abc")
    found = all_of([one.sum for one in (a, b, c)])
    assert [one.counted for one in found] == [True, True, False] and {one.step for one in found} == {3}


def test_who_has_missed_the_sum_gets_it_without_bringing_the_rest(job):
    """It was cut off when the others had it; what it has given is in it."""
    members, announce = job
    a, b = begun(members, announce, "ab")
    before = b.summing._last
    before = type(before)(
        before.flat.copy(), *[getattr(before, one) for one in ("step", "number", "before", "begun", "kind")]
    )
    expected = all_of([a.sum, b.sum])[0]
    b.summing._last = before
    announce("ab")
    b.begin()
    attending = call(lambda: a.summing.attend(Given.whole([np.zeros(size, np.float32) for size in SIZES], STARTS)))
    found = b.ahead.result(DEADLINE)
    attending.join(DEADLINE)
    assert found.step == 2
    for array, right in zip(found.arrays, expected.arrays):
        np.testing.assert_array_equal(array, right)


def test_members_that_cut_otherwise_are_not_alike(job):
    members, announce = job
    a, b = members["a"], members["b"]
    announce("ab")

    def sums() -> None:
        with contextlib.suppress(GoneError):
            a.summing.sum(a.gradients(), 1.0)

    whole = call(sums)
    with pytest.raises(OtherError, match="not alike"):
        b.sum()
    a.told._from.end()
    whole.join(DEADLINE)


def test_what_is_begun_is_ended_before_the_next_begins():
    ahead = Ahead()
    may = threading.Event()
    ahead.begin(lambda: may.wait(DEADLINE))
    with pytest.raises(RuntimeError, match="has not been ended"):
        ahead.begin(lambda: None)
    with pytest.raises(TimeoutError):
        ahead.result(0.01)
    may.set()
    assert ahead.result(DEADLINE) and not ahead.busy
    thread = ahead._thread
    for number in range(100):
        ahead.begin(lambda number=number: number)
        assert ahead.result(DEADLINE) == number
    assert ahead._thread is thread
    ahead.close()
    assert thread is not None and not thread.is_alive()
