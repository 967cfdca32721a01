"""Peer backups between real TensorFlow servers of this process: kept up by dirty rows, promoted without a copy."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.elastic.agent import background
from deeprec_ext.elastic.ps import held_slots, refreshing
from deeprec_ext.elastic.ps.collecting import Collecting
from deeprec_ext.elastic.ps.collector import Marks, make_bitmaps
from deeprec_ext.elastic.ps.copies import Parting, backup_of
from deeprec_ext.elastic.ps.migration import Mover, destroy
from deeprec_ext.elastic.ps.peer_backup import PeerBackup
from deeprec_ext.elastic.ps.variables import Facts, Located, bitmap_of, present
from deeprec_ext.elastic.runtime.ops import Ops, Program
from deeprec_ext.elastic.runtime.view import elastic_config
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.elastic.cluster import LocalCluster

ROWS, DIM = 1000, 16
TABLE = pb.Variable(
    name="table", dtype=tf.float32.as_datatype_enum, shape=[ROWS, DIM], slot=3, update=pb.Variable.ROWS,
    bitmap="table@dirty", bytes=ROWS * DIM * 4,
)  # fmt: skip
DENSE = pb.Variable(name="w", dtype=tf.float32.as_datatype_enum, shape=[4], slot=3, update=pb.Variable.DENSE, bytes=16)
STEP = pb.Variable(name="trained/steps", dtype=tf.int64.as_datatype_enum, shape=[], slot=3, update=pb.Variable.DENSE)
VARIABLES = (TABLE, DENSE, STEP)


class World:
    """PS 0 owns the slot, PS 1 guards it."""

    def __init__(self, reference: bool = False) -> None:
        self.variables = tuple(of_kind(variable, reference) for variable in VARIABLES)
        self.cluster = LocalCluster(2)
        self.reports: list[pb.BackupReport] = []
        self.changed = threading.Condition()
        self.collecting = Collecting()
        target = "grpc://" + self.cluster.ps[1]
        self.touched: list[tuple[int, int]] = []
        self.peer_backup = PeerBackup(
            target, lambda: 1, lambda: 10_000, self.collecting, self.receive, lambda *taken: self.touched.append(taken)
        )
        self.write("table", np.zeros((ROWS, DIM), np.float32))
        self.write("w", np.zeros(4, np.float32))
        self.write(STEP.name, np.int64(5))
        make_bitmaps("grpc://" + self.cluster.ps[0], 0, self.variables)

    def facts(self, name: str) -> Facts:
        return next(Facts.from_proto(variable) for variable in self.variables if variable.name == name)

    def has(self, task: int, facts: Facts) -> bool:
        program = Program("grpc://" + self.cluster.ps[task], elastic_config(self.cluster.ps))
        found = present(program, [(facts, task)])
        program.close()
        return found == [True]

    def receive(self, message: pb.AgentMessage) -> None:
        with self.changed:
            self.reports.append(message.backup)
            self.changed.notify_all()

    def run(self, task: int, build: object, fetch: bool = False) -> object:
        program = Program("grpc://" + self.cluster.ps[task], elastic_config(self.cluster.ps))
        ops = Ops()
        name = build(ops)  # type: ignore[operator]
        program.load(ops)
        result = program.compile(fetches=[name])() if fetch else program.compile(targets=[name])()
        program.close()
        return result[0] if fetch else None

    def write(self, name: str, value: object) -> None:
        facts = self.facts(name)

        def build(ops: Ops) -> str:
            one = Located(ops, facts, 0)
            return one.assign(ops.constant(value, facts.dtype, one.device))

        self.run(0, build)

    def update(self, row: int, value: float, task: int = 0) -> None:
        """What a training step does: write the row, then mark it."""

        def build(ops: Ops) -> str:
            facts = self.facts("table")
            table, bitmap = Located(ops, facts, task), Located(ops, bitmap_of(facts), task)
            index = ops.constant((row,), tf.int64, table.device)
            values = ops.constant(np.full((1, DIM), value, np.float32), tf.float32, table.device)
            return bitmap.scatter(index, ops.constant(True, tf.bool, table.device), (table.scatter(index, values),))

        self.run(task, build)

    def read(self, task: int, name: str) -> object:
        facts = self.facts(name)
        return self.run(task, lambda ops: Located(ops, facts, task).read(), fetch=True)

    def guard(self, number: int = 1, seconds: float = 0.0) -> None:
        self.peer_backup.guard(
            pb.Guard(
                id=number, moves=[pb.Move(variable=v, source_task=0) for v in self.variables], seconds=seconds,
                global_step=STEP.name,
                ps=[pb.PsMember(task=task, address=address) for task, address in self.cluster.ps.items()],
            )
        )  # fmt: skip

    def next_report(self, count: int) -> pb.BackupReport:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.reports) >= count, 30), self.reports
            return self.reports[count - 1]


def of_kind(variable: pb.Variable, reference: bool) -> pb.Variable:
    changed = pb.Variable(reference=reference)
    changed.MergeFrom(variable)
    return changed


@pytest.fixture(params=[False, True], ids=["resource", "reference"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    it = World(request.param)
    yield it
    it.peer_backup.close()


def test_a_refresh_sends_only_the_rows_touched_and_a_promotion_brings_all_of_them(world: World) -> None:
    world.update(7, 1.5)
    world.guard()
    first = world.next_report(1)
    assert first.first and list(first.slots) == [3] and first.full_bytes == TABLE.bytes + DENSE.bytes
    world.update(8, 2.5)
    world.update(9, 3.5)
    world.touched.clear()
    world.write("w", np.arange(4, dtype=np.float32))
    world.peer_backup.refresh()
    second = world.next_report(2)
    assert not second.first and not second.error
    # Two rows and their numbers, the dense variables whole (the step: 8 bytes).
    assert second.bytes == 2 * (DIM * 4 + 4) + DENSE.bytes + 8
    assert world.touched == [(3, 2)]  # two rows of slot 3
    world.update(10, 4.5)  # after the last refresh: forgotten
    world.peer_backup.promote([3], step=42)
    table = world.read(1, "table")
    assert [table[row][0] for row in (7, 8, 9, 10)] == [1.5, 2.5, 3.5, 0.0]  # type: ignore[index]
    assert list(world.read(1, "w")) == [0, 1, 2, 3]  # type: ignore[call-overload]
    assert world.read(1, STEP.name) == 42
    marks = world.run(1, lambda ops: Located(ops, bitmap_of(Facts.from_proto(TABLE)), 1).read(), fetch=True)
    assert not marks.any()  # type: ignore[attr-defined]
    world.peer_backup.promote([3], step=42)  # again: an AIMaster that died meanwhile asks a second time
    with pytest.raises(DeepRecError, match="no complete backup"):
        world.peer_backup.promote([4], step=1)


def test_the_global_step_does_not_go_back(world: World) -> None:
    world.guard()
    world.next_report(1)
    world.peer_backup.promote([3], step=3)  # less than the backup knows
    assert world.read(1, STEP.name) == 5


def test_refreshes_come_by_themselves_and_are_kept_out_by_a_hold(world: World) -> None:
    world.guard(seconds=0.05)
    world.next_report(3)
    assert world.collecting.hold(5.0, 5.0)
    with world.changed:
        count = len(world.reports)
        assert not world.changed.wait_for(lambda: len(world.reports) > count + 1, 0.5)  # one may have been under way
    world.collecting.hold(0.0, 0.0)
    world.next_report(count + 2)


@pytest.mark.parametrize("allowed, niceness", [(1000.0, background.STEADY_NICENESS), (-1000.0, None)])
def test_copies_that_are_older_than_they_are_to_be_are_refreshed_at_the_priority_of_the_steps(
    world: World, monkeypatch: pytest.MonkeyPatch, allowed: float, niceness: int | None
) -> None:
    given: list[int | None] = []
    politely = refreshing.politely

    def noted(*arguments: object, niceness: int | None, **more: object) -> object:
        given.append(niceness)
        return politely(*arguments, niceness=niceness, **more)

    monkeypatch.setattr(refreshing, "politely", noted)
    monkeypatch.setattr(refreshing, "LATE_SECONDS", allowed)
    world.guard(seconds=0.05)
    world.next_report(3)
    assert set(given) == {niceness}


def test_a_long_first_copy_is_followed_by_a_refresh_in_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be as old as it took to make by then, and as much again: the share is for what comes again and again."""
    clock = SimpleNamespace(late=0.0)
    clock.monotonic = lambda: time.monotonic() + clock.late
    monkeypatch.setattr(refreshing, "time", clock)
    first = refreshing.Refresher._first_copy

    def long(self: refreshing.Refresher, one: refreshing.HeldSlot) -> int:
        clock.late += 10_000.0
        return first(self, one)

    monkeypatch.setattr(refreshing.Refresher, "_first_copy", long)
    world.guard(seconds=0.05)
    assert world.next_report(1).first and not world.next_report(2).first


def test_a_slot_that_is_not_guarded_any_more_frees_its_memory_and_its_bitmaps_and_can_be_again(world: World) -> None:
    world.guard()
    world.next_report(1)
    world.peer_backup.guard(pb.Guard(id=2))
    copy, bitmap = backup_of(world.facts("table")), bitmap_of(world.facts("table"))

    def there() -> bool:
        return world.has(1, copy) or world.has(1, bitmap)

    for _ in range(200):
        if not there():
            break
        threading.Event().wait(0.05)
    assert not there()
    with pytest.raises(DeepRecError):
        world.peer_backup.promote([3], step=1)
    world.update(7, 1.5)
    with world.changed:
        heard = len(world.reports)
    world.guard(3)  # and guarded again
    report = world.next_report(heard + 1)
    assert report.first and not report.error
    world.peer_backup.promote([3], step=1)
    assert world.read(1, "table")[7][0] == 1.5  # type: ignore[index]


@pytest.mark.parametrize("compiled", [False, True])
def test_the_old_owner_of_a_slot_that_moved_has_the_backup_and_goes_on_by_dirty_rows(
    world: World, compiled: bool
) -> None:
    if compiled and world.variables[0].reference:
        pytest.skip("of reference variables nothing is compiled in advance")
    own, new = "grpc://" + world.cluster.ps[0], "grpc://" + world.cluster.ps[1]
    source = PeerBackup(own, lambda: 0, lambda: 10_000, Collecting(), world.receive)
    world.update(7, 1.5)
    mover = Mover(
        new, 1, world.cluster.ps, [pb.Move(variable=v, source_task=0) for v in world.variables], 10_000,
    )  # fmt: skip
    mover.arm(verify=True, tracked=True, guarded=True)
    parting = Parting(own, 0, world.variables, keep=True) if compiled else None
    mover.first()
    mover.final()
    keep = pb.Guard(
        id=5, moves=[pb.Move(variable=v, source_task=1) for v in world.variables], global_step=STEP.name,
        ps=[pb.PsMember(task=task, address=address) for task, address in world.cluster.ps.items()],
    )  # fmt: skip
    assert source.keep(keep, parting) == (frozenset(), compiled)
    if parting is not None:
        parting.close()
    else:
        destroy(own, 0, world.cluster.ps[0], world.variables)
    told = world.next_report(1)
    assert (told.guard, list(told.slots), told.first) == (5, [3], False)
    assert not world.has(0, world.facts("table")), "there is one owner"

    world.update(8, 2.5, task=1)  # as soon as training goes on; and a disk backup is the first to read the marks
    bitmap = bitmap_of(Facts.from_proto(TABLE))
    world.run(1, lambda ops: Marks(ops, bitmap, 1).begin("disk"))
    world.update(9, 3.5, task=1)
    assert list(world.run(1, lambda ops: Marks(ops, bitmap, 1).take("disk").rows, fetch=True))  # type: ignore[call-overload]
    source.keep(keep)  # said again, by another AIMaster: nothing happens
    source.refresh()

    def rows() -> int:
        """Bytes of them; the first may come with a refresh of its own."""
        return sum(report.bytes - DENSE.bytes - 8 for report in world.reports if report.bytes)

    with world.changed:
        assert world.changed.wait_for(lambda: rows() >= 2 * (DIM * 4 + 4), 30), world.reports
    assert rows() == 2 * (DIM * 4 + 4), "two rows, and no whole copy"
    assert not any(report.first or report.error for report in world.reports)
    source.promote([3], step=42)
    table = world.read(0, "table")
    assert [table[row][0] for row in (6, 7, 8, 9)] == [0.0, 1.5, 2.5, 3.5]  # type: ignore[index]
    assert world.read(0, STEP.name) == 42
    source.close()


def test_a_late_order_to_keep_what_moved_does_not_overwrite_the_copy_of_its_new_owner(world: World) -> None:
    """A PS that got no processor carries the order out after the assignment that followed it."""
    own, new = "grpc://" + world.cluster.ps[0], "grpc://" + world.cluster.ps[1]
    source = PeerBackup(own, lambda: 0, lambda: 10_000, Collecting(), world.receive)
    mover = Mover(new, 1, world.cluster.ps, [pb.Move(variable=v, source_task=0) for v in world.variables], 10_000)
    mover.arm(verify=False, tracked=True, guarded=True)
    mover.first()
    mover.final()
    world.update(8, 2.5, task=1)  # training goes on at the new owner
    facts = {
        "moves": [pb.Move(variable=v, source_task=1) for v in world.variables], "global_step": STEP.name,
        "ps": [pb.PsMember(task=task, address=address) for task, address in world.cluster.ps.items()],
    }  # fmt: skip
    source.guard(pb.Guard(id=9, **facts))
    assert not world.next_report(1).error
    assert source.keep(pb.Guard(id=5, **facts)) == (frozenset(), False)
    destroy(own, 0, world.cluster.ps[0], world.variables)
    source.promote([3], step=42)
    assert world.read(0, "table")[8][0] == 2.5  # type: ignore[index]
    assert source.keep(pb.Guard(id=5, **facts))[0] == {3}, "it is owned here again: nothing is to be destroyed"
    source.close()


def test_what_was_owned_until_just_now_can_be_promoted_at_once(world: World) -> None:
    source = PeerBackup("grpc://" + world.cluster.ps[0], lambda: 0, lambda: 10_000, Collecting(), world.receive)
    world.update(7, 1.5)
    keep = pb.Guard(
        id=5, moves=[pb.Move(variable=v, source_task=9) for v in world.variables], global_step=STEP.name,
        ps=[pb.PsMember(task=9, address="127.0.0.1:1")],  # the new owner is dead already
    )  # fmt: skip
    source.keep(keep)
    source.promote([3], step=42)
    assert world.read(0, "table")[7][0] == 1.5  # type: ignore[index]
    heard = len(world.reports)
    absent = pb.Move(variable=pb.Variable(name="x", dtype=1, shape=[2], slot=5), source_task=9)
    source.keep(pb.Guard(id=6, moves=[absent], ps=keep.ps))
    assert len(world.reports) == heard, "it was not here: there is no copy of it"


NEVER = pb.Variable(name="never", dtype=1, shape=[3], slot=3, update=pb.Variable.DENSE, bytes=12)


def test_a_copy_is_not_refreshed_from_a_ps_that_has_the_slot_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has moved, and the next assignment is not here yet: nothing is copied, and the copy is as old as it is."""
    monkeypatch.setattr(refreshing, "RETRY_SECONDS", 0.05)
    world.guard(seconds=0.05)
    world.next_report(2)
    destroy("grpc://" + world.cluster.ps[0], 0, world.cluster.ps[0], world.variables)
    with world.changed:
        failed = lambda: [report.error for report in world.reports if report.error]  # noqa: E731
        assert world.changed.wait_for(lambda: len(failed()) >= 3, 30)
    first = next(number for number, report in enumerate(world.reports) if report.error)
    assert not any(report.slots for report in world.reports[first:])
    assert "is not on its PS any more" in failed()[-1]


def test_what_nobody_has_initialised_takes_the_backup_of_nothing_else(world: World) -> None:
    alone = pb.Variable(name="alone", dtype=1, shape=[3], slot=2, update=pb.Variable.DENSE, bytes=12)
    world.variables = tuple(of_kind(one, world.variables[0].reference) for one in (alone, NEVER, *VARIABLES))
    world.update(7, 1.5)
    world.guard(seconds=0.2)
    report = world.next_report(1)
    assert sorted(report.slots) == [2, 3] and not report.error
    world.write("never", np.arange(3, dtype=np.float32))  # now somebody has: copied with the next refreshes
    with world.changed:
        assert world.changed.wait_for(lambda: any(one.first and not one.error for one in world.reports[1:]), 30)
    world.peer_backup.promote([2, 3], step=42)
    assert list(world.read(1, "never")) == [0, 1, 2]  # type: ignore[call-overload]
    assert world.read(1, "table")[7][0] == 1.5  # type: ignore[index]


def test_a_slot_that_cannot_be_copied_keeps_the_backup_of_no_other(world: World) -> None:
    """It is whole on the owner under another shape: no copy of it can be made."""
    wrong = pb.Variable(
        name="w", dtype=1, shape=[5, 1000], slot=2, update=pb.Variable.ROWS, bytes=20_000, bitmap="wrong@dirty"
    )
    kind = world.variables[0].reference
    world.variables = (of_kind(wrong, kind), *(one for one in world.variables if one.name != "w"))
    make_bitmaps("grpc://" + world.cluster.ps[0], 0, world.variables)
    world.guard(seconds=0.1)
    with world.changed:
        assert world.changed.wait_for(lambda: sum(list(one.slots) == [3] for one in world.reports) > 2, 30), (
            world.reports
        )
        assert all(2 not in one.slots for one in world.reports) and any(one.error for one in world.reports)
        assert sum(one.first and bool(one.slots) for one in world.reports) == 1, "the other one is copied whole once"


def test_a_variable_that_the_catalogue_gets_later_is_promoted_too(world: World) -> None:
    late = of_kind(NEVER, world.variables[0].reference)
    world.guard()
    world.next_report(1)
    world.variables = (*world.variables, late)
    world.write("never", np.arange(3, dtype=np.float32))
    world.guard(2)
    with world.changed:
        assert world.changed.wait_for(lambda: any(one.guard == 2 and one.slots for one in world.reports), 30)
    world.peer_backup.promote([3], step=42)
    assert list(world.read(1, "never")) == [0, 1, 2]  # type: ignore[call-overload]


def test_what_was_never_initialised_is_not_there_after_it_was_destroyed(world: World) -> None:
    never = of_kind(NEVER, world.variables[0].reference)
    destroy("grpc://" + world.cluster.ps[0], 0, world.cluster.ps[0], [never])
    facts = Facts.from_proto(never)
    assert not world.run(0, lambda ops: Located(ops, facts, 0).initialized(), fetch=True)
    destroy("grpc://" + world.cluster.ps[0], 0, world.cluster.ps[0], world.variables)
    assert not world.has(0, world.facts("table"))


def test_a_hold_does_not_wait_for_a_collection_that_hangs_on_a_dead_ps() -> None:
    collecting, inside, over = Collecting(), threading.Event(), threading.Event()

    def hang() -> None:
        with collecting:
            inside.set()
            over.wait(60)

    thread = threading.Thread(target=hang, daemon=True)
    thread.start()
    assert inside.wait(10)
    assert not collecting.hold(5.0, 0.01)
    collecting.forget(thread)
    assert collecting.hold(5.0, 5.0)
    over.set()
    thread.join(10)
    assert collecting.hold(0.0, 0.0)


def test_backups_that_are_made_again_and_again_leave_no_sessions_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change of the PS makes some anew: in the one session of all promotions, a PS grew by megabytes a change."""
    monkeypatch.setattr(held_slots, "PROMOTIONS_MAX", 2)
    made: list[Program] = []
    closed: list[Program] = []
    make, close = Program.__init__, Program.close
    monkeypatch.setattr(Program, "__init__", lambda self, *given: (made.append(self), make(self, *given))[1])
    monkeypatch.setattr(Program, "close", lambda self: (close(self), closed.append(self))[0])
    for number in range(1, 8):
        world.guard(2 * number)
        with world.changed:
            assert world.changed.wait_for(lambda n=2 * number: any(r.first and r.guard == n for r in world.reports), 30)
        if number < 7:
            world.peer_backup.guard(pb.Guard(id=2 * number + 1))
    for _ in range(200):
        left = [program for program in made if program not in closed]
        if len(left) <= 3:  # of the backup, the newest of promotions, and perhaps the one before
            break
        threading.Event().wait(0.05)
    assert len(left) <= 3, left
    assert world.peer_backup._compiled <= 2, "the graph of a session does not grow for ever"
    world.update(7, 1.5)
    world.peer_backup.refresh()
    with world.changed:  # one refresh more may have been due before
        assert world.changed.wait_for(lambda: any(not r.first and r.bytes > DIM * 4 for r in world.reports), 30)
    world.peer_backup.promote([3], step=42)
    assert world.read(1, "table")[7][0] == 1.5  # type: ignore[index]


def test_a_ps_that_leaves_closes_its_session_on_the_ps_it_reads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it stays there for good: the other PS does not notice that its reader has gone."""
    made: list[Program] = []
    closed: list[Program] = []
    make, close = Program.__init__, Program.close

    def note(self: Program, target: str, config: tf.compat.v1.ConfigProto) -> None:
        if len(config.cluster_def.job[0].tasks) > 1:  # others end with the process
            made.append(self)
        make(self, target, config)

    monkeypatch.setattr(Program, "__init__", note)
    monkeypatch.setattr(Program, "close", lambda self: (close(self), closed.append(self))[0])
    world.guard(seconds=0.01)  # it refreshes all the time
    world.next_report(3)
    world.peer_backup.close()
    assert made and set(made) == set(closed)
    heard = len(world.reports)
    threading.Event().wait(0.1)
    assert len(world.reports) == heard, "nobody keeps them any more"
