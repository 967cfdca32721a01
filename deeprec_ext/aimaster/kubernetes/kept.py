"""What the backend remembers of one name, while pods of that name come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from deeprec_ext.aimaster.kubernetes.reading import LOST_EXIT_CODE, Seen
from deeprec_ext.aimaster.pods.backend import PodState
from deeprec_ext.aimaster.pods.restarting import Action


@dataclass
class Size:
    """What pods of a role are to request, where it is not what their template says (0)."""

    cpu: float = 0.0  # cores
    memory_bytes: int = 0

    @property
    def requests(self) -> Mapping[str, str] | None:
        """As a manifest has them."""
        cpu = {"cpu": f"{self.millis}m"} if self.cpu else {}
        return {**cpu, **({"memory": str(self.memory_bytes)} if self.memory_bytes else {})} or None

    @property
    def millis(self) -> int:
        return max(1, round(1000 * self.cpu))

    def outgrown(self, seen: Seen) -> bool:
        """Whether this pod was made before its role was given this size."""
        other_cpu = bool(self.cpu) and round(1000 * seen.cpu) != self.millis
        return other_cpu or bool(self.memory_bytes and self.memory_bytes != seen.memory_bytes)


@dataclass
class Kept:
    name: str
    wanted: bool = True
    seen: Seen | None = None  # of the pod that exists
    running: int = 0  # identity of the process that runs
    judged: int = 0  # identity of the last one whose end was judged
    action: Action = Action.DONE  # what came of that
    made: str = ""  # uid of the pod that was made, or may keep the name: what is told of others is old
    over: str = ""  # uid of a pod that was given up: what it still does says nothing
    going: str = ""  # uid of a pod that somebody else has deleted, which was told
    avoid: str = ""  # node that the last pod was lost with, or hung on
    recent: int = 0  # restarts since the last create: what the table counts
    recent_errors: int = 0
    raised_at: str = ""  # by what exception of its script the last process has ended, where it did so
    restarts: int = 0  # of all time
    state: PodState | None = None  # last told
    for_spot: bool = False  # it waits for a spot node, and would do with another
    task: asyncio.Task[None] | None = field(default=None, repr=False)  # makes the pod again, or takes its service away

    @property
    def runs(self) -> bool:
        return self.seen is not None and self.seen.running

    @property
    def alive(self) -> bool:
        """It runs, or is about to."""
        return self.seen is not None and self.over != self.seen.uid and not self.seen.finished

    def begin(self) -> None:
        """It is asked for: what was before does not count."""
        self.cancel()
        self.wanted, self.recent, self.recent_errors, self.raised_at = True, 0, 0, ""

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()
            self.task = None

    def running_state(self, seen: Seen) -> PodState:
        return PodState(
            self.name, "running", pid=seen.identity, restarts=self.restarts, cpu=seen.cpu, memory_bytes=seen.memory_bytes
        )  # fmt: skip

    def exited_state(self, seen: Seen | None, *, restarting: bool = False) -> PodState:
        deleted, before = not self.wanted, self.state
        if seen is None or not seen.ended:
            known = before.exit_code if before is not None and before.state == "exited" else LOST_EXIT_CODE
            return PodState(self.name, "exited", exit_code=known, restarts=self.restarts, deleted=deleted)
        return PodState(
            self.name, "exited", exit_code=seen.exit_code, restarting=restarting, restarts=self.restarts, deleted=deleted,
            last_line=seen.last_line if seen.exit_code and not deleted else "", cause=seen.cause, cpu=seen.cpu,
            memory_bytes=seen.memory_bytes,
        )  # fmt: skip
