"""What the kernel says of this machine and of a process on it: who it is, how many want a processor, and who waits for one.

A process that does not answer either hangs or has not been given the processor; only the kernel knows which. Files of /proc
only; what cannot be read is empty, 0 or None, and nothing raises.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from dataclasses import dataclass

from deeprec_ext.gazer.cgroup import read
from deeprec_ext.gazer.proctable import TICKS_A_SECOND, stat_fields

THREADS_MAX = 2000
"""Threads of a process that are looked at: each costs a small file."""


def machine() -> str:
    """The same for all processes on one kernel, in whatever container, and for no others; changes when it boots."""
    return read("/proc/sys/kernel/random/boot_id").strip()


def pid_namespace() -> str:
    """Two processes for which it is the same can look each other up in /proc by their pids."""
    try:
        return f"{machine()} {os.readlink('/proc/self/ns/pid')}" if machine() else ""
    except OSError:
        return ""


def crowd(proc: str = "/proc") -> float:
    """Threads of this machine, all containers of it, that run or wait for a processor, for each processor, at this moment."""
    words = read(f"{proc}/loadavg").split()
    running = words[3].partition("/")[0] if len(words) > 3 else ""
    return int(running) / (os.cpu_count() or 1) if running.isdigit() else 0.0


class Crowd:
    """The same, averaged over the last seconds: at each moment it is another one."""

    AVERAGED_SECONDS = 5.0

    def __init__(self) -> None:
        self._average, self._at = 0.0, -math.inf

    def sample(self) -> float:
        now = time.monotonic()
        new = 1.0 - math.exp(-(now - self._at) / self.AVERAGED_SECONDS)
        self._average, self._at = self._average + new * (crowd() - self._average), now
        return self._average


class Lateness:
    """The most that something which is due again and again was late by, in the last seconds."""

    KEPT_SECONDS = 10.0

    def __init__(self) -> None:
        self._late: deque[tuple[float, float]] = deque()  # (when, seconds), of which no later one is as long

    def add(self, now: float, seconds: float) -> float:
        """What was due `seconds` ago is done now; returns the longest."""
        while self._late and (self._late[0][0] < now - self.KEPT_SECONDS):
            self._late.popleft()
        while self._late and self._late[-1][1] <= seconds:
            self._late.pop()
        self._late.append((now, seconds))
        return self._late[0][1]


@dataclass(frozen=True)
class Look:
    """One look at a process: totals over its living threads, in seconds."""

    worked_seconds: float
    queued_seconds: float
    """Ready to run, without a processor."""
    stopped: bool
    """By a signal (SIGSTOP) or a debugger: it will not go on by itself."""
    blocked: bool = False
    """A thread is in the kernel and cannot be woken: a page comes from a slow disk, a file system does not answer."""
    ready: bool = False
    """A thread runs or could. The kernel counts a wait when it is over; until then this alone shows it, as in a container whose
    quota is used up."""


def look(pid: int, proc: str = "/proc") -> Look | None:
    """At a process by its pid in this namespace; None when there is none."""
    folder = f"{proc}/{pid}/task"
    try:
        threads = os.listdir(folder)[:THREADS_MAX]
    except OSError:
        return None
    fields = stat_fields(f"{proc}/{pid}/stat")
    queued = sum(queued_seconds(f"{folder}/{thread}") for thread in threads)
    stopped = _state(f"{proc}/{pid}") in ("T", "t")
    states = {_state(f"{folder}/{thread}") for thread in threads}
    return Look((fields[14] + fields[15]) / TICKS_A_SECOND, queued, stopped, "D" in states, "R" in states)


def _state(folder: str) -> str:
    return read(f"{folder}/stat").rpartition(")")[2].strip()[:1]


def queued_seconds(folder: str) -> float:
    """Of one thread (`/proc/PID/task/TID`), or of the main thread of a process (`/proc/PID`)."""
    words = read(f"{folder}/schedstat").split()
    return int(words[1]) / 1e9 if len(words) > 1 and words[1].isdigit() else 0.0
