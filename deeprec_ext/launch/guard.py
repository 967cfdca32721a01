"""A process that outlives a killed launcher for a moment to kill what is left: `python -I -S guard.py`, orders on stdin.

`PR_SET_PDEATHSIG` (see `child`) reaches a role but not the processes a role has started (`bash train.sh`). The launcher
writes `+GROUP` for each process group it starts and `-GROUP` when it has seen it empty. The pipe ends when the launcher
dies, of anything; then every group still on the list gets SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path


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


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        (groups.add if line[0] == "+" else groups.discard)(group)
    for group in groups:
        kill_group(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
