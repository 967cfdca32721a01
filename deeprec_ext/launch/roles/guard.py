"""A process that outlives a killed launcher for a moment to kill what is left: `python -I -S guard.py`, orders on stdin.

`PR_SET_PDEATHSIG` (see `child`) reaches a role but not the processes a role has started (`bash train.sh`). The launcher
writes `+GROUP` for each process group it starts and `-GROUP` when it has seen it empty, and `@PATH` for a directory of cgroups.
The pipe ends when the launcher dies, of anything, or has done; then every group still on the list gets SIGKILL, and the
directories are removed with whatever still runs in them. `>PROGRAM NUMBER` and `<PROGRAM NUMBER`: the same for a job of a
scheduler, and the program that ends those that are left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

PREFIX = "deeprec-ext-"
"""Of the names of such directories: nothing else is ever removed."""

_REMOVE_SECONDS = 4.0


class Guard:
    """The launcher's end of the pipe. Start it before the first role; `close` it after the last."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__))], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, close_fds=True,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def add(self, group: int) -> None:
        self._write(f"+{group}\n")

    def remove(self, group: int) -> None:
        self._write(f"-{group}\n")

    def add_job(self, program: str, number: str) -> None:
        """Of a scheduler; `program` ends jobs by their numbers."""
        self._write(f">{program} {number}\n")

    def remove_job(self, program: str, number: str) -> None:
        self._write(f"<{program} {number}\n")

    def add_directory(self, path: Path) -> None:
        """Of cgroups, to be removed at the end."""
        self._write(f"@{path}\n")

    def close(self) -> None:
        """Kill what is left on the list and wait for the guard's own end."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write(self, order: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the guard was killed: PR_SET_PDEATHSIG remains
            os.write(self._process.stdin.fileno(), order.encode())


def kill_group(group: int, number: int) -> bool:
    """Send a signal to a process group; whether there was anybody to get it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def kill_member(group: int, pid: int) -> bool:
    """Kill one process if it is of that process group (its number may have gone to another); whether it was."""
    try:
        if os.getpgid(pid) != group:
            return False
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def remove_groups(paths: Iterable[Path], seconds: float = _REMOVE_SECONDS) -> None:
    """Remove cgroups with those below them, and kill what runs there; what cannot be removed in time is left."""
    deadline = time.monotonic() + seconds
    left = [path for path in paths if path.name.startswith(PREFIX)]
    while left:
        left = [path for path in left if not _removed(path)]
        if not left or time.monotonic() > deadline:
            return
        time.sleep(0.02)  # killed processes take a moment to go


def _removed(path: Path) -> bool:
    for directory, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            for pid in Path(directory, "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    return not path.exists()


def main() -> None:
    for hint in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(hint, signal.SIG_IGN)
    groups: set[int] = set()
    directories: list[Path] = []
    jobs: dict[tuple[str, str], None] = {}
    for line in sys.stdin:
        if line[0] == "@":
            directories.append(Path(line[1:-1]))
        elif line[0] in "<>":
            program, _, number = line[1:-1].rpartition(" ")
            jobs.pop((program, number), None)
            if line[0] == ">":
                jobs[program, number] = None
        else:
            (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for program in {program for program, _ in jobs}:
        with contextlib.suppress(OSError):
            subprocess.Popen([program, *(number for owner, number in jobs if owner == program)])
    for group in groups:
        kill_group(group, signal.SIGKILL)
    remove_groups(directories)


if __name__ == "__main__":
    main()
