"""Members that come to different places of a script: each sum is of those who are in the same one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
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
        self.may = threading.Event()
        self.may.set()
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

    def step(self, place: str) -> None:
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
