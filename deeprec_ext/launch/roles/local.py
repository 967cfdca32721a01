"""Roles as processes of this machine, each in its cgroup where something is requested."""

from __future__ import annotations

import signal

from deeprec_ext.launch.ports import HOST
from deeprec_ext.launch.resources import Resources
from deeprec_ext.launch.roles import process
from deeprec_ext.launch.roles.containers import open_containers
from deeprec_ext.launch.roles.guard import Guard
from deeprec_ext.launch.roles.printing import Printing
from deeprec_ext.launch.roles.process import Process
from deeprec_ext.launch.roles.runner import Command, JobOutline
from deeprec_ext.units import format_bytes


class LocalRunner:
    """Implements Runner. Raises UsageError where limits are requested and cannot be set."""

    elsewhere, host = False, HOST

    def __init__(self, job: JobOutline, guard: Guard) -> None:
        self._guard = guard
        self._containers = open_containers(job.requests)
        for path in self._containers.paths:
            guard.add_directory(path)
        self.resources, self.resize = self._containers.resources, self._containers.resize

    async def begin(self) -> None:
        pass

    async def start(
        self, name: str, number: int, command: Command, printing: Printing, wanted: Resources | None
    ) -> Process:
        """Call it on the main thread, because the kernel ties "die with the parent" to the thread that forks."""
        groups = self._containers.enter(name, wanted)
        started = await process.start(name, number, command, self._guard, printing, groups)
        started.on_end = lambda code: self._cause(name, code)
        return started

    def _cause(self, name: str, code: int) -> str:
        """What the exit code does not tell, of a role that has ended; what it has started is killed."""
        self._containers.kill_rest(name)
        if not self._containers.ran_out_of_memory(name) or code != 128 + signal.SIGKILL:
            return ""
        limit = self.resources(name).memory_bytes
        return f"oom: memory limit of {format_bytes(limit)}" if limit else "oom: out of memory"

    async def close(self) -> None:
        pass  # the guard removes the groups
