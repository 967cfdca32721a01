"""Registry and heartbeats under a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deeprec_ext.aimaster.membership.members import Member, Members
from deeprec_ext.aimaster.reporting.summary import summarize
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.errors import StaleError
from deeprec_ext.options import Settings
from deeprec_ext.proto import deeprec_ext_pb2 as pb


class HandClock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1e9 + self.now


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "aimaster.db")
    yield store
    store.close()


@pytest.fixture
def members(store: Store, clock: HandClock) -> Members:
    return Members(store, Settings(), clock)


def arrive(members: Members, name: str, incarnation: str) -> Member:
    role = pb.PS if name.startswith("ps") else pb.WORKER
    if members.record(name) is None:
        members.request(name)
    member = members.arrive(pb.RegisterRequest(role=role, incarnation=incarnation, address="a:1"), name)
    members.admit(member)
    return member


def test_a_ps_is_silent_after_three_seconds_and_a_worker_after_thirty(members: Members, clock: HandClock) -> None:
    arrive(members, "ps-0", "a")
    arrive(members, "worker-0", "b")
    clock.now += 2.9
    assert members.silent() == []
    clock.now += 0.2
    assert [member.name for member, *_ in members.silent()] == ["ps-0"]
    clock.now += 27
    assert len(members.silent()) == 2


def test_a_worker_that_hangs_is_seen_by_the_steps_it_does_not_make(members: Members, clock: HandClock) -> None:
    """Its agent goes on talking, and the rate that it tells falls without ever being 0."""
    ps, worker = arrive(members, "ps-0", "a"), arrive(members, "worker-0", "b")

    def beat(seconds: float, **told: object) -> tuple[float, float]:
        clock.now += seconds
        members.beat(worker, pb.Heartbeat(**told))  # type: ignore[arg-type]
        return worker.age_seconds(clock.now), worker.stepless_seconds(clock.now)

    assert beat(50.0) == (0.0, 0.0)  # it builds its first session
    assert beat(1.0, training=True, step=10) == (0.0, 0.0)
    assert beat(5.0, training=True, step=12) == (5.0, 0.0)
    assert beat(100.0, training=True, step=12, steps_per_second=0.02) == (105.0, 100.0)
    members.forgive(60.0)  # the AIMaster stood still: it would not have heard of a step
    assert beat(1.0, training=True, step=12)[1] == 41.0
    assert beat(1.0, training=True, step=12, examples=64)[1] == 0.0
    assert beat(500.0, step=12)[1] == 0.0  # its session is over: it saves, or evaluates
    assert ps.age_seconds(clock.now) == 658.0 and ps.stepless_seconds(clock.now) == 0.0


def test_a_heartbeat_and_a_stall_of_the_aimaster_itself_keep_it_alive(members: Members, clock: HandClock) -> None:
    member = arrive(members, "ps-0", "a")
    clock.now += 2.9
    members.beat(member, pb.Heartbeat())
    clock.now += 2.9
    assert members.silent() == []
    clock.now += 10
    members.forgive(10)
    assert members.silent() == []


def test_the_same_incarnation_keeps_its_task_and_another_one_does_not(members: Members) -> None:
    first = arrive(members, "ps-0", "a")
    first.task = 4
    members.admit(first)
    assert arrive(members, "ps-0", "a") is first
    second = arrive(members, "ps-0", "b")
    assert second.task == -1 and first.outbox.closed
    with pytest.raises(StaleError, match="replaced"):
        arrive(members, "ps-0", "a")


def test_a_restarted_registry_knows_who_took_part(store: Store, clock: HandClock, members: Members) -> None:
    member = arrive(members, "ps-0", "a")
    member.task = 2
    members.admit(member)
    again = Members(store, Settings(), clock)
    back = again.arrive(pb.RegisterRequest(role=pb.PS, incarnation="a"), "ps-0")
    assert back.admitted and back.task == 2


def test_cpu_and_totals_come_from_heartbeats_and_are_written_in_batches(
    members: Members, store: Store, clock: HandClock
) -> None:
    member = arrive(members, "worker-0", "a")
    members.beat(member, pb.Heartbeat(cpu_seconds=1, examples=100, step=7))
    clock.now += 2
    members.beat(member, pb.Heartbeat(cpu_seconds=2, examples=200, step=9))
    assert member.cpu_percent == pytest.approx(50)
    assert store.examples() == 0
    members.flush()
    assert store.examples() == 200 and store.get("step") == 9
    assert members.step == 9


def test_the_step_does_not_go_back_when_who_reported_it_leaves_but_when_the_model_was_restored(
    members: Members,
) -> None:
    ahead, behind = arrive(members, "worker-0", "a"), arrive(members, "worker-1", "b")
    members.beat(ahead, pb.Heartbeat(step=9))
    members.beat(behind, pb.Heartbeat(step=7))
    members.drop("worker-0", "scaled away")
    assert members.step == 9
    members.restored(4)
    assert members.step == 4


def test_a_jump_of_the_wall_clock_makes_nobody_silent(store: Store) -> None:
    class Jumping(HandClock):
        wall_seconds = 1e9

        def wall(self) -> float:
            return self.wall_seconds

    clock = Jumping()
    members = Members(store, Settings(), clock)
    arrive(members, "ps-0", "a")
    for jump in (3600.0, -7200.0, 1e9):
        clock.wall_seconds += jump
        assert members.silent() == []
    clock.now += 3.1
    assert [member.name for member, *_ in members.silent()] == ["ps-0"]


def test_after_a_restore_the_step_counts_from_there_and_the_highest_ever_is_kept(members: Members) -> None:
    worker = arrive(members, "worker-0", "a")
    members.beat(worker, pb.Heartbeat(step=900))
    members.restored(300)
    assert (members.step, members.highest_step) == (300, 900)
    members.reached(301, worker)
    assert (members.step, members.highest_step) == (301, 900)


def test_the_summary_tells_the_step_of_the_model_that_went_back_and_not_the_highest_ever(
    members: Members, store: Store
) -> None:
    worker = arrive(members, "worker-0", "a")
    members.beat(worker, pb.Heartbeat(step=900))
    members.flush()
    assert summarize(store, status="succeeded", seconds=1.0, roles={})["steps"] == 900
    members.restored(300)
    members.reached(310, worker)
    members.flush()
    assert summarize(store, status="succeeded", seconds=1.0, roles={})["steps"] == 310
    assert store.get("step") == 900, (
        "what a new AIMaster believes of steps, and what a restore loses, is counted from here"
    )


def test_who_outstays_the_end_of_its_script_is_told_once(members: Members, clock: HandClock) -> None:
    one, other = arrive(members, "worker-0", "a"), arrive(members, "worker-1", "b")
    members.goodbye(one, 3)
    clock.now += Settings.end_limit_seconds + 9.9
    members.goodbye(one, 3)  # said again over another stream: nothing begins anew
    assert members.outstaying() == []
    clock.now += 0.2
    assert members.outstaying() == [one] and one.exit_code == 3
    assert members.outstaying() == []
    assert not other.said_goodbye
