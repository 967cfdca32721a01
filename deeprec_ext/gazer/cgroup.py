"""The kernel's control groups, version 1 and 2: where the groups of this process are, and how a group's files are called.

Version 1 has a tree for each controller (sometimes one for several), version 2 one tree for all. A machine may have both;
then a controller is in the tree that has it. Reading needs no right and never raises: what cannot be read is 0 or empty.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = ("cpu", "cpuacct", "memory")
"""cpuacct only counts; in version 2 it is part of cpu."""

UNLIMITED_BYTES = 1 << 60
"""Version 1 writes "no limit" as a number near 2^63."""

READ_BYTES = 1 << 20
"""Longest file that is read; `memory.stat` has about 2 kB, a host may have thousands of mounts."""

_PERIOD_MICROSECONDS = 100_000


def read(path: str | Path) -> str:
    """The text of a small file; empty when it cannot be read."""
    text = b""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while len(text) < READ_BYTES and (piece := os.read(descriptor, READ_BYTES)):
                text += piece
        finally:
            os.close(descriptor)
    except OSError:
        return ""
    return text.decode(errors="replace")


@dataclass(frozen=True)
class Group:
    """One directory of a hierarchy."""

    path: Path
    version: int  # 1 or 2

    def below(self, name: str) -> Group:
        return Group(self.path / name, self.version)

    @property
    def processes_file(self) -> Path:
        """Writing 0 into it brings the writer into the group."""
        return self.path / "cgroup.procs"

    @property
    def is_machine(self) -> bool:
        """Whether it is the root of the machine's own hierarchy: some files are only there, others never."""
        if self.version == 2:
            return not (self.path / "cgroup.type").exists()
        return (self.path / "release_agent").exists()

    # ------------------------------------------------------------------------------------------------ reading

    def read(self, name: str) -> str:
        """A file of the group."""
        return read(self.path / name)

    def working_set_bytes(self) -> int:
        """Memory in use that cannot be had back by dropping caches."""
        used = self._number("memory.current" if self.version == 2 else "memory.usage_in_bytes")
        return max(
            0, used - self._field("memory.stat", "inactive_file" if self.version == 2 else "total_inactive_file")
        )

    def cached_bytes(self) -> int:
        """Of the working set, files that were read more than once: the kernel drops them where memory is wanted."""
        return self._field("memory.stat", "active_file" if self.version == 2 else "total_active_file")

    def memory_limit_bytes(self) -> int:
        """0: none."""
        limit = self._number("memory.max" if self.version == 2 else "memory.limit_in_bytes")
        return limit if limit < UNLIMITED_BYTES else 0

    def oom_kills(self) -> int:
        """Processes of the group that the kernel has killed for want of memory, so far."""
        return self._field("memory.events" if self.version == 2 else "memory.oom_control", "oom_kill")

    def cpu_limit_cores(self) -> float:
        """0: none."""
        if self.version == 2:
            words = self.read("cpu.max").split()
            quota, period = map(_int, words) if len(words) == 2 else (0, 0)
        else:
            quota, period = self._number("cpu.cfs_quota_us"), self._number("cpu.cfs_period_us")
        return quota / period if quota > 0 and period > 0 else 0.0

    def used_seconds(self) -> float:
        """Processor time of all processes of the group, so far; 0: not known."""
        if self.version == 2:
            return self._field("cpu.stat", "usage_usec") / 1e6
        return self._number("cpuacct.usage") / 1e9  # both controllers are mounted together wherever we have looked

    def throttled_seconds(self) -> float:
        """For want of quota, so far."""
        if self.version == 2:
            return self._field("cpu.stat", "throttled_usec") / 1e6
        return self._field("cpu.stat", "throttled_time") / 1e9

    def _number(self, name: str) -> int:
        return _int(self.read(name).strip())

    def _field(self, name: str, key: str) -> int:
        """The number after a word, in a file of `word number` lines."""
        rows = (line.split() for line in self.read(name).splitlines())
        return next((_int(row[1]) for row in rows if len(row) == 2 and row[0] == key), 0)

    # ------------------------------------------------------------------------------------------------ limiting

    def make(self) -> None:
        """Raises OSError where that is not allowed."""
        self.path.mkdir(exist_ok=True)

    def limit_cpu(self, cores: float) -> None:
        quota = max(1000, round(cores * _PERIOD_MICROSECONDS))
        if self.version == 2:
            self._write("cpu.max", f"{quota} {_PERIOD_MICROSECONDS}")
        else:
            self._write("cpu.cfs_period_us", str(_PERIOD_MICROSECONDS))
            self._write("cpu.cfs_quota_us", str(quota))

    def weigh(self, processes: int) -> None:
        """When cores are short the group counts as much as so many processes outside of it."""
        if self.version == 2:
            self._write("cpu.weight", str(min(10_000, 100 * processes)))
        else:
            self._write("cpu.shares", str(min(262_144, 1024 * processes)))

    def limit_memory(self, limit_bytes: int) -> None:
        """And no swap instead, as in a pod: a PS that swaps is as good as dead."""
        self._write("memory.max" if self.version == 2 else "memory.limit_in_bytes", str(limit_bytes))
        with contextlib.suppress(OSError):  # a kernel without swap accounting
            self._write("memory.swap.max" if self.version == 2 else "memory.swappiness", "0")

    def _write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)


def own_groups(mounts: str | None = None, memberships: str | None = None) -> dict[str, Group]:
    """controller -> the group this process is in.

    Args:
        mounts: text of /proc/self/mountinfo.
        memberships: text of /proc/self/cgroup.
    """
    places = _places(
        read("/proc/self/mountinfo") if mounts is None else mounts,
        read("/proc/self/cgroup") if memberships is None else memberships,
    )
    found = {name: Group(Path(*places[name]), 1) for name in CONTROLLERS if name in places}
    if "" in places:
        group = Group(Path(*places[""]), 2)
        for name in set(group.read("cgroup.controllers").split()) & set(CONTROLLERS):
            found.setdefault(name, group)
    return found


@dataclass(frozen=True)
class CgroupSample:
    """0: not known, or no limit. Totals count from the start of the container."""

    working_set_bytes: int = 0
    memory_limit_bytes: int = 0
    cpu_limit_cores: float = 0.0
    throttled_seconds: float = 0.0
    oom_kills: int = 0


class Cgroup:
    """The container of this process: its groups, found once; each `sample` reads about five small files.

    A process is in a *leaf* group; the groups above it, as far as the container shows them, limit it as well. The one with the
    lowest limit is where it hurts (that one kills, that one throttles), so its figures are taken; without any limit those of
    the leaf. A group that is the root of the machine is no container: it has no figures.

    Args:
      root: where `/proc` and the mount points are looked for; for tests.
    """

    def __init__(self, root: str = "/") -> None:
        memberships = read(os.path.join(root, "proc/self/cgroup"))
        first = {name for line in memberships.splitlines() for name in line.split(":")[1:2] for name in name.split(",")}
        places = _places(read(os.path.join(root, "proc/self/mountinfo")), memberships)

        def levels(controller: str) -> list[Group]:
            """From the leaf to the highest that is visible."""
            version = 1 if controller in first else 2
            if (place := places.get(controller if version == 1 else "")) is None:
                return []
            top, *names = place
            found = [Group(Path(root, top.lstrip("/"), *names[:depth]), version) for depth in range(len(names), -1, -1)]
            return [one for one in found if one.path.is_dir() and not one.is_machine]

        self._memory, self._cpu = levels("memory"), levels("cpu")

    @property
    def leaf(self) -> Path | None:
        """Folder of the group that the process itself is in."""
        return next((one.path for one in (*self._memory, *self._cpu)), None)

    def shared_quota(self, *, own: bool) -> tuple[float, float]:
        """(cores, processor seconds used so far) of the lowest CPU limit that holds for other roles too; 0, 0: none.

        Args:
            own: the group of this process is shared, too; else only those above it are.
        """
        limits = [(limit, group) for group in self._cpu[0 if own else 1 :] if (limit := group.cpu_limit_cores())]
        limit, group = min(limits, key=lambda one: one[0], default=(0.0, None))
        return limit, group.used_seconds() if group is not None else 0.0

    def free_memory_bytes(self) -> int | None:
        """What the memory limits leave, caches not counted as use; None: no limit is to be seen.

        The lowest limit need not be the one that leaves least: one further up may be nearly used up by others.
        """
        limits = [(limit, group) for group in self._memory if (limit := group.memory_limit_bytes())]
        used = ((limit, max(0, group.working_set_bytes() - group.cached_bytes())) for limit, group in limits)
        return min((max(0, limit - bytes_) for limit, bytes_ in used), default=None)

    def free_memory_share(self) -> float:
        """Of the memory limit that is nearest to be reached, what it leaves; 1: no limit is to be seen."""
        limits = [(limit, group) for group in self._memory if (limit := group.memory_limit_bytes())]
        return min((max(0.0, 1 - group.working_set_bytes() / limit) for limit, group in limits), default=1.0)

    def sample(self) -> CgroupSample:
        """What the files say now; never raises."""
        memory = min(self._memory, key=lambda one: one.memory_limit_bytes() or UNLIMITED_BYTES, default=None)
        cpu = min(self._cpu, key=lambda one: one.cpu_limit_cores() or float("inf"), default=None)
        return CgroupSample(
            memory.working_set_bytes() if memory else 0, memory.memory_limit_bytes() if memory else 0,
            cpu.cpu_limit_cores() if cpu else 0.0, cpu.throttled_seconds() if cpu else 0.0, memory.oom_kills() if memory else 0,
        )  # fmt: skip


def _int(word: str) -> int:
    """0 for what is no number: `max`, or nothing."""
    try:
        return int(word)
    except ValueError:
        return 0


def _places(mounts: str, memberships: str) -> dict[str, tuple[str, ...]]:
    """Controller (version 2: empty) → mount point, and the names from there to the group of this process.

    Our path is told from the root of the hierarchy, of which a container may have mounted only a part: a path outside of that
    is not to be seen here.
    """
    paths: dict[str, str] = {}
    for line in memberships.splitlines():
        if line.count(":") >= 2:  # `4:cpu,cpuacct:/a/b`, `0::/a`
            _, names, path = line.split(":", 2)
            paths.update(dict.fromkeys(names.split(","), path))
    found: dict[str, tuple[str, ...]] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if len(left) < 5 or len(right) < 3 or right[0] not in ("cgroup", "cgroup2"):
            continue
        for name in [""] if right[0] == "cgroup2" else right[2].split(","):
            if name in paths and name not in found and paths[name].startswith("/"):
                inside = os.path.relpath(paths[name], left[3])
                found[name] = (left[4], *(() if inside.startswith(".") else inside.split("/")))
    return found
