"""Sums that go on while members come, go, hang and die."""

from __future__ import annotations

import dataclasses
import random
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from deeprec_ext.allreduce import handing
from deeprec_ext.allreduce import ring as rings
from deeprec_ext.allreduce.given import Given
from deeprec_ext.allreduce.meeting import Listener
from deeprec_ext.allreduce.summing import OtherError, Summed, Summing
from deeprec_ext.errors import ProtocolError
from tests.unit.allreduce.members import DEADLINE, Coordinator, GoneError, Told, all_of, call

SIZE = 300


class Member:
    """Trains in a thread of its own; its state is what `take` and `put` say."""

    def __init__(
        self, coordinator: Coordinator, name: str, size: int = SIZE, alternates: bool = False, cuts: bool = False
    ) -> None:
        self.name, self.told, self.listener = name, Told(coordinator, name), Listener()
        self.weights, self.moments = np.random.RandomState(zlib.crc32(name.encode())).randn(2, size).astype(np.float32)
        self.applied = np.zeros((), np.int64)
        self.summing = Summing(self.listener, self.told, self)
        self.may = threading.Event()
        self.may.set()
        self.until: int | None = None  # after this step it waits for `may`
        self.waits = threading.Event()
        self.digests: dict[int, int] = {}
        self.sums: list[Summed] = []
        self.gave: dict[int, float] = {}
        self.received = 0
        self.error: BaseException | None = None
        self.may_fail, self.alternates, self.cuts = False, alternates, cuts
        self.thread = call(self.run)

    def take(self) -> Sequence[Any]:
        return [self.weights, self.moments, self.applied]

    def put(self, arrays: Sequence[Any]) -> None:
        self.weights, self.moments, self.applied = arrays
        self.received += 1
        self.digests.clear()  # what it had may be of a branch that the others have not followed

    def run(self) -> None:
        try:
            while True:
                self.step()
        except GoneError:
            pass
        except BaseException as error:  # the test says which
            self.error = error
        finally:
            self.summing.close()
            self.listener.close()

    def step(self) -> None:
        if self.summing.step == self.until:
            self.until = None
            self.may.clear()
        if not self.may.is_set():
            self.waits.set()
            self.may.wait(DEADLINE)
            self.waits.clear()
        weight = 1.0 + zlib.crc32(f"{self.name}{self.summing.step}".encode()) % 4
        gradient = np.sin(self.weights * weight), np.cos(self.moments).reshape(2, -1)
        if self.alternates and max(0, self.summing.step) % 2:  # something else, which leaves as much behind
            found = self.summing.sum([np.sin(self.weights[:7])], weight, other=True)
            self.weights = self.weights + 0.01 * found.arrays[0].sum()
            found = dataclasses.replace(found, arrays=[np.zeros_like(one) for one in gradient])
        elif self.cuts:
            given = Given([np.zeros_like(one) for one in gradient], (0, 1))
            call(lambda: [given.put(1, gradient[1:]), time.sleep(0.001 * (weight - 1)), given.put(0, gradient[:1])])
            found = self.summing.sum(given, weight)
        else:
            found = self.summing.sum(gradient, weight, other=self.alternates)
        self.moments = 0.9 * self.moments + found.arrays[0]
        self.weights = self.weights - 0.01 * (self.moments + found.arrays[1].reshape(-1))
        self.applied = self.applied + 1
        assert self.applied == found.step  # none is applied twice, none left out
        self.digests[found.step] = zlib.crc32(self.weights.tobytes() + self.moments.tobytes())
        if not found.followed:
            self.gave.pop(self.sums[-1].step, None)
        self.sums.append(found)
        if found.counted:
            self.gave[found.step] = weight

    def kill(self) -> None:
        """As the kernel closes the connections of a process that is gone."""
        self.told.dead = True
        ring = self.summing._ring
        if ring is not None:
            ring.give_up()
        self.listener.close()


class Job:
    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.members: dict[str, Member] = {}
        self.all: list[Member] = []

    def add(self, *names: str, **how: Any) -> None:
        """Args: how: of `Member`."""
        for name in names:
            self.members[name] = Member(self.coordinator, name, **how)
            self.all.append(self.members[name])

    def announce(self, without: Sequence[str] = ()) -> None:
        self.coordinator.announce({
            name: one.listener.port for name, one in self.members.items() if name not in without
        })  # fmt: skip

    def until_trained(self, steps: int = 3, without: Sequence[str] = ()) -> int:
        """All of these have made so many steps more; returns the last."""
        there = [one for name, one in self.members.items() if name not in without]
        goal = max(one.summing.step for one in there) + steps

        def reached() -> bool:
            assert not any(one.error for one in there), [one.error for one in there]
            return all(max(one.digests, default=-1) >= goal for one in there)

        until(reached)
        for step in set().union(*(one.digests for one in there)):  # the same step is the same state, to the bit
            found = {one.name: one.digests[step] for one in there if step in one.digests}
            assert len(set(found.values())) <= 1, (step, found)
        return goal

    def end(self) -> None:
        self.coordinator.end()
        for one in self.all:
            one.may.set()
            ring = one.summing._ring
            if ring is not None:
                ring.give_up()
        for one in self.all:
            one.thread.join(DEADLINE)
            assert not one.thread.is_alive() and (one.may_fail or one.error is None), one.error


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def job() -> Any:
    made = Job()
    yield made
    made.end()


def test_all_begin_with_the_state_of_the_first_and_stay_equal(job: Job) -> None:
    job.add("a", "b", "c")
    job.announce()
    job.until_trained(10)
    assert [one.received for one in job.all] == [0, 1, 1]
    first = {one.name: one.sums[0].counted for one in job.all}
    # Who has received a state has given what was computed with another one.
    assert first == {"a": True, "b": False, "c": False}


def test_the_mean_is_by_weight_and_whose_weight_is_nothing_gives_nothing() -> None:
    job = Job()
    told = [Told(job.coordinator, name) for name in "abc"]
    listeners = [Listener() for _ in told]

    class Nothing:
        def take(self) -> list[Any]:
            return []

        def put(self, arrays: Any) -> None:
            pass

    sums = [Summing(*pair, Nothing()) for pair in zip(listeners, told)]
    job.coordinator.announce({name: one.port for name, one in zip("abc", listeners)})
    zeros = [np.zeros(2, np.float32)]
    all_of([lambda one=one: one.sum(zeros, 1.0) for one in sums])
    given = [(np.float32([1, 2]), 1.0), (np.float32([4, 5]), 2.0), (np.float32([np.nan, np.inf]), 0.0)]
    found = all_of([lambda one=one, pair=pair: one.sum([pair[0]], pair[1]) for one, pair in zip(sums, given)])
    for one in found:
        np.testing.assert_array_equal(one.arrays[0], np.float32([3, 4]))
        assert (one.weight, one.step, one.counted) == (3.0, 2, True)
    for one in all_of([lambda one=one: one.sum([np.float32([np.nan, 1])], 0.0) for one in sums]):
        np.testing.assert_array_equal(one.arrays[0], np.float32([0, 0]))
    for one in (*sums, *listeners):
        one.close()


def test_gradients_alone_are_rounded(job: Job) -> None:
    told = [Told(job.coordinator, name) for name in "ab"]
    listeners = [Listener() for _ in told]
    state = type("Nothing", (), {"take": lambda self: [], "put": lambda self, arrays: None})
    sums = [Summing(*pair, state()) for pair in zip(listeners, told)]
    for one in sums:
        one.half = True
    job.coordinator.announce({name: one.port for name, one in zip("ab", listeners)})
    rate, gradients = np.float32([0.0010001]), np.float32([1 / 3, 1000.01])
    all_of([lambda one=one: one.sum([gradients, rate], 1.0, exact=1) for one in sums])
    for weights in ((2049.0, 2048.0), (0.0, 0.0)):
        pairs = zip(sums, weights)
        found = all_of(
            [lambda one=one, weight=weight: one.sum([gradients, rate], weight, exact=1) for one, weight in pairs]
        )
        for one in found:
            np.testing.assert_array_equal(one.arrays[0], found[0].arrays[0])
            assert one.weight == sum(weights)
            if one.weight:
                np.testing.assert_allclose(one.arrays[0], gradients, rtol=2.0**-10)
                np.testing.assert_allclose(one.arrays[1], rate, rtol=2.0**-23)
                assert not np.array_equal(one.arrays[0], gradients)
    for other in (*sums, *listeners):
        other.close()


def test_who_comes_has_what_the_others_have_and_who_goes_leaves_it(job: Job) -> None:
    job.add("a")
    job.announce()
    job.until_trained()
    job.add("b", "c")
    job.announce()
    job.until_trained()
    assert job.members["b"].sums[0].step > 3 and not job.members["b"].sums[0].counted
    gone = job.members.pop("a")
    job.announce()
    job.until_trained()
    steps = [one.step for one in job.members["b"].sums]
    assert steps == list(range(steps[0], steps[-1] + 1)) and job.members["b"].received == 1
    gone.kill()


def test_a_member_that_dies_costs_no_step(job: Job) -> None:
    job.add("a", "b", "c", "d")
    job.announce()
    job.until_trained()
    for name in ("b", "a"):
        job.coordinator.troubles.clear()
        job.members.pop(name).kill()
        until(lambda: len({who for who, _ in job.coordinator.troubles} & set(job.members)) == len(job.members))
        job.announce()
        job.until_trained()
    for one in job.members.values():
        steps = [found.step for found in list(one.sums)]
        assert one.received <= 1 and steps == list(range(1, len(steps) + 1))


def test_what_all_give_is_all_that_counts(job: Job) -> None:
    job.add("a", "b")
    job.announce()
    job.until_trained()
    job.add("c")
    job.announce()
    last = job.until_trained(20)
    for found in job.members["a"].sums:
        if found.step < last:
            assert found.weight == sum(one.gave.get(found.step, 0.0) for one in job.all), found.step


def stopped(*members: Member, step: int) -> None:
    """All wait after this step."""
    for one in members:
        one.until = step
    for one in members:
        assert one.waits.wait(DEADLINE)


def test_who_was_left_out_while_it_hung_takes_the_state_of_the_others(job: Job) -> None:
    job.add("a", "b", "c")
    job.announce()
    last = job.until_trained()
    stopped(job.members["b"], step=last + 50)
    job.announce(without=["b"])
    job.until_trained(10, without=["b"])
    job.members["b"].may.set()
    job.announce()
    job.until_trained()
    assert [one.received for one in job.all] == [0, 2, 1]
    assert all(one.followed for one in job.members["b"].sums), "what it had when it was left out all others had"


def test_a_result_that_only_one_had_when_it_was_left_out_is_not_followed(job: Job) -> None:
    """The others have summed that step again, without it."""
    job.add("a", "b", "c")
    job.announce()
    last = job.until_trained() + 50
    hung = job.members["b"]
    stopped(*job.all, step=last)
    found = hung.summing._last
    assert found is not None and found.step == last
    hung.summing._last = dataclasses.replace(
        found, flat=found.flat + 1, step=last + 1, before=found.number
    )  # it alone had it
    hung.applied = hung.applied + 1
    hung.digests[last + 1] = 0
    job.announce(without=["b"])
    others = [job.members["a"], job.members["c"]]
    for one in others:
        one.until = last + 1
        one.may.set()
    until(lambda: all(one.summing.step == last + 1 and one.waits.is_set() for one in others))
    job.announce()
    for one in job.all:
        one.may.set()
    job.until_trained()
    assert hung.received == 2 and [one.step for one in hung.sums if not one.followed] == [last + 2]


def test_two_beginnings_are_not_the_same(job: Job) -> None:
    """Both pairs have begun, none has summed a step: one state is everybody's all the same."""
    job.add("a", "b", "c", "d")
    ring = rings.Ring.sum
    may = threading.Event()

    def held(self: Any, buffer: Any, **words: Any) -> None:
        if not may.is_set():
            may.wait(DEADLINE)
            raise rings.LostError("its first sum is lost")
        ring(self, buffer, **words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rings.Ring, "sum", held)
        for pair in (("a", "c"), ("b", "d")):
            job.announce(without=[name for name in "abcd" if name not in pair])
            until(lambda pair=pair: all(job.members[name].summing.step == 0 for name in pair))
        job.announce()
        may.set()
        job.until_trained()
    assert [one.received for one in job.all] == [1, 0, 2, 1]  # the pair that began last has the state


def test_the_model_that_began_last_counts_however_many_steps_another_has(job: Job) -> None:
    """The chief has died and begun anew while a worker was stopped; that one comes back with the old model."""
    job.add("a", "b")
    job.announce()
    job.until_trained()
    stopped(job.members["b"], step=job.members["b"].summing.step + 30)
    job.members.pop("a").kill()
    job.add("c")
    again = job.members["c"]
    again.until = 3
    job.announce(without=["b"])
    assert again.waits.wait(DEADLINE) and again.summing.step == 3 < job.members["b"].summing.step
    received = job.members["b"].received
    job.announce()
    for one in job.members.values():
        one.may.set()
    until(lambda: again.summing.step > 10 and job.members["b"].received == received + 1)
    job.until_trained()
    assert again.received == 0
    assert [one.step for one in again.sums] == list(range(1, len(again.sums) + 1))


def test_who_comes_back_with_an_old_model_hears_that_its_last_step_is_in_no_model(job: Job) -> None:
    job.add("a", "b")
    job.announce()
    job.until_trained()
    old = job.members["b"]
    stopped(old, step=old.summing.step + 30)
    job.members.pop("a").kill()
    job.add("c")
    job.announce(without=["b"])
    job.until_trained(100, without=["b"])  # it has more steps by now
    sums = len(old.sums)
    old.may.set()
    job.announce()
    until(lambda: len(old.sums) > sums + 5)
    assert [(one.followed, one.counted) for one in old.sums[sums : sums + 3]] == [
        (False, False),
        (True, True),
        (True, True),
    ]


def test_who_is_not_like_the_others_is_told_and_they_go_on(job: Job) -> None:
    job.add("a", "b")
    job.announce()
    job.until_trained()
    job.add("c", size=SIZE + 2)
    stranger = job.members.pop("c")
    stranger.may_fail = True
    job.coordinator.announce({name: one.listener.port for name, one in {**job.members, "c": stranger}.items()})
    until(lambda: stranger.error is not None)
    assert isinstance(stranger.error, OtherError) and "not alike" in str(stranger.error)
    job.announce()
    job.until_trained()


@pytest.mark.parametrize("seed", range(6))
def test_who_dies_between_sums_of_two_kinds_costs_none_of_them(job: Job, seed: int) -> None:
    """Who has not had the last sum is given that, though the others ask for one of another kind by now."""
    chance = random.Random(seed)
    job.add(*"abcdef", alternates=True)
    job.announce()
    job.until_trained(4)
    while len(job.members) > 1:
        job.members.pop(chance.choice(list(job.members))).kill()
        time.sleep(chance.choice([0, 0.001, 0.01]))
        job.announce()
        job.until_trained(5)
    (left,) = job.members.values()
    assert left.received <= 1  # the first state, and never another one instead of a result


def test_another_number_of_numbers_than_in_the_step_before_is_refused(job: Job) -> None:
    told, listener = Told(job.coordinator, "a"), Listener()
    job.coordinator.announce({"a": listener.port})
    job.add("b")  # its state
    one = Summing(listener, told, job.members["b"])
    one.sum([np.zeros(3)], 1.0)
    with pytest.raises(ProtocolError, match="4 numbers are summed, and 3 in the step before"):
        one.sum([np.zeros(4)], 1.0)
    assert one.sum([np.ones(3)], 1.0).step == 2
    listener.close()


def test_what_cannot_be_summed_is_said() -> None:
    job = Job()
    job.add("a")
    one = job.all[0]
    for arrays in ([np.zeros(2, np.float16)], [np.zeros(2), np.zeros(2, np.float32)], []):
        with pytest.raises(ValueError, match="float32 or of float64"):
            Summing(one.listener, one.told, one).sum(arrays, 1.0)
    job.end()


@pytest.mark.parametrize("cuts", [False, True], ids=["at once", "in buckets"])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_all_have_the_same_to_the_bit(
    seed: int, cuts: bool, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rings, "PIECE_BYTES", 256)
    chance, names = random.Random(seed), iter(f"m{number}" for number in range(1000))
    job.add(next(names), next(names), cuts=cuts)
    job.announce()
    job.until_trained()
    top = 0
    for _ in range(25):
        what = chance.choice(["add", "add", "leave", "kill", "hang", "nothing", "twice"])
        there = list(job.members)
        victim = chance.choice(there)
        if what == "add" and len(there) < 6:
            job.add(next(names), cuts=cuts)
        elif what in ("leave", "kill") and len(there) > 1:
            if what == "leave":  # it is told with the others, in the midst of whatever it does
                gone = job.members.pop(victim)
                job.announce()
                gone.told.dead = True
            else:
                job.members.pop(victim).kill()
                time.sleep(chance.choice([0, 0.002, 0.02]))
        elif what == "hang" and len(there) > 1:
            job.members[victim].may.clear()
            job.announce(without=[victim])
            job.until_trained(chance.randrange(4), without=[victim])
            job.members[victim].may.set()
        elif what == "twice":
            job.announce()
            time.sleep(chance.choice([0, 0.001, 0.004]))
        job.announce()
        now = job.until_trained(chance.randrange(1, 5))
        assert now > top  # steps never go back
        top = now


def test_what_was_given_to_a_sum_that_only_the_others_had_is_in_the_state_that_is_taken(job: Job) -> None:
    """Of a sum after which somebody leads no result is kept."""
    job.add("a", "b")
    job.announce()
    last = job.until_trained() + 30
    one, other = job.members["a"], job.members["b"]
    one_sum, level, lost = one.summing.sum, other.summing._level, threading.Event()

    def leads(*given: Any, **words: Any) -> Summed:
        return one_sum(*given, **words, leads=one.summing.step == last)

    def loses(*given: Any) -> None:
        level(*given)
        if not lost.is_set():
            lost.set()
            until(lambda: one.summing.step > last)  # else it may lose that sum with this ring, too
            raise rings.LostError("behind the sum of the others")

    one.summing.sum, other.summing._level = leads, loses  # type: ignore[method-assign]
    assert lost.wait(DEADLINE)
    until(lambda: (one.name, 0) in job.coordinator.troubles)
    job.announce()
    job.until_trained()
    (first, *_) = [found for found in other.sums if found.step > last]
    assert first.step == last + 2 and first.counted, "it has given to the sum before, which is in its state"
    weights = {found.step: found.weight for found in one.sums}
    given = 1.0 + zlib.crc32(f"b{last}".encode()) % 4
    assert weights[last + 1] == one.gave[last + 1] + given


def test_who_only_hands_a_state_on_holds_a_part_of_it_at_a_time(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing, "STATE_BYTES", 256)
    passed: list[str] = []
    whole = handing._passed

    def noted(ring: Any, source: int, arrays: Any) -> None:
        passed.append(threading.current_thread().name)
        whole(ring, source, arrays)

    monkeypatch.setattr(handing, "_passed", noted)
    job.add("a", "b", "c")
    job.announce()
    job.until_trained()
    before = len(passed)  # all but the first were new
    job.add("d")
    job.announce()
    job.until_trained()
    assert before == 0 and len(passed) == 2 and job.members["d"].received == 1


def test_a_member_of_another_release_ends_no_other(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.add("a", "b")
    job.announce()
    job.until_trained()
    gather, strange = rings.Ring.gather, threading.Event()

    def says(self: Any, said: bytes) -> list[bytes]:
        return [*gather(self, said)[:-1], b"[1, 2]"] if not strange.is_set() else gather(self, said)

    monkeypatch.setattr(rings.Ring, "gather", says)
    job.add("c")
    job.announce()
    until(lambda: len({name for name, number in job.coordinator.troubles if number == 1}) >= 2)
    strange.set()
    job.announce()
    job.until_trained()
