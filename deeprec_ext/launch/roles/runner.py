"""The contract of runners: how a role that the launcher wants is brought to run, on this machine or through a scheduler.

One file for each; `registry` names them. What a runner need not know of: restarts, watchers, who asked (`supervisor`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deeprec_ext.launch.resources import Requests, Resources
from deeprec_ext.launch.roles.printing import Printing


@dataclass(frozen=True)
class Command:
    """What to start. `environment` is complete, not an addition.

    `namespaces`: open files of those it enters, in this order. `umask`: of the process; the launcher's own shuts others out.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    namespaces: tuple[int, ...] = ()
    umask: int | None = None


@dataclass(frozen=True)
class JobOutline:
    """What a runner knows of the job."""

    name: str
    directory: Path
    requests: Requests
    arguments: tuple[str, ...] = ()  # of the user, for this runner


class Running(Protocol):
    """A role that was started. It must be waited for."""

    pid: int
    """Of its process, on whatever machine; 0: it has no place yet."""

    started_at: float
    waiting: str
    """Why it has no place yet."""

    cause: str
    """Of its end, where the exit code does not tell: begins with `oom` for want of memory."""

    @property
    def killed_by_signal(self) -> bool:
        """Also when a handler or a shell turned the signal into an exit code, as they do."""

    async def begun(self) -> bool:
        """True when it runs, or has ended without; False when it waits for something else than before."""

    async def wait(self) -> int:
        """Exit code (128 + number for a signal), when it has ended with all that it has started."""

    def signal(self, number: int) -> None:
        """To the role and all it has started."""

    def end(self, pid: int) -> bool:
        """Kills one process of the role; whether it is the role's own. One that it has started is killed where that can be."""

    async def stop(self, grace_seconds: float) -> None:
        """SIGTERM, after the grace SIGKILL; with no grace SIGKILL at once. Returns when the role has ended."""


class Runner(Protocol):
    """On the launcher's loop."""

    elsewhere: bool
    """Roles run on other machines: nothing is known of their memory, and who runs keeps the size it was started with."""

    host: str
    """The address of this machine at which roles reach the AIMaster."""

    async def begin(self) -> None:
        """Before the first role. Raises UsageError where it cannot work here."""

    async def start(
        self, name: str, number: int, command: Command, printing: Printing, wanted: Resources | None
    ) -> Running:
        """Start a role, the `number`th time, from 1. Raises OSError, UsageError.

        wanted: other resources than before.
        """

    def resources(self, name: str) -> Resources:
        """What a role is held to at present, or will be."""

    def resize(self, name: str, wanted: Resources) -> list[str]:
        """One role, or all of `ps` or `worker`; returns who is now held to it. Raises UsageError, and nothing has changed."""

    async def close(self) -> None:
        """Whatever is left of it ends."""


def marker(name: str, number: int) -> str:
    """Begin of the line in a log that separates one start from the one before."""
    return f"--- deeprec-ext: {name}, start {number}"
