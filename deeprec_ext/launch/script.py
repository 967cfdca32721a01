"""Fires the scripted events, in file order, one at a time, and knows when each has ended."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deeprec_ext.errors import JobFailedError, UnreachableError, UsageError
from deeprec_ext.launch.client import JobClient
from deeprec_ext.launch.events import ScriptedEvent
from deeprec_ext.launch.observer import Observer
from deeprec_ext.launch.roles.supervisor import Pods
from deeprec_ext.proto import deeprec_ext_pb2 as pb2

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.1


@dataclass
class Progress:
    """One event: what became of it. `outcome` is empty while it runs and before."""

    event: ScriptedEvent
    fired: bool = False
    outcome: str = ""  # committed, rolled_back, refused, no-op, recovered
    reason: str = ""
    step: int = 0  # at which it fired
    seconds: float = 0.0  # from firing to its end


class Script:
    """The events of one run. `clock` gives the seconds since the start of the job."""

    def __init__(
        self, events: Sequence[ScriptedEvent], client: JobClient, observer: Observer, pods: Pods,
        tell: Callable[[str], None], clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._client, self._observer, self._pods, self._tell, self._clock = client, observer, pods, tell, clock
        self.progress = [Progress(event) for event in events]

    @property
    def left(self) -> list[Progress]:
        """Events that have not ended, in order."""
        return [item for item in self.progress if not item.outcome]

    async def run(self) -> None:
        """Until the last event has ended, or cancelled: the job may end before."""
        for item in self.progress:
            event = item.event
            while not event.due(self._step(), self._clock()):
                await asyncio.sleep(_POLL_SECONDS)
                await self._observer.ask()  # more often than for the table: to fire close to its step
            item.fired, item.step, began = True, self._step(), time.monotonic()
            self._tell(f"event: {event}")
            if event.action in ("kill", "hang"):
                await self._strike(item)
            else:
                await self._scale(item)
            item.seconds = time.monotonic() - began
            because = f" ({item.reason})" if item.reason else ""
            self._tell(f"event: {event}: {item.outcome} after {item.seconds:.1f} s{because}")

    def _step(self) -> int:
        return self._observer.latest.step if self._observer.latest is not None else 0

    async def _scale(self, item: Progress) -> None:
        """Ask for it and wait for its outcome; the scaling itself has time limits in the AIMaster."""
        event = item.event
        request = pb2.ScaleRequest(reason=f"event: {event}")
        if event.action == "scale":
            for what, count in event.sizes.items():
                setattr(request, what, count)
        elif event.action == "rebalance":
            request.rebalance = True
        else:
            request.replace = event.target
        while True:
            try:
                reply = await self._client.scale(request)
                break
            except UnreachableError:  # the AIMaster is being restarted; to ask twice for a size is harmless
                await asyncio.sleep(_POLL_SECONDS)
            except (UsageError, JobFailedError) as error:
                item.outcome, item.reason = "refused", str(error)
                return
        if not reply.scaling_id:
            item.outcome, item.reason = "no-op", reply.message
            return
        while True:
            status = await self._observer.ask()
            scaling = next((one for one in status.scalings if one.id == reply.scaling_id), None) if status else None
            if scaling is not None and scaling.outcome:
                item.outcome, item.reason = scaling.outcome, scaling.reason if scaling.outcome != "committed" else ""
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def _strike(self, item: Progress) -> None:
        """Kill or hang a role and wait until it runs and reports again and steps go on."""
        name = item.event.target
        pod = self._pods.get(name)
        before = await self._observer.ask()
        aimaster = before.aimaster_incarnation if before is not None else 0
        old = _role(before, name)
        if pod is None or not self._pods.signal(
            name, signal.SIGKILL if item.event.action == "kill" else signal.SIGSTOP
        ):
            item.outcome, item.reason = "refused", f"{name} does not run"
            return
        while True:
            status = await self._observer.ask()
            if status is not None and (
                status.aimaster_incarnation != aimaster if name == "aimaster" else _replaced(old, _role(status, name))
            ):
                break
            await asyncio.sleep(_POLL_SECONDS)
        resumed_at = status.step
        while (status := await self._observer.ask()) is None or status.step <= resumed_at:
            if status is not None:
                resumed_at = status.step  # a checkpoint was restored: steps go on from before
            await asyncio.sleep(_POLL_SECONDS)
        item.outcome = "recovered"


def _role(status: pb2.StatusReply | None, name: str) -> pb2.RoleStatus | None:
    return next((role for role in status.roles if role.name == name), None) if status is not None else None


def _replaced(old: pb2.RoleStatus | None, new: pb2.RoleStatus | None) -> bool:
    """Whether another incarnation of the role runs and reports; a chief or worker must train again."""
    if (
        new is None
        or new.state != "running"
        or not new.incarnation
        or (old is not None and new.incarnation == old.incarnation)
    ):
        return False
    return new.heartbeat.training or new.role not in (pb2.CHIEF, pb2.WORKER)
