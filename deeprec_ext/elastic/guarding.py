"""Peer backups: what this PS keeps of other PS's slots, and how it becomes the owner when such a PS dies.

A backup of variable `v` is the variable `v@backup` on this PS. It is made by a `Mover`, like a migration: bitmaps, a first copy
in chunks, then every few seconds the rows that were marked meanwhile, pulled from the owner by this PS. No training step
waits for it, and workers know nothing of it but the marks.

Promotion turns `v@backup` into `v`. Nothing is copied: the new variable takes the old one's buffer. (A read of a table copies,
unless `DisableCopyOnRead` is called first: sparse access switches a variable to copy-on-read.) The ops for it are compiled
when the backup is made, in a session that knows no PS but this one, so it depends on nothing that may be dead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from deeprec_ext.elastic.background import politely, without_collections
from deeprec_ext.elastic.collecting import Collecting
from deeprec_ext.elastic.collector import all_bitmaps, make_bitmaps
from deeprec_ext.elastic.migration import Mover
from deeprec_ext.elastic.ops import INT64, Ops, Program
from deeprec_ext.elastic.variables import Facts, Located, bitmap_of
from deeprec_ext.elastic.view import elastic_config
from deeprec_ext.errors import DeepRecError, one_line
from deeprec_ext.graph.attributes import kind, shape
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")

SUFFIX = "@backup"

RUN_LIMIT_SECONDS = 60.0
"""Longest single run of a refresh: a PS whose node vanished sends no error."""

RETRY_SECONDS = 1.0
"""After a refresh that failed, how long until the whole copy is made anew."""

PROMOTIONS_MAX = 8
"""Compiled in one session, whose graph can only grow; the next ones go into a new session."""


@dataclass
class _Guarded:
    """One slot of another PS in our keeping."""

    slot: int
    source: int
    address: str
    variables: tuple[pb.Variable, ...]
    mover: Mover | None = None  # None: a first copy is due
    promote: Callable[..., Any] | None = None
    program: Program | None = None  # where `promote` is compiled
    began: float | None = None  # monotonic, of the last complete copy or refresh; None: there is none yet
    full_bytes: int = 0
    global_step: str = ""
    retired: bool = False  # not to be kept any more; a thread that was left behind must not make a mover for it

    @property
    def key(self) -> object:
        variables = tuple(variable.SerializeToString(deterministic=True) for variable in self.variables)
        return self.source, self.address, self.global_step, variables


@dataclass(frozen=True)
class _Assignment:
    guard: int
    slots: Mapping[int, _Guarded] = field(default_factory=dict)
    seconds: float = 5.0
    owned: frozenset[int] = frozenset()


class Guarding:
    """All peer backups on this PS. `guard`, `refresh` and `promote` are called by the PS's command thread.

    Args:
      target: `grpc://host:port` of this PS.
      own_task: its task number, once known.
      chunk_bytes: about how much one run of a first copy carries.
      send: to the AIMaster.
      touched: is told slot and number of dirty rows that were taken.
      reader: as whom it reads dirty rows (`collector.READERS`).
      promotes: whether the copies can become variables here; a holder's are pulled by a PS (`fetching`).
    """

    def __init__(
        self, target: str, own_task: Callable[[], int], chunk_bytes: Callable[[], int], collecting: Collecting,
        send: Callable[[pb.AgentMessage], None], touched: Callable[[int, int], None] = lambda slot, rows: None,
        reader: str = "peer", promotes: bool = True,
    ) -> None:  # fmt: skip
        self._touched, self._reader, self.promotes = touched, reader, promotes
        self.frozen = False  # nothing is to be read before the next assignment
        self._target, self._own_task, self._chunk_bytes = target, own_task, chunk_bytes
        self._collecting, self._send = collecting, send
        self._lock = threading.Lock()
        self._now = _Assignment(0)
        self._promoted: set[int] = set()
        self._programs: list[Program] = []  # of promotions: they know this PS only; the last is added to
        self._compiled = 0  # in the last of them
        self._promoting = False
        self._keeper: _Keeper | None = None

    # -- commands

    def guard(self, command: pb.Guard) -> None:
        """Another assignment; what stays as it is goes on by dirty rows."""
        ps = {member.task: member.address for member in command.ps}
        wanted: dict[int, list[pb.Variable]] = {}
        sources: dict[int, int] = {}
        for move in command.moves:
            wanted.setdefault(move.variable.slot, []).append(move.variable)
            sources[move.variable.slot] = move.source_task
        with self._lock:
            if command.id < self._now.guard:
                return
            old, slots = self._now.slots, {}
            for slot, variables in wanted.items():
                fresh = _Guarded(
                    slot, sources[slot], ps[sources[slot]], tuple(variables), global_step=command.global_step
                )
                known = old.get(slot)
                if known is not None and known.key == fresh.key:
                    fresh = known
                elif known is not None:
                    fresh.began, fresh.full_bytes = known.began, known.full_bytes
                    fresh.promote, fresh.program = known.promote, known.program
                slots[slot] = fresh
            self._now = _Assignment(command.id, slots, command.seconds, frozenset(command.owned))
            self._promoted.clear()
            self.frozen = False
        gone = [one for slot, one in old.items() if slots.get(slot) is not one]
        if self._keeper is None or not self._keeper.take(self._now, gone):
            if self._keeper is not None:
                self._collecting.forget(self._keeper)
            self._keeper = _Keeper(self)
            self._keeper.take(self._now, gone)

    def refresh(self) -> None:
        if self._keeper is not None:
            self._keeper.wake("refresh")

    def freeze(self) -> None:
        """The copies stay as they are until the next assignment, whatever PS is at the old one's address meanwhile."""
        self.frozen = True

    def close(self) -> None:
        """Ends all backups, for a PS that leaves: a session that nobody closes stays on the PS it reads for good."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.stop()
        for one in self._now.slots.values():
            if one.mover is not None:
                one.mover.close()

    def report_again(self) -> None:
        """To an AIMaster that may be new: what is kept here, and how old it is."""
        with self._lock:
            slots, promoted, guard = list(self._now.slots.values()), sorted(self._promoted), self._now.guard
        for one in slots:
            if one.began is not None and one.slot not in promoted:
                self.report(pb.BackupReport(guard=guard, slots=[one.slot], age_seconds=time.monotonic() - one.began))
        if promoted:  # kept so well that they are variables already
            self.report(pb.BackupReport(guard=guard, slots=promoted))

    def promote(self, slots: Sequence[int], step: int) -> None:
        """The backups of these slots become the variables. Again: nothing. Raises DeepRecError when one is missing."""
        started = time.monotonic()
        with self._lock:
            due = [slot for slot in slots if slot not in self._promoted]
            missing = [slot for slot in due if slot not in self._now.slots or self._now.slots[slot].promote is None]
            if missing:
                raise DeepRecError(f"there is no complete backup of the slots {missing} here")
            ready = [(slot, promote) for slot in due if (promote := self._now.slots[slot].promote) is not None]
            variables = [variable for slot in due for variable in self._now.slots[slot].variables]
            self._promoting = True
        try:
            make_bitmaps(self._target, self._own_task(), variables)
            for slot, promote in ready:
                promote(step)
                with self._lock:
                    self._promoted.add(slot)
        finally:
            self._promoting = False
        log.info("promoted the backups of slots %s in %.3f s", list(slots), time.monotonic() - started)

    # -- for the keeper

    def report(self, report: pb.BackupReport) -> None:
        self._send(pb.AgentMessage(backup=report))

    def compile_promotion(self, one: _Guarded) -> None:
        """Sets `one.promote`: a function of the step."""
        own = self._own_task()
        with self._lock:
            if not self._programs or self._compiled >= PROMOTIONS_MAX:
                self._programs.append(
                    Program(self._target, elastic_config({own: self._target.removeprefix("grpc://")}))
                )
                self._compiled = 0
            self._compiled += 1
            program, ops = self._programs[-1], Ops(f"promote{self._compiled}_")
        step = ops.add("Placeholder", device=f"/job:ps/task:{own}/device:CPU:0", dtype=INT64, shape=shape([]))
        done = []
        for variable in one.variables:
            facts = Facts.from_proto(variable)
            backup = Located(ops, dataclasses.replace(facts, name=facts.name + SUFFIX), own)
            value = backup.take_value()
            if facts.name == one.global_step:
                value = at_least(ops, value, step, facts, backup.device)
            assigned = Located(ops, facts, own).assign(value)
            done.append(backup.destroy(after=(assigned,)))
        program.load(ops)
        promote = program.compile(targets=done, feeds=[step])
        with self._lock:
            one.promote, one.program = promote, program
        self.close_programs()

    def close_programs(self) -> None:
        """Those in which nothing is compiled that a promotion may need."""
        with self._lock:
            if self._promoting:
                return
            needed = [*self._programs[-1:], *(one.program for one in self._now.slots.values())]
            kept = [program for program in self._programs if program in needed]
            useless = [program for program in self._programs if program not in needed]
            self._programs = kept
        for program in useless:
            threading.Thread(target=program.close, name="deeprec-close", daemon=True).start()

    def mover_for(self, one: _Guarded) -> Mover:
        own = self._own_task()
        ps = {own: self._target.removeprefix("grpc://"), one.source: one.address}
        moves = [pb.Move(variable=variable, source_task=one.source) for variable in one.variables]
        return Mover(
            self._target, own, ps, moves, self._chunk_bytes(), reader=self._reader, suffix=SUFFIX,
            timeout_seconds=RUN_LIMIT_SECONDS, touched=self._touched,
        )  # fmt: skip

    def drop_copies(self, gone: Sequence[_Guarded], now: _Assignment) -> None:
        """Frees what is not to be kept any more."""
        own, ops = self._own_task(), Ops()
        doomed: list[str] = []
        for one in gone:
            kept = {variable.name for variable in now.slots[one.slot].variables} if one.slot in now.slots else set()
            for variable in one.variables:
                if variable.name in kept:
                    continue
                facts = Facts.from_proto(variable)
                useless = [dataclasses.replace(facts, name=facts.name + SUFFIX)]
                if facts.bitmap and one.slot not in now.owned:
                    useless += all_bitmaps(bitmap_of(facts))
                doomed += [Located(ops, facts, own).destroy() for facts in useless]
        if doomed:
            program = Program(self._target, elastic_config({own: self._target.removeprefix("grpc://")}))
            program.load(ops)
            program.compile(targets=doomed)()
            program.close()

    @property
    def collecting(self) -> Collecting:
        return self._collecting

    @property
    def lock(self) -> threading.Lock:
        """Of what changes in the slots."""
        return self._lock


class _Keeper:
    """One thread that keeps the backups up to date. When it hangs in a run on a dead PS, it is left behind."""

    def __init__(self, owner: Guarding) -> None:
        self._owner = owner
        self._inbox: queue.Queue[str] = queue.Queue(100)
        self._lock = threading.Lock()
        self._next: tuple[_Assignment, list[_Guarded]] | None = None
        self._source: int | None = None  # being read
        self._abandoned = False
        self._thread = threading.Thread(target=self._work, name="deeprec-guard", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns when its run has ended; it begins no other."""
        self._abandoned = True
        self.wake("stop")
        self._thread.join()

    def take(self, assignment: _Assignment, gone: list[_Guarded]) -> bool:
        """Hands over the next assignment. False: the thread reads from a PS that is not in it any more, probably a dead one,

        so nobody knows when it returns; it is left behind, and ends when it does."""
        with self._lock:
            if self._source is not None and self._source not in {one.source for one in assignment.slots.values()}:
                self._abandoned = True
                return False
            self._next = assignment, [*(self._next[1] if self._next else ()), *gone]
        self.wake("assignment")
        return True

    def wake(self, why: str) -> None:
        with contextlib.suppress(queue.Full):
            self._inbox.put_nowait(why)

    def _work(self) -> None:
        now, due = _Assignment(0), 0.0
        while not self._abandoned:
            pause = due - time.monotonic() if now.slots and now.seconds > 0 else RUN_LIMIT_SECONDS
            why = ""
            with contextlib.suppress(queue.Empty):
                why = self._inbox.get(timeout=max(0.0, pause))
            if self._abandoned:
                return
            with self._lock:
                taken, self._next = self._next, None
            if taken is not None:
                now, gone = taken
                self._retire(gone, now)
            elif not why and pause > 0 and now.seconds <= 0:
                continue
            started = time.monotonic()
            good = self._cycle(now)
            due = started + (now.seconds or RUN_LIMIT_SECONDS) if good else time.monotonic() + RETRY_SECONDS

    def _retire(self, gone: list[_Guarded], now: _Assignment) -> None:
        for one in gone:
            with self._owner.lock:  # a thread that was left behind may be copying it
                one.retired, mover, one.mover = True, one.mover, None
            if mover is not None:
                threading.Thread(target=mover.close, name="deeprec-close", daemon=True).start()
        try:
            self._owner.drop_copies(gone, now)
        except tf.errors.OpError as error:
            log.warning("old backups could not be removed: %s", one_line(error))

    def _cycle(self, now: _Assignment) -> bool:
        """One refresh of everything, source by source; whether all went well."""
        sources: dict[int, list[_Guarded]] = {}
        for one in now.slots.values():
            sources.setdefault(one.source, []).append(one)
        good = True
        for source, some in sources.items():
            with self._lock:
                if self._abandoned or self._next is not None:
                    return good
                self._source = source
            good = politely(self._refresh, now, some) and good
            with self._lock:
                self._source = None
        return good

    def _refresh(self, now: _Assignment, some: list[_Guarded]) -> bool:
        started, sent, first = time.monotonic(), 0, False
        owner = self._owner
        try:
            for one in some:
                if one.retired or owner.frozen:
                    return False
                began = time.monotonic()
                mover = one.mover
                if mover is None:
                    first = True
                    sent += self._first_copy(one)
                else:
                    sent += mover.refresh(self._turn)
                one.began = began
        except (tf.errors.OpError, DeepRecError) as error:
            for one in some:  # rows may have been taken and not arrived: everything again
                with owner.lock:
                    mover, one.mover = one.mover, None
                if mover is not None:
                    threading.Thread(target=mover.close, name="deeprec-close", daemon=True).start()
            if not owner.frozen and not any(one.retired for one in some):
                owner.report(pb.BackupReport(guard=now.guard, error=one_line(error)))
            return False
        age = time.monotonic() - min((one.began for one in some if one.began is not None), default=started)
        owner.report(
            pb.BackupReport(
                guard=now.guard, slots=[one.slot for one in some], bytes=sent,
                full_bytes=sum(one.full_bytes for one in some), seconds=time.monotonic() - started, age_seconds=age,
                first=first,
            )
        )  # fmt: skip
        return True

    def _turn(self) -> contextlib.AbstractContextManager[None]:
        """To be held while dirty rows are taken."""
        if self._owner.frozen:  # somebody else may read them by now
            raise DeepRecError("the copies are to stay as they are")
        return self._owner.collecting.by(self)

    def _first_copy(self, one: _Guarded) -> int:
        mover = self._owner.mover_for(one)
        try:
            with without_collections():
                mover.arm(verify=False, tracked=True)
            if self._owner.frozen:
                raise DeepRecError("the copies are to stay as they are")
            if mover.skipped:  # moved away meanwhile, or not restored yet: no complete copy of the slot
                names = ", ".join(mover.skipped[:3])
                raise DeepRecError(f"slot {one.slot}: {names} are not (any more) on the PS with task {one.source}")
            sent = mover.first()
            sent += mover.refresh(self._turn)
            one.full_bytes = sum(variable.bytes for variable in one.variables)
            if self._owner.promotes:
                self._owner.compile_promotion(one)
            with self._owner.lock:
                if one.retired:
                    raise DeepRecError(f"slot {one.slot} is not to be kept here any more")
                one.mover = mover
        except BaseException:
            threading.Thread(target=mover.close, name="deeprec-close", daemon=True).start()
            raise
        return sent


def at_least(ops: Ops, value: str, step: str, facts: Facts, device: str) -> str:
    """The larger of a scalar integer variable's value and the step."""
    number = kind(facts.dtype)
    cast = step if facts.dtype == tf.int64 else ops.add("Cast", [step], device, SrcT=INT64, DstT=number)
    return ops.add("Maximum", [value, cast], device, T=number)
