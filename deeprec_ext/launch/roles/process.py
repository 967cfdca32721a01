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
from collections.abc import Callable, Sequence
from pathlib import Path

from deeprec_ext.launch.roles.guard import Guard, kill_group, kill_member
from deeprec_ext.launch.roles.printing import Printing
from deeprec_ext.launch.roles.runner import Command, marker

_CHILD = Path(__file__).with_name("child.py")

_SENT_BY_OTHERS = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)


class Process:
    """A running (or ended) process, as `runner.Running` has it. Made by `start`; must be waited for."""

    def __init__(self, process: asyncio.subprocess.Process, guard: Guard, printing: Printing) -> None:
        self._process = process
        self._guard, self._printing = guard, printing
        self.pid = process.pid
        self.started_at = time.monotonic()
        self.waiting = self.cause = ""
        self.on_end: Callable[[int], str] = lambda code: ""  # exit code → why, where it does not tell

    async def begun(self) -> bool:
        return True

    async def wait(self) -> int:
        code = await self._process.wait()
        kill_group(self.pid, signal.SIGKILL)  # what the role has started goes with it
        self._guard.remove(self.pid)
        self._printing.drain()
        code = code if code >= 0 else 128 - code
        self.cause = self.on_end(code)
        return code

    @property
    def killed_by_signal(self) -> bool:
        code = self._process.returncode
        return code is not None and (code < 0 or code - 128 in _SENT_BY_OTHERS)

    def signal(self, number: int) -> None:
        if not kill_group(self.pid, number):  # in its first milliseconds it is in our group still (see `child`)
            with contextlib.suppress(ProcessLookupError, ValueError):
                self._process.send_signal(number)

    def end(self, pid: int) -> bool:
        if pid != self.pid:
            kill_member(self.pid, pid)
            return False
        self.signal(signal.SIGKILL)
        return True

    async def stop(self, grace_seconds: float) -> None:
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
