"""A job of a pool, as its launcher writes it down."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deeprec_ext.arbiter.observed import Count, Pods, Resources
from deeprec_ext.gazer.cgroup import Cgroup, read
from deeprec_ext.gazer.host import processors
from deeprec_ext.gazer.proctable import started
from deeprec_ext.launch.limits import Limits
from deeprec_ext.launch.resources import Requests
from deeprec_ext.launch.resources import Resources as Held

CORES = 1.0
"""What a PS, the chief, a worker and the evaluator each count for where nobody has said what they are held to."""

FRESH_SECONDS = 10.0
"""A heartbeat this old is none, where the process itself cannot be looked for."""


@dataclass(frozen=True)
class Entry:
    job: str  # its run directory
    pid: int  # of its launcher ...
    ticks: int  # ... and when that was started: a pid is used again
    machine: str  # whose pid that is
    time: float  # when this was written
    priority: int
    weight: float
    least: Count
    most: Count
    written: Count  # what was asked for
    pods: Pods
    arrived: float
    autoscaled: bool = False  # what it wants is its autoscaler's word; else its user's
    running: bool = False  # it may start, or has started
    chief: int = 0  # of its processes ...
    ps: int = 0
    workers: int = 0
    other: int = 0  # ... so many are there, or were promised
    heard: float = 0.0  # when its AIMaster last answered; 0: it has none yet
    deadline: float = 0.0  # by when it shall have ended; 0: none


@dataclass(frozen=True)
class Changes:
    """What a command has said of a job that is there. None: as its launcher says."""

    priority: int | None = None
    weight: float | None = None

    def of(self, entry: Entry) -> Entry:
        return replace(
            entry,
            priority=entry.priority if self.priority is None else self.priority,
            weight=entry.weight if self.weight is None else self.weight,
        )


@dataclass(frozen=True)
class PoolSize:
    """What the jobs of a pool share."""

    cores: float
    memory_bytes: int

    def resources(self) -> Resources:
        return Resources(self.cores, self.memory_bytes)


@dataclass(frozen=True)
class Asked:
    """What `run` was told of a pool."""

    name: str
    cores: float = 0.0  # that it shall have; 0: the machine's, or what it has
    priority: int = 0
    weight: float = 1.0
    max_wait_seconds: float = 0.0  # 0: as long as it takes


@functools.lru_cache(maxsize=1)
def this_machine() -> str:
    """What pids belong to: a machine, since its boot, and in it a container."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        space = 0
    return f"{read('/proc/sys/kernel/random/boot_id').strip() or socket.gethostname()}/{space}"


def size_here(cgroup: Cgroup | None = None) -> PoolSize:
    """Of this machine: the processors that this process may use, and the limits of its container."""
    import psutil

    group = cgroup or Cgroup()
    sample, count = group.sample(), float(len(processors()) or os.cpu_count() or 1)
    memory = int(psutil.virtual_memory().total)
    return PoolSize(min(count, sample.cpu_limit_cores or count), min(memory, sample.memory_limit_bytes or memory))


def pods_of(requests: Requests, evaluator: bool) -> Pods:
    """What each process counts for: what it is held to, or CORES. The AIMaster counts for nothing."""
    worker = Resources(requests.worker.cpu or CORES, requests.worker.memory_bytes)
    ps = Resources(requests.ps.cpu or CORES, requests.ps.memory_bytes)
    return Pods(chief=worker, ps=ps, worker=worker, other=worker if evaluator else Resources())


def entry_of(
    job: str, limits: Limits, requests: Requests, *, priority: int, weight: float, now: float, autoscaled: bool = False,
    deadline_seconds: float = 0.0,
) -> Entry:  # fmt: skip
    """Of a job that this process launches, before it has room. `deadline_seconds`: from now, also where it waits; 0: none."""
    return Entry(
        job=job, pid=os.getpid(), ticks=started(os.getpid()), machine=this_machine(), time=now, priority=priority,
        weight=weight, least=Count(limits.min_ps if limits.slots else 0, limits.min_workers),
        most=Count(limits.max_ps if limits.slots else 0, limits.max_workers), written=Count(limits.ps, limits.workers),
        pods=pods_of(requests, limits.evaluator), arrived=now, autoscaled=autoscaled,
        deadline=now + deadline_seconds if deadline_seconds > 0 else 0.0,
    )  # fmt: skip


def present(entry: Entry, there: Sequence[tuple[str, Held]]) -> Entry:
    """With what there is of it.

    Args:
      there: role, and what it is held to, of each process. What `--autoscale` has given one of a role counts for each of them.
    """

    def one(role: str, before: Resources) -> Resources:
        held = [found for name, found in there if name == role]
        cpu = max((found.cpu for found in held), default=0.0)
        return Resources(
            cpu or before.cpu, max((found.memory_bytes for found in held), default=0) or before.memory_bytes
        )

    before, roles = entry.pods, [role for role, _ in there]
    pods = Pods(one("chief", before.chief), one("ps", before.ps), one("worker", before.worker), before.other)
    return replace(
        entry, pods=pods, chief=roles.count("chief"), ps=roles.count("ps"), workers=roles.count("worker"),
        other=roles.count("evaluator"),
    )  # fmt: skip


def alive(entry: Entry, now: float, proc: str = "/proc") -> bool:
    """Whether its launcher is. One on another machine is believed for as long as its heartbeat is fresh."""
    if entry.machine != this_machine():
        return abs(now - entry.time) < FRESH_SECONDS
    if not entry.ticks or started(entry.pid, proc) != entry.ticks:
        return False
    return read(f"{proc}/{entry.pid}/stat").rpartition(")")[2].split()[:1] not in (["Z"], ["X"])


def needed(entry: Entry, size: Count) -> Resources:
    """What all processes of a job of this size count for."""
    return total(
        (entry.pods.chief, 1), (entry.pods.other, 1), (entry.pods.ps, size.ps), (entry.pods.worker, size.workers)
    )


def total(*parts: tuple[Resources, int]) -> Resources:
    """So many of each."""
    return Resources(
        sum(one.cpu * count for one, count in parts), sum(one.memory_bytes * count for one, count in parts)
    )
