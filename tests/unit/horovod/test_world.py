"""Calls of all processes together, as scripts for Horovod make them, while processes come, go and die."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deeprec_ext.allreduce.meeting import Listener, Waiting, join
from deeprec_ext.allreduce.ring import LostError, Ring
from deeprec_ext.elastic.member.views import LeaveError
from deeprec_ext.errors import ProtocolError, RefusedError, UsageError
from deeprec_ext.horovod.things import decoded, encoded
from deeprec_ext.horovod.world import GRADIENTS, HorovodInternalError, HostsUpdatedInterrupt, World, hand_object
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.allreduce.members import DEADLINE, Coordinator, Told, all_of


class Member:
    """What a world needs of the process's member, with generations that the test announces."""

    def __init__(self, coordinator: Coordinator, name: str) -> None:
        self._coordinator, self.told, self._listener = coordinator, Told(coordinator, name), Listener()
        self.name, self.port, self.address = name, self._listener.port, f"127.0.0.1:{self._listener.port}"
        self.identity, self.leaving = SimpleNamespace(name=name), threading.Event()
        self.steps: list[int] = []
        self.notices: list[str] = []
        self.paused = False
        self.world = World()
        self.world.member, self.world.initialised = self, True  # type: ignore[assignment]
        self.told.watch(self.world._look)

    @property
    def view(self) -> pb.View:
        there = list(self._coordinator._members.items())
        return pb.View(
            epoch=self._coordinator._number,
            workers=[pb.WorkerMember(name=name, address=f"127.0.0.1:{port}") for name, port in there],
        )

    def generation(self, number: int, trouble: str = "") -> Any:
        if self.paused:
            self.paused = False
            self._say(here=True)
        return self.told.after(number, trouble)

    def pause(self) -> None:
        self.paused = True
        self._say(here=False)

    def _say(self, *, here: bool) -> None:
        with self._coordinator._changed:
            there = {name: port for name, port in self._coordinator._members.items() if name != self.name}
            there.update({self.name: self.port} if here else {})
            self._coordinator.announce(dict(sorted(there.items())))

    def ring(self, of: Any) -> Ring:
        wait = Waiting(lambda: self.told.over(of.number), DEADLINE, "a ring")
        return join(self._listener, of.number, of.rank, of.addresses, of.secret, wait)

    def trained(self, step: int) -> None:
        self.steps.append(step)

    def notice(self, code: str, text: str, remedy: str) -> None:
        self.notices.append(code)

    def leave(self) -> None:
        raise LeaveError("it is to leave")

    def die(self) -> None:
        self.told.dead = True
        if self.world._ring is not None:
            self.world._ring.give_up()


class Weights:
    """The model of one process."""

    def __init__(self, value: float) -> None:
        self.value = np.full(3, value)

    def take(self) -> list[Any]:
        return [self.value]

    def put(self, arrays: Any) -> None:
        (self.value,) = arrays


@pytest.fixture
def coordinator():
    made = Coordinator()
    yield made
    made.end()


def members(coordinator: Coordinator, names: str) -> list[Member]:
    return [Member(coordinator, name) for name in names]


def announce(coordinator: Coordinator, *there: Member) -> None:
    coordinator.announce({one.name: one.port for one in there})


def add(world: World, number: float, kind: str = GRADIENTS) -> float:
    """The sum of all that counts."""

    def work(ring: Ring, weight: int) -> float:
        buffer = np.array([float(number) * world.counts])
        ring.sum(buffer)
        return float(buffer[0])

    return world.call(kind, work)


def test_all_have_what_all_have_given_and_know_who_they_are(coordinator):
    three = members(coordinator, "abc")
    announce(coordinator, *three)
    assert all_of([lambda one=one: add(one.world, 1 + one.world.rank) for one in three]) == [6.0] * 3
    assert [(one.world.rank, len(one.world.addresses)) for one in three] == [(0, 3), (1, 3), (2, 3)]
    assert [one.steps for one in three] == [[1]] * 3


def test_who_makes_another_call_than_the_others_is_told_and_they_go_on(coordinator):
    a, b, c = members(coordinator, "abc")
    announce(coordinator, a, b)
    all_of([lambda one=one: add(one.world, 1) for one in (a, b)])
    a.world.resets = b.world.resets = c.world.resets = True
    announce(coordinator, a, b, c)

    def goes_on(one: Member) -> float:
        one.world.begin_anew()
        with pytest.raises(HorovodInternalError, match="none of us"):
            add(one.world, 1, "broadcast")
        one.world.begin_anew()
        return add(one.world, 1)

    def is_told() -> float:
        with pytest.raises(UsageError, match="'metrics' of rank 2, 'broadcast' of rank 0"):
            add(c.world, 1, "metrics")
        announce(coordinator, a, b)
        return 0.0

    assert all_of([lambda: goes_on(a), lambda: goes_on(b), is_told]) == [2.0, 2.0, 0.0]


def test_outside_of_elastic_run_a_call_is_made_again_with_those_who_are_there(coordinator):
    a, b, c = members(coordinator, "abc")
    announce(coordinator, a, b, c)
    all_of([lambda one=one: add(one.world, 1) for one in (a, b, c)])

    def lose() -> None:
        time.sleep(0.2)
        c.die()
        announce(coordinator, a, b)

    assert all_of([lambda: add(a.world, 1), lambda: add(b.world, 2), lose])[:2] == [3.0, 3.0]
    assert a.steps == [1, 2]


def test_who_comes_to_a_call_before_its_first_step_does_not_enter_a_loop_whose_model_nobody_knows(coordinator):
    a, b = members(coordinator, "ab")
    announce(coordinator, a)
    add(a.world, 1)
    announce(coordinator, a, b)

    def comes() -> float:
        with pytest.raises(LeaveError):
            before(b.world, "epoch", 1)
        announce(coordinator, a)
        return 0.0

    assert all_of([lambda: add(a.world, 1), comes]) == [1.0, 0.0]
    assert b.notices == ["nobody-enters"]


def test_who_had_come_through_a_call_gives_its_result_to_who_had_not(coordinator):
    a, b = members(coordinator, "ab")
    announce(coordinator, a, b)
    failed = []

    def fails_once(ring: Ring, weight: int) -> float:
        buffer = np.array([10.0])
        ring.sum(buffer)
        if not failed:
            failed.append(True)
            announce(coordinator, a, b)
            raise LostError("as where a neighbour dies")
        return float(buffer[0])

    def twice() -> list[float]:
        return [add(a.world, 1), add(a.world, 5)]

    def twice_with_a_loss() -> list[float]:
        return [b.world.call(GRADIENTS, fails_once), add(b.world, 6)]

    assert all_of([twice, twice_with_a_loss]) == [[11.0, 11.0]] * 2


def test_a_newcomer_is_given_the_model_and_its_first_gradients_do_not_count(coordinator):
    a, b, c = members(coordinator, "abc")
    for one, value in ((a, 1.0), (b, 1.0), (c, 7.0)):
        one.world.shared = Weights(value)  # type: ignore[assignment]
    announce(coordinator, a, b)
    all_of([lambda one=one: add(one.world, 1) for one in (a, b)])
    announce(coordinator, a, b, c)
    assert all_of([lambda one=one: add(one.world, 1) for one in (a, b, c)]) == [2.0] * 3
    assert c.world.shared.value.tolist() == [1.0] * 3  # type: ignore[attr-defined]
    assert all_of([lambda one=one: add(one.world, 1) for one in (a, b, c)]) == [3.0] * 3
    assert c.world.call("metrics", lambda ring, weight: ring.size) == 1  # the others are at another place of the script


def led(world: World, rate: float) -> list[float]:
    return world.call(GRADIENTS, lambda ring, weight: list(world.led), says=[rate])


def test_all_take_the_rate_of_who_has_made_most_steps_and_no_newcomers(coordinator):
    a, b, c = members(coordinator, "abc")
    for one in (a, b, c):
        one.world.shared = Weights(1.0)  # type: ignore[assignment]
    announce(coordinator, b, c)
    assert all_of([lambda: led(b.world, 0.1), lambda: led(c.world, 0.2)]) == [[0.1]] * 2, "of as many steps the first's"
    announce(coordinator, a, b, c)  # which is rank 0 now
    for _ in range(2):
        rates = zip((a, b, c), (0.7, 1 / 3, 0.5))
        assert all_of([lambda one=one, rate=rate: led(one.world, rate) for one, rate in rates]) == [[1 / 3]] * 3


def before(world: World, kind: str, mine: int) -> int:
    return world.call(kind, lambda ring, weight: hand_object(ring, mine, 0))


def test_who_comes_while_the_others_train_gets_what_calls_before_their_first_step_gave(coordinator):
    a, b, c = members(coordinator, "abc")
    for one, value in ((a, 1.0), (b, 1.0), (c, 7.0)):
        one.world.shared = Weights(value)  # type: ignore[assignment]
    announce(coordinator, a, b)

    def begins(one: Member, mine: int) -> list[int]:
        return [before(one.world, kind, mine) for kind in ("epoch", "seed")]

    assert all_of([lambda: begins(a, 3), lambda: begins(b, 4)]) == [[3, 3]] * 2
    all_of([lambda one=one: add(one.world, 1) for one in (a, b)])
    announce(coordinator, a, b, c)
    goes_on = threading.Event()

    def comes() -> list[float]:
        assert begins(c, 5) == [3, 3]
        assert before(c.world, "another", 5) == 5, "nobody else has made it"
        assert not [one for one in c.view.workers if one.name == "c"], "nobody waits for it while it builds its model"
        goes_on.set()
        assert add(c.world, 100) == 2.0 and c.world.shared.value.tolist() == [1.0] * 3  # type: ignore[attr-defined]
        return [add(c.world, 100)]

    def trains(one: Member) -> list[float]:
        found = []
        while not found or found[-1] < 100:
            found.append(add(one.world, 1))
        return found[-1:]

    assert all_of([lambda: trains(a), lambda: trains(b), comes]) == [[102.0]] * 3
    assert goes_on.is_set()


def test_who_is_late_for_the_first_of_the_calls_before_a_step_makes_the_rest_with_the_others(coordinator):
    a, b = members(coordinator, "ab")
    for one, value in ((a, 1.0), (b, 7.0)):
        one.world.shared = Weights(value)  # type: ignore[assignment]
    announce(coordinator, a)
    assert before(a.world, "epoch", 3) == 3
    announce(coordinator, a, b)

    def goes_on() -> float:
        assert before(a.world, "seed", 3) == 3
        found = 0.0
        while found < 100:
            found = add(a.world, 1)
        return found

    def comes() -> float:
        assert before(b.world, "epoch", 4) == 3 == before(b.world, "seed", 4)
        found = 0.0
        while found < 100:
            found = add(b.world, 100)
        return found

    assert all_of([goes_on, comes]) == [101.0] * 2


def test_fits_that_end_together_begin_the_next_together_however_long_it_takes(coordinator):
    a, b, c = members(coordinator, "abc")
    for one in (a, b, c):
        one.world.shared = Weights(1.0)  # type: ignore[assignment]
    announce(coordinator, a, b)
    all_of([lambda one=one: add(one.world, 1) for one in (a, b)])
    announce(coordinator, a, b, c)  # and from here on averages of metrics are each process's own
    all_of([lambda one=one: add(one.world, 1) for one in (a, b, c)])
    all_of([one.world.rest for one in (a, b, c)])
    assert not any(one.paused for one in (a, b, c))
    score = [lambda one=one: add(one.world, 1, "score") for one in (a, b, c)]
    assert all_of(score) == [3.0] * 3, "all are at one place again"
    assert all_of([lambda one=one: add(one.world, 1) for one in (a, b, c)]) == [3.0] * 3


def test_whose_fit_ends_before_the_others_is_not_waited_for(coordinator):
    a, b, c = members(coordinator, "abc")
    for one in (a, b, c):
        one.world.shared = Weights(1.0)  # type: ignore[assignment]
    announce(coordinator, a, b, c)
    all_of([lambda one=one: add(one.world, 1) for one in (a, b, c)])
    assert all_of([a.world.rest, lambda: add(b.world, 1), lambda: add(c.world, 1)]) == [None, 2.0, 2.0]
    assert a.paused and add(a.world, 1, "score") == 1.0
    assert all_of([lambda one=one: add(one.world, 1) for one in (b, c)]) == [2.0] * 2
    b.leaving.set()
    b.world.rest()  # the script goes on to its end


def test_those_whose_fits_end_before_a_newcomers_are_not_waited_for_and_do_not_wait(coordinator):
    a, b, c = members(coordinator, "abc")
    for one in (a, b, c):
        one.world.shared = Weights(1.0)  # type: ignore[assignment]
    announce(coordinator, a, b, c)
    all_of([lambda one=one: add(one.world, 1) for one in (a, b, c)])
    assert all_of([a.world.rest, b.world.rest, lambda: add(c.world, 1)]) == [None, None, 1.0]
    assert a.paused and b.paused and add(c.world, 1) == 1.0


def test_the_model_is_handed_by_all_though_one_has_come_in_between(coordinator):
    a, b, c = members(coordinator, "abc")
    for one, value in ((a, 1.0), (b, 5.0), (c, 7.0)):
        one.world.shared = Weights(value)  # type: ignore[assignment]
    announce(coordinator, a, b)
    all_of([lambda one=one: add(one.world, 1) for one in (a, b)])
    announce(coordinator, a, b, c)

    def goes_on(one: Member) -> float:
        one.world.hand_model(0)
        return add(one.world, 1)

    def comes() -> float:
        found = add(c.world, 100)  # of another model
        c.world.hand_model(0)  # has it
        return found

    assert all_of([lambda: goes_on(a), lambda: goes_on(b), comes]) == [2.0] * 3
    assert [one.world.shared.value[0] for one in (a, b, c)] == [1.0] * 3  # type: ignore[attr-defined]


def test_who_hears_that_others_are_apart_makes_its_other_calls_alone(coordinator):
    a, b = members(coordinator, "ab")
    for one in (a, b):
        one.world.shared = Weights(1.0)  # type: ignore[assignment]
    announce(coordinator, a, b)
    all_of([lambda one=one: add(one.world, 1) for one in (a, b)])
    a.world._apart = True  # as where the ring breaks when a newcomer has the model: one knows it, another does not

    def ends_an_epoch() -> float:
        assert add(b.world, 5, "metrics") == 5.0
        return add(b.world, 5)

    assert all_of([lambda: add(a.world, 1), ends_an_epoch]) == [6.0] * 2


def test_calls_of_one_run_of_a_graph_find_each_other_in_whatever_order_they_come(coordinator):
    a, b = members(coordinator, "ab")
    announce(coordinator, a, b)
    made: list[str] = []

    def call(one: Member, name: str, number: float) -> float:
        def work(ring: Ring, weight: int) -> float:
            buffer = np.array([number])
            ring.sum(buffer)
            made.append(name)
            return float(buffer[0])

        return one.world.call("allreduce", work, name, gathers=True)

    def run(one: Member, names: str, times: int) -> list[tuple[str, float]]:
        def first() -> float:
            return call(one, names[0], ord(names[0]) * times)

        def second() -> float:
            time.sleep(0.1)  # its thread comes later, while the first is under way
            return call(one, names[1], ord(names[1]) * times)

        return sorted(zip(names, all_of([first, second])))

    expected = [(name, ord(name) * 11.0) for name in "xy"]
    assert all_of([lambda: run(a, "xy", 1), lambda: run(b, "yx", 10)]) == [expected] * 2
    assert sorted(made) == ["x", "x", "y", "y"]


def test_nobody_enters_a_loop_whose_model_nobody_knows(coordinator):
    a, b = members(coordinator, "ab")
    announce(coordinator, a)
    add(a.world, 1)
    announce(coordinator, a, b)

    def comes() -> float:
        with pytest.raises(LeaveError):
            add(b.world, 1)
        b.die()
        announce(coordinator, a)
        return 0.0

    assert all_of([lambda: add(a.world, 1), comes]) == [1.0, 0.0]
    assert b.notices == ["nobody-enters"]


def test_within_elastic_run_a_loss_fails_the_call_and_all_begin_anew(coordinator):
    a, b, c = members(coordinator, "abc")
    for one in (a, b, c):
        one.world.resets = True
    announce(coordinator, a, b, c)
    all_of([lambda one=one: add(one.world, 1) for one in (a, b, c)])

    def fails(one: Member) -> float:
        with pytest.raises(HorovodInternalError):
            add(one.world, 1)
        one.world.begin_anew()
        return add(one.world, 1)

    def lose() -> None:
        time.sleep(0.2)
        c.die()
        announce(coordinator, a, b)

    assert all_of([lambda: fails(a), lambda: fails(b), lose])[:2] == [2.0, 2.0]


def test_within_elastic_run_who_comes_waits_for_a_check_of_which_all_hear(coordinator):
    a, b, c = members(coordinator, "abc")
    for one in (a, b, c):
        one.world.resets = True
    announce(coordinator, a, b)
    all_of([lambda one=one: one.world.check() for one in (a, b)])
    announce(coordinator, a, b)  # the same once more is no change
    all_of([lambda one=one: one.world.check() for one in (a, b)])
    announce(coordinator, a, b, c)

    def hears(one: Member) -> float:
        assert add(one.world, 1) == 2.0
        with pytest.raises(HostsUpdatedInterrupt):
            one.world.check()
        one.world.begin_anew()
        return add(one.world, 1)

    assert all_of([lambda: hears(a), lambda: hears(b), lambda: add(c.world, 1)]) == [3.0] * 3


def test_whoever_is_to_leave_the_others_hear_of_it_at_the_same_check(coordinator):
    a, b = members(coordinator, "ab")
    a.world.resets = b.world.resets = True
    announce(coordinator, a, b)
    b.leaving.set()

    def hears(one: Member) -> None:
        with pytest.raises(HostsUpdatedInterrupt):
            one.world.check()

    all_of([lambda one=one: hears(one) for one in (a, b)])
    with pytest.raises(LeaveError):
        b.world.begin_anew()


def test_objects_go_from_one_to_all(coordinator):
    two = members(coordinator, "ab")
    announce(coordinator, *two)
    thing = {"epoch": 3, "losses": [0.5] * 20_000}
    given = [None, thing]
    found = all_of([
        lambda one=one, own=own: one.world.call("object", lambda ring, weight: hand_object(ring, own, 1))
        for one, own in zip(two, given)
    ])  # fmt: skip
    assert found == [thing, thing]


def test_things_are_what_they_were_and_nothing_else_is_taken():
    thing = {
        "a": [1, 2.5, None, True, "é"],
        3: (b"x", {4}),
        "b": np.arange(6, dtype=np.int16).reshape(2, 3),
        "c": np.float32(0.1),
    }
    found = decoded(encoded(thing))
    assert found["a"] == thing["a"] and found[3] == thing[3] and found["c"] == np.float32(0.1)
    assert found["b"].dtype == np.int16 and found["b"].tolist() == [[0, 1, 2], [3, 4, 5]]
    for other in (object(), lambda: 0, np.array([object()]), [threading.Lock()]):
        with pytest.raises(RefusedError, match="cannot be handed to other processes"):
            encoded(other)
    with pytest.raises(ProtocolError):
        decoded(b"\0\0\0\0\0\0\0\3{]}")


def test_calls_need_init():
    with pytest.raises(ValueError, match="init"):
        World().call("any", lambda ring, weight: None)
