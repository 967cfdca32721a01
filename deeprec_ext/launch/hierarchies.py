"""The kernel's cgroup hierarchies as this process sees them: where our own group is, and how a group's files are called.

Version 1 has a tree for each controller (sometimes one for several), version 2 one tree for all. A machine may have both;
then a controller is in the tree that has it. Reading needs no right; making groups needs a directory we may write to.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deeprec_ext.gazer.proctable import descendants

CONTROLLERS = ("cpu", "cpuacct", "memory")
"""cpuacct only counts; in version 2 it is part of cpu."""

_PERIOD_MICROSECONDS = 100_000
_UNLIMITED = 1 << 60  # version 1 writes a huge number for "no limit"


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
        if self.version == 2:
            self._write("memory.max", str(limit_bytes))
        else:
            self._write("memory.limit_in_bytes", str(limit_bytes))
        with contextlib.suppress(OSError):  # a kernel without swap accounting
            self._write(*(("memory.swap.max", "0") if self.version == 2 else ("memory.swappiness", "0")))

    def working_set_bytes(self) -> int:
        """Memory in use that cannot be had back by dropping caches; 0 where it cannot be read."""
        name = "memory.current" if self.version == 2 else "memory.usage_in_bytes"
        used = self.read(name).strip()
        cache = self._table("memory.stat").get("inactive_file" if self.version == 2 else "total_inactive_file", 0)
        return max(0, int(used) - cache) if used.isdigit() else 0

    def memory_limit_bytes(self) -> int:
        """0: none."""
        value = self.read("memory.max" if self.version == 2 else "memory.limit_in_bytes").strip()
        return int(value) if value.isdigit() and int(value) < _UNLIMITED else 0

    def oom_kills(self) -> int:
        """Processes of the group that the kernel has killed for want of memory, so far."""
        return self._table("memory.events" if self.version == 2 else "memory.oom_control").get("oom_kill", 0)

    def read(self, name: str) -> str:
        """A file of the group; empty where it cannot be read."""
        try:
            return (self.path / name).read_text()
        except OSError:
            return ""

    def _write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)

    def _table(self, name: str) -> dict[str, int]:
        rows = (line.split() for line in self.read(name).splitlines())
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def own_groups(mounts: str | None = None, memberships: str | None = None) -> dict[str, Group]:
    """controller -> the group this process is in.

    Args:
        mounts: text of /proc/self/mountinfo.
        memberships: text of /proc/self/cgroup.
    """
    mounts = _proc("mountinfo") if mounts is None else mounts
    paths: dict[str, str] = {}  # controller, or "" for version 2 -> path in its hierarchy
    for line in (_proc("cgroup") if memberships is None else memberships).splitlines():
        _, names, path = line.split(":", 2)
        paths.update(dict.fromkeys(names.split(","), path))
    found: dict[str, Group] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind == "cgroup":
            for name in set(options.split(",")) & set(CONTROLLERS) & paths.keys():
                found[name] = Group(_below(point, root, paths[name]), 1)
        elif kind == "cgroup2" and "" in paths:
            group = Group(_below(point, root, paths[""]), 2)
            for name in set(group.read("cgroup.controllers").split()) & set(CONTROLLERS):
                found.setdefault(name, group)
    return found


def base_for(own: Group, controllers: Iterable[str]) -> Group:
    """Where new groups with these controllers can be made: our own group, or in version 2 perhaps the one above it.

    In version 2 a group that has children with controllers may have no processes itself. So the controllers must be
    switched on already, or we must be alone in our group and can move into a child of it. Raises OSError.
    """
    if own.version == 1:
        return own
    wanted = set(controllers)
    error: OSError | None = None
    for base in (own, Group(own.path.parent, 2)):
        if not wanted <= set(base.read("cgroup.controllers").split()):
            continue
        try:
            switch_on(base, wanted)
            return base
        except OSError as refused:
            error = refused
            if base == own and _alone_in(own):
                with contextlib.suppress(OSError):
                    _move_into_child(own)
                    switch_on(own, wanted)
                    return own
    raise error or PermissionError(1, "the group has not all of these controllers", str(own.path))


def switch_on(group: Group, controllers: Iterable[str]) -> None:
    """So that the groups below it have them (version 2; nothing to do in version 1). Raises OSError."""
    missing = set(controllers) - set(group.read("cgroup.subtree_control").split())
    if group.version == 2 and missing:
        (group.path / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(missing)))


def _alone_in(group: Group) -> bool:
    ours = {os.getpid(), *descendants(os.getpid())}
    return {int(pid) for pid in group.read("cgroup.procs").split()} <= ours


def _move_into_child(group: Group) -> None:
    child = group.below("deeprec-ext-launcher")
    child.make()
    for pid in group.read("cgroup.procs").split():
        child.processes_file.write_text(pid)


def _below(point: str, root: str, path: str) -> Path:
    """Our path is told from the root of the hierarchy, of which a container may have mounted only a part."""
    inside = os.path.relpath(path, root)
    return Path(point) if inside.startswith("..") else Path(os.path.normpath(os.path.join(point, inside)))


def _proc(name: str) -> str:
    try:
        return Path(f"/proc/self/{name}").read_text()
    except OSError:
        return ""
