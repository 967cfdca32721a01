"""What members agree on beside their sums: votes, whose state counts, and who comes into a ring without summing."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from deeprec_ext.allreduce.meeting import Listener
from deeprec_ext.allreduce.summing import Summing
from tests.unit.allreduce.members import DEADLINE, Coordinator, GoneError, Told, all_of


class One:
    def __init__(self, coordinator: Coordinator, name: str) -> None:
        self.name, self.told, self.listener = name, Told(coordinator, name), Listener()
        self.state = np.array([float(ord(name))])
        self.summing = Summing(self.listener, self.told, self)

    def take(self):
        return [self.state]

    def put(self, arrays):
        (self.state,) = arrays

    def sum(self, value: float, weight: float = 1.0, **how):
        return self.summing.sum([np.array([value])], weight, **how)

    def attend(self):
        return self.summing.attend([np.zeros(1)])


@pytest.fixture
def job():
    coordinator = Coordinator()
    members = {name: One(coordinator, name) for name in "abc"}

    def announce(names: str) -> None:
        coordinator.announce({name: members[name].listener.port for name in names})

    yield members, announce
    coordinator.end()
    for one in members.values():
        one.summing.close()
        one.listener.close()


def test_votes_count_whatever_the_weight_and_all_hear_the_same(job):
    members, announce = job
    announce("abc")
    for votes in ((True, True, True), (True, False, True), (False, False, False)):
        found = all_of(
            [lambda one=one, vote=vote: one.sum(1.0, 0.0, vote=vote) for one, vote in zip(members.values(), votes)]
        )
        assert {one.unanimous for one in found} == {all(votes)}


def test_all_have_the_state_of_who_leads_before_they_hear_of_the_sum(job):
    members, announce = job
    announce("abc")
    all_of([lambda one=one: one.sum(1.0) for one in members.values()])
    members["b"].state = np.array([7.0])
    members["c"].state = np.array([8.0])
    found = all_of([lambda one=one: one.sum(3.0, leads=one.name == "b") for one in members.values()])
    assert [float(one.state[0]) for one in members.values()] == [7.0, 7.0, 7.0]
    assert [float(one.arrays[0][0]) for one in found] == [3.0, 3.0, 3.0] and all(one.counted for one in found)


def test_who_waits_for_something_else_lets_a_newcomer_in_and_is_no_part_of_its_sum(job):
    """The newcomer has the state before anybody sums again."""
    members, announce = job
    announce("ab")
    all_of([lambda one=one: one.sum(1.0) for one in (members["a"], members["b"])])
    members["a"].state = members["b"].state = np.array([5.0])
    announce("abc")
    assert all_of([one.attend for one in members.values()]) == [None] * 3
    assert float(members["c"].state[0]) == 5.0 and members["c"].summing.step == 1
    found = all_of([lambda one=one: one.sum(1.0) for one in members.values()])
    assert [one.weight for one in found] == [3.0] * 3


def test_who_attends_hands_on_the_result_that_another_has_missed(job):
    """One had its sum, the other was cut off before: it gets it while the first waits for something else."""
    members, announce = job
    announce("ab")
    a, b = members["a"], members["b"]
    all_of([lambda one=one: one.sum(1.0) for one in (a, b)])
    before = replace(b.summing._last, flat=b.summing._last.flat.copy())
    result = all_of([lambda one=one: one.sum(float(ord(one.name)), vote=True) for one in (a, b)])[0]
    b.summing._last = before
    announce("ab")
    got = all_of([a.attend, lambda: b.sum(98.0, vote=True)])
    assert got[0] is None
    assert np.array_equal(got[1].arrays[0], result.arrays[0]) and got[1].unanimous and got[1].step == 2


def test_who_comes_into_another_ring_may_give_up_its_sum_and_the_others_come_into_the_next(job):
    members, announce = job
    announce("ab")
    a, b = members["a"], members["b"]
    all_of([lambda one=one: one.sum(1.0) for one in (a, b)])

    class OverError(Exception):
        pass

    def over() -> None:
        raise OverError

    waits = threading.Event()

    def summing() -> str:
        waits.set()
        try:
            b.sum(1.0, entered=over)
        except OverError:
            return "over"
        return "summed"

    def attending():
        waits.wait(DEADLINE)
        announce("ab")
        a.attend()

    assert all_of([summing, attending]) == ["over", None]
    announce("ab")
    assert [one.weight for one in all_of([lambda one=one: one.sum(1.0) for one in (a, b)])] == [2.0, 2.0]


def test_other_arrays_are_summed_after_a_new_beginning(job):
    members, announce = job
    announce("ab")
    a, b = members["a"], members["b"]
    all_of([lambda one=one: one.sum(1.0) for one in (a, b)])
    for one in (a, b):
        one.summing.anew()
    found = all_of([lambda one=one: one.summing.sum([np.ones(9)], 1.0) for one in (a, b)])
    assert [one.step for one in found] == [2, 2] and all(one.arrays[0].size == 9 for one in found)


def test_a_member_that_is_gone_says_so(job):
    members, announce = job
    announce("a")
    members["a"].sum(1.0)
    members["a"].told.dead = True
    with pytest.raises(GoneError):
        members["a"].sum(1.0)


def test_who_may_not_begin_waits_for_who_may(job):
    members, announce = job
    members["a"].summing._may_begin = False
    announce("a")

    def second():
        while not members["a"].told._from.troubles:
            pass
        announce("ab")
        return members["b"].sum(1.0)

    found = all_of([lambda: members["a"].sum(1.0), second])
    assert [one.step for one in found] == [1, 1] and float(members["a"].state[0]) == float(ord("b"))


def test_who_has_forgotten_gets_the_state_of_the_others(job):
    members, announce = job
    announce("ab")
    a, b = members["a"], members["b"]
    all_of([lambda one=one: one.sum(1.0) for one in (a, b)])
    b.summing.forget()
    b.state = np.array([99.0])
    announce("ab")
    found = all_of([lambda one=one: one.sum(1.0) for one in (a, b)])
    assert [one.counted for one in found] == [True, False] and float(b.state[0]) == float(a.state[0])


def test_what_follows_a_sum_that_is_in_no_state_does_not_count_either(job):
    """It is told with the next sum alone, and what comes again is given in order: the batch of that one comes behind it."""
    members, announce = job
    announce("abc")
    a, b, c = members.values()
    all_of([lambda one=one: one.sum(1.0) for one in (a, b, c)])
    all_of([lambda one=one: one.sum(1.0) for one in (a, b, c)])
    announce("ab")
    all_of([lambda one=one: one.sum(2.0) for one in (a, b)])
    last = c.summing._last
    c.summing._last = replace(
        last, step=3, number=last.number, before=last.number, flat=last.flat + 1
    )  # c alone had it
    announce("abc")
    assert all_of([one.attend for one in (a, b, c)]) == [None] * 3
    found = all_of([lambda one=one: one.sum(1.0) for one in (a, b, c)])
    assert [(one.followed, one.counted) for one in found] == [(True, True), (True, True), (False, False)]
    found = all_of([lambda one=one: one.sum(1.0) for one in (a, b, c)])
    assert all(one.followed and one.counted for one in found)


def test_a_number_alone_stays_one_of_its_type(job):
    members, announce = job
    announce("a")
    (mean,) = members["a"].summing.sum([np.array(3.0, np.float32)], 2.0).arrays
    assert (mean.shape, mean.dtype, float(mean)) == ((), np.float32, 3.0)


def test_who_looks_has_the_state_whatever_the_others_sum_and_takes_no_part(job):
    members, announce = job
    a, b, c = members.values()
    c.summing = Summing(c.listener, c.told, c, may_begin=False)
    announce("ab")
    all_of([lambda one=one: one.sum(1.0) for one in (a, b)])
    a.state = b.state = np.array([5.0])
    announce("abc")

    def looks() -> bool:
        found = c.summing.look()
        announce("ab")
        return found

    found = all_of(
        [
            looks,
            lambda: a.summing.sum([np.ones(7)], 1.0, other=True),
            lambda: b.summing.sum([np.ones(7)], 1.0, other=True),
        ]
    )
    assert found[0] and float(c.state[0]) == 5.0 and c.summing.step == -1
    assert [one.members for one in found[1:]] == [2, 2]


def test_who_looks_where_nobody_has_a_state_is_told_so(job):
    members, announce = job
    a, b, c = members.values()
    for one in (b, c):
        one.summing = Summing(one.listener, one.told, one, may_begin=False)
    announce("c")
    assert not c.summing.look() and float(c.state[0]) == float(ord("c"))
    announce("bc")

    found = all_of([c.summing.look, b.summing.look])
    assert found == [False, False]
    announce("ac")

    def waits() -> bool:
        found = c.summing.look()  # of who may begin, and does
        announce("a")
        return found

    found = all_of([waits, lambda: a.sum(3.0)])
    assert found[0] and float(c.state[0]) == float(ord("a")) and found[1].members == 1
