"""A parameter server, which never runs the user's script. `serve` is its program.

A TensorFlow server that knows nobody, an agent, and one thread that carries out the AIMaster's commands: pulling slots
here (`Mover`), destroying what has moved away, leaving.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf

from deeprec_ext.elastic.agent.agent import Agent, Identity
from deeprec_ext.elastic.agent.background import GivenUpError, politely
from deeprec_ext.elastic.agent.commands import ELSEWHERE, Table, carry_out
from deeprec_ext.elastic.agent.metrics_collector import ProcessPart, Sampler
from deeprec_ext.elastic.ps.calling_off import CalledOffError, CallingOff
from deeprec_ext.elastic.ps.collecting import Collecting
from deeprec_ext.elastic.ps.collector import make_bitmaps
from deeprec_ext.elastic.ps.copies import Parting
from deeprec_ext.elastic.ps.disk import COMMANDS, Disk
from deeprec_ext.elastic.ps.fetching import fetch
from deeprec_ext.elastic.ps.migration import Mover, absent, destroy
from deeprec_ext.elastic.ps.peer_backup import PeerBackup
from deeprec_ext.elastic.ps.touched import Touched
from deeprec_ext.elastic.runtime.starting import start_server
from deeprec_ext.elastic.runtime.trimming import keep_trimming
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")

HOLD_LIMIT_SECONDS = 5.0
"""How long Hold waits for a collection of dirty marks that is under way."""

CLOSE_LIMIT_SECONDS = 3.0
"""How long a PS that leaves closes its sessions: where another PS has gone as well, that never ends."""

CLOSE_AFTER_SECONDS = 5.0
"""How long after a change sessions are closed that it needed."""

COPIES = ("copy", "compile", "destroy", "fetch", "call_off", "leave")
"""Commands that may take long and follow one another (what is compiled comes before its `destroy`); the others must not wait
behind them."""


class ParameterServer:
    """One PS of a job."""

    def __init__(self) -> None:
        self._server, address = start_server()
        self._target = f"grpc://{address}"
        self.identity = Identity.of_this_process(address)
        self.agent = Agent(self.identity, self, tf.__version__)
        self.leaving = threading.Event()
        self.touched = Touched()
        self.sampler = Sampler(self.agent, {"the process": ProcessPart(), "rows touched": self.touched.report})
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._urgent: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._task = -1
        self._settings = pb.AgentSettings()
        self._movers: dict[int, Mover] = {}  # by scaling
        self._fetches = CallingOff()
        self._compiling = CallingOff()
        self._parting: Parting | None = None  # what was compiled last
        self.collecting = Collecting()
        self.peer_backup = PeerBackup(
            self._target, lambda: self._task, self._chunk_bytes, self.collecting, self.agent.send,
            partial(self.touched.add, "peer"),
        )  # fmt: skip
        self.disk = Disk(
            self._target, lambda: self._task, self.collecting, self.agent.ack, partial(self.touched.add, "disk")
        )
        self._table: Table = {
            "copy": self._copy, "look": self._look, "compile": self._compile, "destroy": self._destroy,
            "track": self._track, "guard": self._guard, "refresh": lambda _: self.peer_backup.refresh(),
            "promote": self._promote, "fetch": self._fetch, "call_off": self._call_off, "hold": self._hold,
            "leave": self._leave,
        }  # fmt: skip
        self._phases = {
            pb.Copy.ARM: self._arm, pb.Copy.FIRST: self._first, pb.Copy.DIRTY: self._dirty, pb.Copy.FINAL: self._final,
            pb.Copy.ABORT: self._abort,
        }  # fmt: skip
        threading.Thread(target=self._serve_urgent, name="deeprec-urgent", daemon=True).start()
        keep_trimming(self.leaving)

    # -- the agent's handler

    def registered(self, reply: pb.RegisterReply) -> None:
        if self._task != reply.task:
            log.info("%s serves task %d at %s", self.identity.name, reply.task, self._target)
        self._task, self._settings = reply.task, reply.settings
        self.touched.follow(reply.view)
        self.sampler.follow(reply.settings.gazer_seconds)
        self.peer_backup.report_again()

    def fenced(self, reason: str) -> None:
        log.error("%s; this PS ends", reason)
        os._exit(75)

    def tell(self, known: pb.Known) -> None:
        """Its agent has heard everything there is; its backups are reported after each registration anyway."""

    def beat(self) -> pb.Heartbeat:
        return pb.Heartbeat(epoch=self.agent.known_epoch)

    def receive(self, message: pb.MasterMessage) -> None:
        if message.HasField("publish"):
            self.touched.follow(message.publish.view)
        if message.WhichOneof("message") == "command":
            command = message.command
            kind = command.WhichOneof("command")
            if kind in COMMANDS:
                self.disk.put(command)
                return
            if kind in ("fetch", "call_off"):
                self._fetches.call_off(command.id)
            if kind in ("compile", "destroy", "call_off", "leave") or command.copy.phase == pb.Copy.ABORT:
                self._compiling.call_off(command.id)
            if kind == "call_off":
                self.disk.call_off(command.id)
            if command.copy.phase == pb.Copy.ABORT:
                for mover in list(self._movers.values()):
                    mover.cancelled = True
            which = self._jobs if kind in COPIES else self._urgent
            which.put(lambda: self._carry_out(command))

    # -- commands: copies in the main thread, what must not wait for them in another

    def _serve_urgent(self) -> None:
        while True:
            self._urgent.get()()

    def serve(self) -> None:
        """Until told to leave."""
        while (job := self._jobs.get()) is not None:
            job()
        closing = threading.Thread(target=self._close_sessions, name="deeprec-close", daemon=True)
        closing.start()
        self.agent.close()
        closing.join(CLOSE_LIMIT_SECONDS)

    def _close_sessions(self) -> None:
        """Those that reach into other PS, which would keep their part for good: half a megabyte for each change of PS."""
        self.peer_backup.close()
        for mover in list(self._movers.values()):
            mover.close()

    def stop(self) -> None:
        self.leaving.set()
        self._jobs.put(None)

    def _carry_out(self, command: pb.Command) -> None:
        carry_out(self._table, command, "a PS", self.agent.ack, (CalledOffError,))

    def _look(self, command: pb.Command) -> dict[str, Any]:
        names = absent(self._target, self._task, self.identity.address, command.look.variables)
        return {"copy": pb.CopyResult(skipped=names)}

    def _compile(self, command: pb.Command) -> None:
        self._forget_parting()
        variables, number = command.compile.variables, command.id

        def make() -> Parting | None:
            made = Parting(self._target, self._task, variables, command.compile.keep)
            if not self._compiling.is_off(number):
                return made
            made.close()
            return None

        known = not any(variable.reference for variable in variables)
        if variables and known and not self._compiling.is_off(number):
            with contextlib.suppress(GivenUpError):  # what it was for has come, or is over
                self._parting = politely(make, give_up=partial(self._compiling.is_off, number))

    def _forget_parting(self) -> None:
        parting, self._parting = self._parting, None
        if parting is not None:  # outside the pause
            _later(parting.close)

    def _destroy(self, command: pb.Command) -> None:
        variables, keep = command.destroy.variables, command.destroy.keep
        self.disk.forget(variables)
        parting, again, done = self._parting, frozenset[int](), frozenset[str]()
        try:
            if keep.moves:
                again, parted = self.peer_backup.keep(keep, parting)
                done = frozenset(move.variable.name for move in keep.moves if parted)
            elif parting is not None and parting.destroy(variables):
                done = frozenset(variable.name for variable in variables)
            rest = [variable for variable in variables if variable.slot not in again and variable.name not in done]
            if rest:
                destroy(self._target, self._task, self.identity.address, rest)
        finally:
            self._forget_parting()

    def _track(self, command: pb.Command) -> None:
        make_bitmaps(self._target, self._task, command.track.variables)

    def _guard(self, command: pb.Command) -> None:
        self.collecting.hold(0.0, 0.0)
        self.peer_backup.guard(command.guard)

    def _promote(self, command: pb.Command) -> None:
        self.peer_backup.promote(command.promote.slots, command.promote.step)

    def _fetch(self, command: pb.Command) -> None:
        fetch(self._target, self._task, command.fetch, self._chunk_bytes(), partial(self._fetches.is_off, command.id))

    def _call_off(self, command: pb.Command) -> dict[str, Any]:
        """Whatever fetched has ended, since its turn was before; who restores answers next."""
        self.disk.put(command)
        return ELSEWHERE

    def _hold(self, command: pb.Command) -> None:
        if not self.collecting.hold(command.hold.lease_seconds, HOLD_LIMIT_SECONDS):
            raise DeepRecError(f"a backup of {self.identity.name} did not end within {HOLD_LIMIT_SECONDS:g} s")

    def _leave(self, command: pb.Command) -> None:
        log.info("leaving the job: %s", command.leave.reason)
        self.stop()

    def _chunk_bytes(self) -> int:
        return self._settings.copy_chunk_bytes or 8 << 20

    def _copy(self, command: pb.Command) -> dict[str, Any]:
        started, copy = time.monotonic(), command.copy
        result = self._phases[copy.phase](copy)
        result.seconds = time.monotonic() - started
        log.info(
            "copy %s of scaling %d: %d bytes, %d dirty, %.3f s",
            pb.Copy.Phase.Name(copy.phase), copy.scaling_id, result.bytes, result.remaining_bytes, result.seconds,
        )  # fmt: skip
        return {"copy": result}

    def _arm(self, copy: pb.Copy) -> pb.CopyResult:
        self._forget_movers(except_for=copy.scaling_id)
        ps = {member.task: member.address for member in copy.ps}
        mover = Mover(self._target, self._task, ps, copy.moves, self._chunk_bytes())
        self._movers[copy.scaling_id] = mover
        variables = politely(
            mover.arm, self._settings.verify_copies, copy.tracked, copy.guarded, give_up=lambda: mover.cancelled
        )
        return pb.CopyResult(variables=variables, skipped=mover.skipped)

    def _first(self, copy: pb.Copy) -> pb.CopyResult:
        mover = self._mover(copy)
        return pb.CopyResult(bytes=politely(mover.first, give_up=lambda: mover.cancelled))

    def _dirty(self, copy: pb.Copy) -> pb.CopyResult:
        mover = self._mover(copy)
        sent, remaining = politely(mover.dirty, give_up=lambda: mover.cancelled)
        return pb.CopyResult(bytes=sent, remaining_bytes=remaining)

    def _final(self, copy: pb.Copy) -> pb.CopyResult:
        mover = self._mover(copy)
        sent, remaining = mover.final()
        result = pb.CopyResult(bytes=sent, remaining_bytes=remaining, checksummed=mover.verify())
        self.agent.memory.has_arrived(copy.scaling_id)
        _later(partial(self._forget_movers, None, copy.scaling_id))
        return result

    def _abort(self, copy: pb.Copy) -> pb.CopyResult:
        self._forget_movers()
        gone = [_without_bitmap(move.variable) for move in copy.moves]
        destroy(self._target, self._task, self.identity.address, gone)
        return pb.CopyResult()

    def _mover(self, copy: pb.Copy) -> Mover:
        if copy.scaling_id not in self._movers:
            raise DeepRecError(f"scaling {copy.scaling_id} was not armed on {self.identity.name}")
        return self._movers[copy.scaling_id]

    def _forget_movers(self, except_for: int | None = None, only: int | None = None) -> None:
        """Closes the sessions of other scalings; outside the pause."""
        for scaling_id in list(self._movers):
            if scaling_id != except_for and (only is None or scaling_id == only):
                mover = self._movers.pop(scaling_id)
                threading.Thread(target=mover.close, name="deeprec-close", daemon=True).start()


def _later(close: Callable[[], None]) -> None:
    timer = threading.Timer(CLOSE_AFTER_SECONDS, close)
    timer.name, timer.daemon = "deeprec-close", True
    timer.start()


def _without_bitmap(variable: pb.Variable) -> pb.Variable:
    """Bitmaps belong to the source: when a scaling is rolled back trainers may still mark there."""
    copy = pb.Variable()
    copy.CopyFrom(variable)
    copy.bitmap = ""
    return copy
