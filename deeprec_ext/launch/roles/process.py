"""One process of one role: in a process group of its own, printing into its log, killed with all it has started.

A group, not a session: Linux shares the processor among sessions before it shares it among processes (autogroup), and
with a session for each role the steps of a busy machine were 5 to 20 % slower.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deeprec_ext.launch.roles.guard import Guard, kill_group
from deeprec_ext.launch.roles.printing import Printing

_CHILD = Path(__file__).with_name("child.py")

_SENT_BY_OTHERS = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)


@dataclass(frozen=True)
class Command:
    """What to start. `environment` is complete, not an addition.

    `namespaces`: open files of those it enters, in this order. `umask`: of the process; the launcher's own shuts others out.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    namespaces: tuple[int, ...] = ()
    umask: int | None = None


class Process:
    """A running (or ended) process. Made by `start`; must be waited for."""

    def __init__(self, process: asyncio.subprocess.Process, guard: Guard, printing: Printing) -> None:
        self._process = process
        self._guard, self._printing = guard, printing
        self.pid = process.pid
        self.started_at = time.monotonic()

    async def wait(self) -> int:
        """Exit code (128 + number for a signal), after its whole process group has been killed."""
        code = await self._process.wait()
        kill_group(self.pid, signal.SIGKILL)  # what the role has started goes with it
        self._guard.remove(self.pid)
        self._printing.drain()
        return code if code >= 0 else 128 - code

    @property
    def killed_by_signal(self) -> bool:
        """Also when a handler or a shell turned the signal into an exit code, as they do."""
        code = self._process.returncode
        return code is not None and (code < 0 or code - 128 in _SENT_BY_OTHERS)

    def signal(self, number: int) -> None:
        """Send a signal to the role and all it has started."""
        if not kill_group(self.pid, number):  # in its first milliseconds it is in our group still (see `child`)
            with contextlib.suppress(ProcessLookupError, ValueError):
                self._process.send_signal(number)

    async def stop(self, grace_seconds: float) -> None:
        """SIGTERM, after the grace SIGKILL; with no grace SIGKILL at once. Returns when the role has ended."""
        if grace_seconds > 0:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)  # a stopped process would sleep through its grace
            try:
                await asyncio.wait_for(self._process.wait(), grace_seconds)
                return
            except asyncio.TimeoutError:  # before Python 3.11 not the same as TimeoutError
                pass
        self.signal(signal.SIGKILL)
        await self._process.wait()


async def start(
    name: str, number: int, command: Command, guard: Guard, printing: Printing, cgroups: Sequence[Path] = ()
) -> Process:  # fmt: skip
    """Start a role; call it on the main thread, because the kernel ties "die with the parent" to the thread that forks.

    Args:
        name: of the role, for the log's marker line.
        number: counts the starts of this name, from 1.
        printing: its log.
        cgroups: files that the process writes itself into.

    Raises OSError.
    """
    pipe = printing.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(_CHILD), _orders(command, cgroups), *command.argv,
            stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=dict(command.environment),
            pass_fds=command.namespaces,
        )  # fmt: skip
    finally:
        os.close(pipe)
    guard.add(process.pid)
    printing.add(f"{marker(name, number)}, pid {process.pid}, {time.strftime('%Y-%m-%d %H:%M:%S')} ---\n".encode())
    return Process(process, guard, printing)


def _orders(command: Command, cgroups: Sequence[Path]) -> str:
    """For `child`."""
    orders = [str(os.getpid())]
    if command.umask is not None:
        orders.append(f"umask={command.umask:o}")
    orders += [f"cgroup={file}" for file in cgroups]
    return ":".join(orders + [f"namespace={number}" for number in command.namespaces])


def marker(name: str, number: int) -> str:
    """Begin of the line in a log that separates one start from the one before."""
    return f"--- deeprec-ext: {name}, start {number}"
