"""One scaling under way: its record, its transitions, and sending commands to many with a deadline.

Bytes are counted so: `bytes_moved` is the first copy, `bytes_resent` the dirty rows sent again. An ack of FIRST reports
its bytes as the first copy, an ack of DIRTY as resent. FINAL copies dense variables for the first time and the last
dirty rows again: its ack's `bytes` are the dense bytes and its `remaining_bytes` the dirty bytes it sent again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
from collections.abc import Iterable, Mapping
from typing import Any

from deeprec_ext.aimaster.core.records import Scaling
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.membership import commands
from deeprec_ext.aimaster.membership.commands import CommandError
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.pods.pods import Pods
from deeprec_ext.aimaster.scaling.machine import State, check_edge, holder, tell_holds
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.errors import DeepRecError, UnreachableError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)
NEW_POD_GRACE_SECONDS = 5.0

HAND_OVER_SECONDS = 300.0
"""How long a PS that leaves stays for the backups that nobody else has: until others have copied them, terabytes perhaps."""

PAUSES_KEPT = 200
"""Workers whose pause a record has one by one."""


class StepError(DeepRecError):
    """A state cannot reach its end: roll back with this reason."""


class RefusedScalingError(DeepRecError):
    """The scaling must not be tried."""


CAUGHT = (CommandError, StepError, UnreachableError)
"""What rolls a scaling back."""


def tell_ended(job: Job, s: Scaling) -> None:
    """As an event."""
    job.event(
        "scaling_ended", scaling=s.id, kind=s.kind, target=s.role, from_count=s.from_count, to_count=s.to_count,
        outcome=s.outcome, reason=s.reason, bytes_moved=s.bytes_moved, bytes_resent=s.bytes_resent,
        slots_moved=s.slots_moved, seconds=round(s.seconds, 3), **of_workers(s),
        **({"requested_by": s.requested_by} if s.requested_by else {}),
    )  # fmt: skip


def of_workers(s: Scaling) -> dict[str, Any]:
    """The fields of an event that a change of both has more."""
    return {"workers_from": s.workers_from, "workers_to": s.workers_to} if s.both else {}


class ScalingRun:
    """A scaling in the hands of its driver. What it changes is persisted at once."""

    def __init__(self, job: Job, pods: Pods, scaling: Scaling) -> None:
        self.job, self.pods, self.scaling = job, pods, scaling
        self._loop = asyncio.get_running_loop()
        self.began = self.now()
        tell_holds(job.lock, scaling)

    def now(self) -> float:
        return self._loop.time()

    @property
    def state(self) -> State:
        return State(self.scaling.state)

    def take(self, *holds: Hold, names: Iterable[str] = ()) -> None:
        self.job.lock.take(holder(self.scaling), *holds, names=names)

    def give_back(self, *holds: Hold) -> None:
        self.job.lock.give_back(holder(self.scaling), *holds)

    # ------------------------------------------------------------------------------------------------ record

    def update(self, *, moved: bytes | None = None, **changes: Any) -> None:
        self.scaling = dataclasses.replace(self.scaling, **changes)
        self.job.store.save_scaling(self.scaling, moved)
        self.job.replicate_soon()
        self.job.changed.notify()

    def enter(self, state: State, detail: str = "", **changes: Any) -> None:
        """Persists the next state before anything of it is done."""
        comment = check_edge(self.state, state)
        self.update(state=state.value, detail=detail or comment, **changes)
        tell_holds(self.job.lock, self.scaling)
        self.job.event("scaling_state", scaling=self.scaling.id, state=state.value, detail=self.scaling.detail)

    def finish(self, outcome: str, reason: str = "") -> None:
        """To STEADY, with the outcome."""
        seconds = self.job.clock.wall() - self.scaling.started if self.scaling.started else 0.0
        if self.state is not State.STEADY:
            check_edge(self.state, State.STEADY)
        reason = reason or self.scaling.reason
        self.give_back(Hold.NEW_PODS)
        self.update(
            state=State.STEADY.value, detail=outcome, outcome=outcome, reason=reason, seconds=max(0.0, seconds),
            slots_moved=self.scaling.slots_moved if outcome == "committed" else 0,  # else they stay where they are
            moved=b"",  # nobody asks for it any more, and it is the largest part of the record
        )  # fmt: skip
        tell_holds(self.job.lock, self.scaling)
        tell_ended(self.job, self.scaling)

    def add_pause(self, report: pb.PauseReport) -> None:
        self.update(**pause_changes(self.scaling, report))

    async def stored(self) -> float:
        """Waits until the disk has every state until now, and says so; the seconds that it took, 0: it had."""
        if not self.job.store.behind:
            return 0.0
        began, detail = self.now(), self.scaling.detail
        self.update(detail=f"waits for the disk: {self.job.store.behind}")
        await self.job.stored()
        self.update(detail=detail)
        return self.now() - began

    # ------------------------------------------------------------------------------------------------ commands

    async def ask(
        self, members: Mapping[str, Member], timeout_seconds: float, what: str, *, may_die: bool, **command: Any
    ) -> dict[str, pb.Ack]:
        """Sends the same command to all and waits for all acks. Raises CommandError."""
        names: Iterable[str] = members if may_die else ()
        return await commands.gather(self.job.send(members, **command), timeout_seconds, what, may_die=names)

    async def insist(self, futures: Mapping[str, asyncio.Future[pb.Ack]], timeout_seconds: float, what: str) -> None:
        """Waits for acks where there is no way back: who does not answer is noted, and dealt with as failed later."""
        results = await asyncio.gather(
            *(commands.gather({name: future}, timeout_seconds, what) for name, future in futures.items()),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, CommandError):
                self.job.event("warning", text=f"scaling {self.scaling.id}: {result}")
            elif isinstance(result, BaseException):
                raise result

    # ------------------------------------------------------------------------------------------------ pods

    async def acquire(self, timeout_seconds: float) -> None:
        """Creates the new pods that are not there yet and waits until they are registered."""
        job, added = self.job, self.scaling.added
        if added:
            await self.stored()
        self.take(Hold.NEW_PODS, names=added)
        for name in added:
            record = job.members.record(name)
            if record is None or not record.wanted or record.ended:
                await self.pods.create(name)
        self.update(detail=f"waiting for {', '.join(added)}" if added else "")

        def there(name: str) -> bool:
            member = job.members.get(name)
            return member is not None and (member.admitted or name in self.scaling.joining)

        def over() -> list[str]:
            return [name for name in added if not there(name) and self.pods.exited(name)]

        in_time = await job.changed.until(lambda: bool(over()) or all(there(name) for name in added), timeout_seconds)
        if failed := over():
            raise StepError(f"{', '.join(failed)} ended before it registered; see its log")
        if not in_time:
            late = [name for name in added if not there(name)]
            reasons = {name: why for name in late if (why := self.pods.backend.waiting_reason(name))}
            why = "".join(f"; {name}: {reason}" for name, reason in reasons.items())
            raise StepError(f"{', '.join(late)} did not register within {timeout_seconds:.0f} s{why}")

    async def delete_added(self) -> None:
        for name in self.scaling.added if not self.scaling.returning else ():
            await self.pods.remove(name, NEW_POD_GRACE_SECONDS)

    async def release(self, timeout_seconds: float) -> None:
        """Tells the drained to leave, waits for their exit, then removes their pods."""
        job, drained = self.job, self.scaling.drained
        for name in drained:
            record = job.members.record(name)
            if record is not None:
                state = record.state if record.ended else "leaving"
                job.members.update(name, wanted=False, state=state)
        await self._hand_over(drained)
        for name in drained:
            member = job.members.get(name)
            if member is not None:
                job.commander.send(member.outbox, leave=pb.Leave(reason=f"scaling {self.scaling.id}"))
        registered = tuple(name for name in drained if job.members.get(name) is not None)
        late = await self.pods.wait_exit(registered, timeout_seconds)
        for name in drained:
            if name in late:
                job.event("warning", name, text=f"did not exit within {timeout_seconds:.0f} s and is killed")
            await self.pods.remove(name, 0.0 if name in late else NEW_POD_GRACE_SECONDS)
            job.members.drop(name, "scaled away")

    async def _hand_over(self, names: tuple[str, ...]) -> None:
        """Until others have the copies that these alone have: PS of what they guarded and owned, a trainer as the holder."""
        job = self.job
        members = [member for name in names if (member := job.members.get(name)) is not None]
        tasks = {member.task for member in members if not member.is_trainer}

        def left() -> list[int]:
            return job.peer_backups.held_only_by(tasks) or job.trainer_backups.held_only_by(names)

        if not left():
            return
        self.update(detail="backups are handed over")
        if not await job.changed.until(lambda: bool(job.ending) or not left(), HAND_OVER_SECONDS):
            slots = left()
            job.event("warning", text=f"{', '.join(names)} leaves before others have backups of the slots {slots}")


def pause_changes(scaling: Scaling, report: pb.PauseReport) -> dict[str, Any]:
    """The fields of a record that a worker's report changes.

    Of more than PAUSES_KEPT workers a fair sample is kept (Vitter's algorithm R), and always the longest: the record is
    written again with each report, and goes with the others to those who keep them (`replicated`).
    """
    kept, heard = list(scaling.pause_seconds), max(scaling.pauses_heard, len(scaling.pause_seconds)) + 1
    value = round(report.pause_seconds, 6)
    if len(kept) < PAUSES_KEPT:
        kept.append(value)
    else:
        longest = max(range(len(kept)), key=kept.__getitem__)
        if value > kept[longest]:
            kept[longest], value = value, kept[longest]
        place = random.Random(f"{scaling.id} {heard}").randrange(heard)
        if place < len(kept) and place != longest:
            kept[place] = value
    changes = {
        "pause_seconds": tuple(kept),
        "pauses_heard": heard,
        "gate_waits": scaling.gate_waits + report.gate_waits,
    }
    if report.pause_seconds >= max(scaling.pause_seconds, default=0.0):
        changes["pause_cause"] = report.cause
    return changes
