"""When the launcher takes an AIMaster for hung."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from deeprec_ext.errors import DeepRecError
from deeprec_ext.launch import observer
from deeprec_ext.launch.observer import ASK_SECONDS, Observer
from deeprec_ext.proto import deeprec_ext_pb2 as pb


@dataclass
class World:
    """A clock, an AIMaster that answers or not, and what it is sent."""

    now: float = 1000.0
    answers: bool = True
    queued: float = 0.0
    killed: list[int] = field(default_factory=list)
    pod: SimpleNamespace = field(default_factory=SimpleNamespace)

    def begin(self, pid: int) -> None:
        def kill(number: int) -> None:
            assert number == signal.SIGKILL
            self.killed.append(pid)

        self.pod = SimpleNamespace(pid=pid, process=SimpleNamespace(started_at=self.now, signal=kill))

    async def status(self, timeout_seconds: float) -> pb.StatusReply:
        if self.answers:
            return pb.StatusReply()
        raise DeepRecError("no answer")

    def poll(self, one: Observer) -> None:
        """What `run` does again and again."""
        if asyncio.run(one.ask()) is None:
            one._suspect()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    it = World()
    monkeypatch.setattr(observer, "time", SimpleNamespace(monotonic=lambda: it.now))
    monkeypatch.setattr(observer, "queued_seconds", lambda folder: it.queued)
    it.begin(pid=1)
    return it


def make(world: World) -> Observer:
    pods = SimpleNamespace(get=lambda name: world.pod)
    return Observer(world, pods)  # type: ignore[arg-type]


def test_an_aimaster_that_has_run_for_long_is_not_killed_for_one_missing_answer(world: World) -> None:
    one = make(world)
    world.now += 2
    world.poll(one)
    world.now += 1800
    world.poll(one)
    world.answers = False
    for seconds in (2.5, 5, 5):
        world.now += seconds
        world.poll(one)
        assert not world.killed
    world.now += 3
    world.poll(one)
    assert world.killed == [1], "15 s are over"


def test_a_new_aimaster_has_as_much_time_to_be_loaded_as_the_first(world: World) -> None:
    one = make(world)
    world.poll(one)
    world.answers = False
    world.now += 100
    world.begin(pid=2)
    for _ in range(5):
        world.now += 11
        world.poll(one)
    assert not world.killed
    world.now += 6
    world.poll(one)
    assert world.killed == [2], "a minute is over"


def test_one_that_answered_again_begins_a_new_count(world: World) -> None:
    one = make(world)
    world.poll(one)
    for _ in range(5):
        world.answers = False
        world.now += 14
        world.poll(one)
        world.answers = True
        world.poll(one)
    assert not world.killed


def test_a_slow_one_is_waited_for_the_longer_the_longer_it_is_silent(world: World) -> None:
    one = make(world)
    world.poll(one)
    assert one._patience() == ASK_SECONDS
    world.now += 6.5
    assert one._patience() == 6.5
    world.now += 7
    assert one._patience() == ASK_SECONDS, "not past the limit"


@pytest.mark.parametrize(("share", "killed_after"), [(0.0, 16), (0.2, 16), (0.5, 61)])
def test_one_that_gets_no_processor_is_waited_for_longer_than_one_that_hangs(
    world: World, share: float, killed_after: int
) -> None:
    world.queued = 700.0
    one = make(world)
    world.poll(one)
    world.answers = False
    for second in range(1, 70):
        world.now += 1
        world.queued += share
        world.poll(one)
        assert bool(world.killed) == (second >= killed_after), second
        if world.killed:
            break


def test_for_how_long_the_last_process_of_a_role_has_trained(world: World) -> None:
    one, reply, seen = make(world), pb.StatusReply(), []

    async def status(timeout_seconds: float) -> pb.StatusReply:
        return reply

    world.status = status  # type: ignore[method-assign]
    for process, trains, later in (("a", 0, 5.0), ("a", 1, 30.0), ("a", 1, 7.0), ("b", 0, 9.0), ("b", 1, 2.0)):
        reply = pb.StatusReply()
        reply.roles.add(name="chief-0", incarnation=process, heartbeat=pb.Heartbeat(training=bool(trains)))
        world.poll(one)
        world.now += later
        seen.append(one.trained_seconds("chief-0"))
    assert seen == [0.0, 30.0, 37.0, 0.0, 2.0]
    assert one.trained_seconds("worker-0") == 0.0
