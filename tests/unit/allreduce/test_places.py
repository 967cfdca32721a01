"""Members that come to different places of a script: each sum is of those who are in the same one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deeprec_ext.allreduce import summing
from deeprec_ext.allreduce.meeting import Listener
from deeprec_ext.allreduce.summing import OtherError, Summing
from tests.unit.allreduce.members import DEADLINE, Coordinator, GoneError, Told, call

SIZES = {"first": 300, "second": 7}


class Member:
    """Goes round in a loop over places, in each of which it trains a model of its own. What it gives says where it is."""

    def __init__(self, coordinator: Coordinator, name: str, loop: Sequence[str], begins: bool = False) -> None:
        self.name, self.told, self.listener = name, Told(coordinator, name), Listener()
        self.loop = loop
        self.models = {place: np.zeros(size) for place, size in SIZES.items()}
        self.summing = Summing(self.listener, self.told, self, may_begin=begins)
        self.sums: list[tuple[int, str, float, bool]] = []
        self.states: dict[int, bytes] = {}
        self.may, self.goes, self.rests = threading.Event(), threading.Event(), threading.Event()
        self.may.set()
        self.goes_after: int | None = None  # this step
        self.error: BaseException | None = None
        self.thread = call(self.run)

    def take(self) -> list[Any]:
        return [self.models[place] for place in SIZES]

    def put(self, arrays: Sequence[Any]) -> None:
        self.models = dict(zip(SIZES, arrays))

    def run(self) -> None:
        try:
            while True:
                for place in self.loop:
                    self.may.wait(DEADLINE)
                    self.step(place)
        except GoneError:
            pass
        except BaseException as error:  # the test says which
            self.error = error
        finally:
            self.summing.close()
            self.listener.close()

    def rest(self) -> None:
        """Before its next step, until it `may` go on."""
        self.goes.set()
        assert self.rests.wait(DEADLINE)

    def step(self, place: str) -> None:
        if self.goes.is_set() or self.summing.step == self.goes_after:
            self.goes.clear()
            self.goes_after = None
            self.may.clear()
            self.summing.rest()
            self.rests.set()
            self.may.wait(DEADLINE)
        self.summing.place = place
        size, number = SIZES[place], list(SIZES).index(place) + 1
        found = self.summing.sum([np.full(size - 1, float(number)), np.ones(1)], 2.0, exact=1)
        self.models[place] = self.models[place] + np.concatenate(found.arrays)
        self.sums.append((found.step, place, float(found.arrays[0][0]), found.counted))
        self.states[found.step] = b"".join(one.tobytes() for one in self.take())


@pytest.fixture
def job():
    coordinator = Coordinator()
    members: dict[str, Member] = {}

    def add(name: str, loop: Sequence[str], **how: Any) -> Member:
        members[name] = Member(coordinator, name, loop, **how)
        return members[name]

    def announce(names: str) -> None:
        coordinator.announce({name: members[name].listener.port for name in names})

    def until(what, seconds: float = 30.0) -> None:
        done = threading.Event()
        for _ in range(int(seconds / 0.01)):
            assert [one.error for one in members.values() if one.error] == []
            if what():
                return
            done.wait(0.01)
        raise AssertionError("not in time")

    add.announce, add.until, add.members = announce, until, members
    yield add
    coordinator.end()
    for one in members.values():
        one.may.set()
        one.thread.join(DEADLINE)
    assert not any(one.thread.is_alive() for one in members.values())


def alike(job) -> None:
    """Whoever made a step made the same one, and has the same after it."""
    steps: dict[int, set] = {}
    for one in job.members.values():
        for (step, place, mean, _), state in zip(one.sums, one.states.values()):
            assert mean == list(SIZES).index(place) + 1  # nothing of another place is in it
            steps.setdefault(step, set()).add((place, state))
    assert {step: found for step, found in steps.items() if len(found) > 1} == {}


@pytest.mark.parametrize("late", [("second", "first"), ("first", "first", "second"), ("second",)])
def test_a_newcomer_waits_until_the_others_come_to_where_it_is(job, late):
    one, two = (job(name, ("first", "first", "second"), begins=name == "a") for name in "ab")
    job.announce("ab")
    job.until(lambda: min(len(one.sums), len(two.sums)) > 10)
    new = job("c", late)
    job.announce("abc")
    counts = len(late) > 1  # who makes one of the steps alone has missed the others each time
    job.until(lambda: sum(counted or not counts for *_, counted in new.sums) > 10)
    before = len(one.sums)
    job.until(lambda: len(one.sums) > before + 20)
    alike(job)
    assert new.sums[0][1] == late[0] and not new.sums[0][3]


def test_who_was_away_goes_on_with_what_the_others_have(job):
    one, two = (job(name, ("first", "second"), begins=name == "a") for name in "ab")
    job.announce("ab")
    job.until(lambda: len(two.sums) > 10)
    two.may.clear()
    before = len(two.sums)
    job.announce("a")
    job.until(lambda: one.sums[-1][0] > two.sums[-1][0] + 5)
    job.announce("ab")
    two.may.set()
    job.until(lambda: len(two.sums) > before + 10)
    alike(job)


def test_two_that_get_out_of_step_find_each_other_again(job):
    """One of them makes a step more of the first model in the middle of its loop."""
    one = job("a", ("first", "second"), begins=True)
    two = job("b", ("first", "second", "first", "first", "second"))
    job.announce("ab")
    job.until(lambda: len(two.sums) > 40)
    alike(job)
    assert any(counted for *_, counted in two.sums[-10:]) and one.error is None


def test_who_waits_for_a_place_to_which_nobody_comes_is_told_so(job, monkeypatch):
    monkeypatch.setattr(summing, "ELSEWHERE_SECONDS", 0.5)
    one = job("a", ("first",), begins=True)
    job.announce("a")
    job.until(lambda: len(one.sums) > 3)
    new = Member(job.members["a"].told._from, "b", ("second",))
    coordinator = new.told._from
    coordinator.announce({"a": one.listener.port, "b": new.listener.port})
    new.thread.join(DEADLINE)
    assert isinstance(new.error, OtherError) and "have not come to second" in str(new.error)
    coordinator.announce({"a": one.listener.port})
    before = len(one.sums)
    job.until(lambda: len(one.sums) > before + 3)


@pytest.fixture
def parted(job):
    """Of two the second rests first, and the other, which has gone on alone, rests then: (who was first back, the other)."""
    behind, ahead = (job(name, ("first", "second"), begins=name == "b") for name in "ab")
    job.announce("ab")
    job.until(lambda: len(behind.sums) > 10)
    behind.rest()
    job.announce("b")
    job.until(lambda: ahead.sums[-1][0] > behind.sums[-1][0] + 5)
    ahead.rest()
    behind.may.set()
    job.announce("a")
    return behind, ahead


def test_who_comes_back_first_waits_for_one_who_may_have_gone_on(job, parted):
    """And does not begin a branch, in which as many steps would be lost."""
    behind, ahead = parted
    before, newest = len(behind.sums), ahead.sums[-1][0]
    job.until(lambda: behind.summing._waits_until)
    ahead.may.set()
    job.announce("ab")
    job.until(lambda: len(behind.sums) > before + 10)
    first, *others = [step for step, *_ in behind.sums[before:]][:10]
    assert first in (newest + 1, newest + 2), "it has waited until the other came to its place"
    assert others == list(range(first + 1, first + 10))
    alike(job)


def test_who_has_gone_on_alone_waits_for_nobody(job, parted):
    behind, ahead = parted
    before = len(ahead.sums)
    ahead.may.set()
    job.announce("b")
    job.until(lambda: len(ahead.sums) > before + 10)
    assert not ahead.summing._waits_until
    job.announce("ab")
    job.until(lambda: behind.sums[-1][0] > ahead.sums[before][0])
    alike(job)


def test_a_newcomer_waits_with_who_was_there_before_and_not_for_long(job, parted):
    """The other is gone for good."""
    behind, _ = parted
    job.until(lambda: behind.summing._waits_until)
    new = job("c", ("first", "second"))
    behind.summing._waits_until += 0.5 - summing.ABSENT_SECONDS
    job.announce("ac")
    before = behind.sums[-1][0]
    job.until(lambda: len(new.sums) > 10)
    assert new.sums[0][0] in (before + 1, before + 2)
    job.announce("ca")
    job.until(lambda: len(new.sums) > 30)
    assert behind.summing._left == frozenset(), "it has waited once"


def test_two_who_rest_from_the_same_step_do_not_wait_once_both_are_back(job):
    one, two = (job(name, ("first", "second"), begins=name == "a") for name in "ab")
    before = one.goes_after = two.goes_after = 50
    job.announce("ab")
    job.until(lambda: one.rests.is_set() and two.rests.is_set())
    one.may.set(), two.may.set()
    job.announce("ab")
    job.until(lambda: min(one.sums[-1][0], two.sums[-1][0]) > before + 10)
    assert not (one.summing._waits_until or two.summing._waits_until)
    alike(job)


def begun_anew(job, begun: int, step: int):
    """Both of two rest, the first dies meanwhile, and its successor begins by itself: (the other, the successor)."""
    dead, other = (job(name, ("first", "second"), begins=name == "a") for name in "ab")
    other.goes_after = dead.goes_after = 20
    job.announce("ab")
    job.until(lambda: dead.rests.is_set() and other.rests.is_set())
    dead.told.dead = True
    dead.may.set()
    dead.thread.join(DEADLINE)
    new = job("a", ("first", "second"), begins=True)
    new.models = {place: np.full(size, 100.0) for place, size in SIZES.items()}
    new.summing.goes_on_from(begun, step)
    new.goes_after = step + 7
    job.announce("a")
    job.until(new.rests.is_set)
    assert [one[0] for one in new.sums] == list(range(step + 1, step + 8)) and all(one[3] for one in new.sums)
    new.may.set()
    other.may.set()
    job.announce("ab")
    return other, new


@pytest.mark.parametrize("step", [0, 12], ids=["from nothing", "from what was kept"])
def test_who_comes_back_with_more_steps_than_one_that_began_meanwhile_has_the_model(job, step):
    other, new = begun_anew(job, 0, step)
    job.until(lambda: min(other.sums[-1][0], new.sums[-1][0]) > 50)
    assert [one[0] for one in other.sums] == list(range(1, other.sums[-1][0] + 1)), "it has gone on with its own"
    assert not other.summing._waits_until, "who it misses has died: another has its name"
    for number in range(40, 50):
        assert other.states[number] == new.states[number]
    assert [one[0] for one in new.sums[:7]] == list(range(step + 1, step + 8)) and new.sums[7][0] >= 21


def test_who_has_gone_on_from_what_was_kept_beyond_all_who_rest_has_the_model(job):
    other, new = begun_anew(job, 0, 18)
    job.until(lambda: min(other.sums[-1][0], new.sums[-1][0]) > 50)
    assert [one[0] for one in new.sums] == list(range(19, new.sums[-1][0] + 1))
    assert other.sums[20][0] >= 26 and not other.sums[20][3]


def test_of_a_later_beginning_the_fewest_steps_are_more(job):
    other, new = begun_anew(job, 5, 0)  # the generation in which those of a `fit` after this loop began
    job.until(lambda: min(other.sums[-1][0], new.sums[-1][0]) > 30)
    assert [one[0] for one in new.sums] == list(range(1, new.sums[-1][0] + 1))
    assert other.sums[20][0] in (8, 9)


def test_what_a_member_goes_on_from_is_no_older_than_what_it_had(job):
    """Of the generation in which a `fit` began, say, which a callback has stopped."""
    there = job("a", ("first",), begins=True)
    there.goes_after = 3
    job.announce("")
    job.announce("a")
    job.until(there.rests.is_set)
    begun = there.summing.begun
    assert begun == 1
    there.summing.forget()
    for kept, counts in (((0, 0), (begun, 0)), ((0, 12), (begun, 0)), ((begun, 12), (begun, 12)), ((5, 0), (5, 0))):
        there.summing.goes_on_from(*kept)
        assert there.summing._begins == counts
    there.summing.goes_on_from(0, 0)
    there.goes_after = 0
    there.may.set()
    job.announce("a")
    job.until(lambda: len(there.sums) > 5)
    assert there.sums[3][0] == 1 and there.summing.begun == begun


class Fits(Member):
    """Says no word before each sum: it has no place, as in `fit`."""

    def step(self, place: str) -> None:
        self.summing.place = ""
        found = self.summing.sum([np.full(999, 1.0), np.ones(1)], 2.0, exact=1, other=True)
        assert all((one == 1).all() for one in found.arrays) and found.weight in (2.0, 4.0)
        self.sums.append((found.step, place, 1.0, found.counted))


def test_who_is_in_a_loop_while_the_others_have_gone_on_to_a_fit_ends_and_they_do_not(job: Any) -> None:
    looper = job("looper", ("first",), begins=True)  # to be in no ring yet
    coordinator = looper.told._from
    there = [Fits(coordinator, "a", ("first",), begins=True), Fits(coordinator, "b", ("first",))]
    ports = {one.name: one.listener.port for one in there}
    coordinator.announce(ports)
    until(lambda: all(len(one.sums) > 3 for one in there))
    coordinator.announce({**ports, "looper": looper.listener.port})
    until(lambda: looper.error is not None)
    assert isinstance(looper.error, OtherError)
    coordinator.announce(ports)
    steps = [len(one.sums) for one in there]
    until(lambda: all(len(one.sums) > before + 3 for one, before in zip(there, steps)))
    assert not any(one.error for one in there)
    coordinator.end()
    for one in there:
        one.summing.give_up()
        one.thread.join(DEADLINE)


def test_a_model_that_comes_later_takes_nothing_from_what_it_shares_with_another() -> None:
    tf = pytest.importorskip("tensorflow")
    from deeprec_ext.allreduce.states import Variables
    from deeprec_ext.keras.in_step.loops import Models

    def course(name: str, *variables: Any) -> Any:
        return SimpleNamespace(model=SimpleNamespace(name=name), variables=Variables(variables))

    there, new = Models(), Models()
    critic, generator = tf.Variable(1.0), tf.Variable(10.0)
    there.add(course("critic", critic))
    there.add(course("gan", generator, critic))
    mine, made = tf.Variable(0.0), tf.Variable(0.0)
    new.add(course("critic", mine))
    new.put(there.take())
    mine.assign(2.0)  # a step of all
    new.add(course("gan", made, mine))
    assert (mine.numpy(), made.numpy()) == (2.0, 10.0)


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)
