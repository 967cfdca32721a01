"""What this PS (or a trainer) holds of other PS's slots: the copies, and the ops that make variables of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deeprec_ext.elastic.ps.collecting import Collecting
from deeprec_ext.elastic.ps.copies import SUFFIX, add_promotion, destroy_backups
from deeprec_ext.elastic.ps.migration import Mover
from deeprec_ext.elastic.ps.variables import local_program
from deeprec_ext.elastic.runtime.ops import Ops, Program
from deeprec_ext.proto import deeprec_ext_pb2 as pb

RUN_LIMIT_SECONDS = 60.0
"""Longest single run of a refresh: a PS whose node vanished sends no error."""

PROMOTIONS_MAX = 8
"""Compiled in one session, whose graph can only grow; the next ones go into a new session."""


@dataclass
class HeldSlot:
    """One slot of another PS in our keeping."""

    slot: int
    source: int
    address: str
    variables: tuple[pb.Variable, ...]
    reader: str  # as whom its dirty rows are read (`collector.READERS`)
    generation: int = 0
    global_step: str = ""
    mover: Mover | None = None  # None: a first copy is due ...
    exact: bool = False  # ... unless the source keeps the dirty rows since our copy was exact
    promote: Callable[..., Any] | None = None
    program: Program | None = None  # where `promote` is compiled
    began: float | None = None  # monotonic, of the last complete copy or refresh; None: there is none yet
    full_bytes: int = 0
    left_out: frozenset[str] = (
        frozenset()
    )  # variables that the copy has not: nobody had initialised them, or they are new
    retired: bool = False  # not to be kept any more; a thread that was left behind must not make a mover for it

    @property
    def copied(self) -> list[pb.Variable]:
        return [variable for variable in self.variables if variable.name not in self.left_out]

    @property
    def key(self) -> object:
        variables = tuple(variable.SerializeToString(deterministic=True) for variable in self.variables)
        return self.source, self.address, self.reader, self.generation, self.global_step, variables


@dataclass(frozen=True)
class Assignment:
    guard: int
    slots: Mapping[int, HeldSlot] = field(default_factory=dict)
    seconds: float = 5.0
    owned: frozenset[int] = frozenset()


class HeldSlots:
    """All that are held here; `PeerBackup` has the commands, `Refresher` keeps the copies up to date.

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
        self.collecting, self._send = collecting, send
        self.lock = threading.Lock()  # of what changes in the slots
        self.copying = (
            threading.Lock()
        )  # while copies of ours are made of variables, or freed; a first copy begins after that
        self._now = Assignment(0)
        self._promoted: set[int] = set()
        self._programs: list[Program] = []  # of promotions: they know this PS only; the last is added to
        self._compiled = 0  # in the last of them
        self._promoting = False

    def report(self, report: pb.BackupReport) -> None:
        self._send(pb.AgentMessage(backup=report))

    def report_copies(self, some: Sequence[HeldSlot], **facts: Any) -> None:
        """These are complete."""
        next_slots = [one.slot for one in some if one.reader == "next"]
        self.report(pb.BackupReport(slots=[one.slot for one in some], next_slots=next_slots, **facts))

    def compile_promotion(self, one: HeldSlot) -> None:
        """Sets `one.promote`: a function of the step."""
        own = self._own_task()
        with self.lock:
            if not self._programs or self._compiled >= PROMOTIONS_MAX:
                self._programs.append(local_program(self._target, own))
                self._compiled = 0
            self._compiled += 1
            program, ops = self._programs[-1], Ops(f"promote{self._compiled}_")
        step, done = add_promotion(ops, own, one.copied, one.global_step)
        program.load(ops)
        promote = program.compile(targets=done, feeds=[step]) if done else lambda step: None
        with self.lock:
            one.promote, one.program = promote, program
        self.close_programs()

    def close_programs(self) -> None:
        """Those in which nothing is compiled that a promotion may need."""
        with self.lock:
            if self._promoting:
                return
            needed = [*self._programs[-1:], *(one.program for one in self._now.slots.values())]
            kept = [program for program in self._programs if program in needed]
            useless = [program for program in self._programs if program not in needed]
            self._programs = kept
        for program in useless:
            threading.Thread(target=program.close, name="deeprec-close", daemon=True).start()

    def mover_for(self, one: HeldSlot) -> Mover:
        own = self._own_task()
        ps = {own: self._target.removeprefix("grpc://"), one.source: one.address}
        moves = [pb.Move(variable=variable, source_task=one.source) for variable in one.variables]
        return Mover(
            self._target, own, ps, moves, self._chunk_bytes(), reader=one.reader, suffix=SUFFIX,
            timeout_seconds=RUN_LIMIT_SECONDS, touched=self._touched,
        )  # fmt: skip

    def drop_copies(self, gone: Sequence[HeldSlot]) -> None:
        """Frees what is not to be kept any more."""
        with self.copying:
            with self.lock:
                now = self._now
            doomed, bitmaps = [], []
            for one in gone:
                kept = {variable.name for variable in now.slots[one.slot].variables} if one.slot in now.slots else set()
                some = [variable for variable in one.variables if variable.name not in kept]
                doomed += some
                bitmaps += [one.slot not in now.owned] * len(some)
            destroy_backups(self._target, self._own_task(), doomed, bitmaps)
