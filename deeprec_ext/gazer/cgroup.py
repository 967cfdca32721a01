"""What the container of this process uses and may use: control groups, version 1 and 2, files only.

A process is in a *leaf* group; the groups above it, as far as the container shows them, limit it as well. The one with
the lowest limit is where it hurts (that one kills, that one throttles), so its figures are taken; without any limit those
of the leaf. A group that is the root of the machine is no container: it has no figures.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

UNLIMITED_BYTES = 1 << 60
"""Version 1 writes "no limit" as a number near 2^63."""

READ_BYTES = 1 << 20
"""Longest file that is read; `memory.stat` has about 2 kB, a host may have thousands of mounts."""


@dataclass(frozen=True)
class CgroupSample:
    """0: not known, or no limit. Totals count from the start of the container."""

    working_set_bytes: int = 0
    memory_limit_bytes: int = 0
    cpu_limit_cores: float = 0.0
    throttled_seconds: float = 0.0
    oom_kills: int = 0


class Cgroup:
    """The groups of this process, found once; each `sample` reads about five small files.

    Args:
      root: where `/proc` and the mount points are looked for; for tests.
    """

    def __init__(self, root: str = "/") -> None:
        self._root = root
        paths = _paths(self._under("/proc/self/cgroup"))
        mounts = _mounts(self._under("/proc/self/mountinfo"))
        self._memory, self._memory_v2 = self._levels("memory", paths, mounts)
        self._cpu, self._cpu_v2 = self._levels("cpu", paths, mounts)

    def _under(self, path: str) -> str:
        return os.path.join(self._root, path.lstrip("/"))

    def _levels(
        self, controller: str, paths: dict[str, str], mounts: dict[str, tuple[str, str]]
    ) -> tuple[list[str], bool]:
        """Folders of the groups, from the leaf to the highest that is visible; and whether they are of version 2."""
        second = controller not in paths  # in a mixed set-up a controller belongs to one of the two
        path, mount = paths.get("" if second else controller), mounts.get("" if second else controller)
        if path is None or mount is None:
            return [], second
        top, folder = mount[0].rstrip("/"), self._under(mount[1])
        inside = (
            path[len(top) :] if (path + "/").startswith(top + "/") else "/"
        )  # a path outside is not to be seen here
        names = [name for name in inside.split("/") if name and name != ".."]
        found = ["/".join([folder, *names[:depth]]) for depth in range(len(names), -1, -1)]
        return [one for one in found if os.path.isdir(one) and not _is_machine(one, second)], second

    @property
    def leaf(self) -> str | None:
        """Folder of the group that the process itself is in."""
        return next(iter([*self._memory, *self._cpu]), None)

    def sample(self) -> CgroupSample:
        """What the files say now; never raises."""
        working, limit, kills = self._memory_sample()
        cores, throttled = self._cpu_sample()
        return CgroupSample(working, limit, cores, throttled, kills)

    def _memory_sample(self) -> tuple[int, int, int]:
        """(working set, limit, OOM kills)."""
        name = "memory.max" if self._memory_v2 else "memory.limit_in_bytes"
        limits = [(limit, folder) for folder in self._memory if (limit := _number(f"{folder}/{name}"))]
        limits = [one for one in limits if one[0] < UNLIMITED_BYTES]
        limit, at = min(limits, key=lambda one: one[0]) if limits else (0, next(iter(self._memory), ""))
        if not at:
            return 0, 0, 0
        usage = _number(f"{at}/memory.current" if self._memory_v2 else f"{at}/memory.usage_in_bytes")
        idle = _field(f"{at}/memory.stat", "inactive_file" if self._memory_v2 else "total_inactive_file")
        kills = _field(f"{at}/memory.events" if self._memory_v2 else f"{at}/memory.oom_control", "oom_kill")
        return max(0, usage - idle), limit, kills

    def _cpu_sample(self) -> tuple[float, float]:
        """(cores allowed, seconds throttled)."""
        limits = [(cores, folder) for folder in self._cpu if (cores := self._cores(folder)) > 0]
        cores, at = min(limits, key=lambda one: one[0]) if limits else (0.0, next(iter(self._cpu), ""))
        if not at:
            return 0.0, 0.0
        if self._cpu_v2:
            return cores, _field(f"{at}/cpu.stat", "throttled_usec") / 1e6
        return cores, _field(f"{at}/cpu.stat", "throttled_time") / 1e9

    def _cores(self, folder: str) -> float:
        """0: no limit."""
        if self._cpu_v2:
            words = read(f"{folder}/cpu.max").split()
            quota, period = (_int(word) for word in words) if len(words) == 2 else (0, 0)
        else:
            quota, period = _number(f"{folder}/cpu.cfs_quota_us"), _number(f"{folder}/cpu.cfs_period_us")
        return quota / period if quota > 0 and period > 0 else 0.0


def read(path: str) -> str:
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


def _int(word: str) -> int:
    """0 for what is no number: `max`, or nothing."""
    try:
        return int(word)
    except ValueError:
        return 0


def _number(path: str) -> int:
    return _int(read(path).strip())


def _field(path: str, name: str) -> int:
    """The number after a name, in a file of `name number` lines."""
    for line in read(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return _int(value.strip())
    return 0


def _is_machine(folder: str, second: bool) -> bool:
    """Whether this is the root of the machine's own hierarchy: some files are only there, others never."""
    if second:
        return not os.path.exists(f"{folder}/cgroup.type")
    return os.path.exists(f"{folder}/release_agent")


def _paths(file: str) -> dict[str, str]:
    """Controller (version 2: empty) -> path of the group, from lines like `4:memory:/a/b`, `0::/a`."""
    found = {}
    for line in read(file).splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                found[controller] = parts[2]
    return found


def _mounts(file: str) -> dict[str, tuple[str, str]]:
    """Controller (version 2: empty) -> (group that the mount shows as its root, mount point)."""
    found: dict[str, tuple[str, str]] = {}
    for line in read(file).splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if len(left) < 5 or len(right) < 3:
            continue
        if right[0] == "cgroup2":
            found.setdefault("", (left[3], left[4]))
        elif right[0] == "cgroup":
            for option in right[2].split(","):
                found.setdefault(option, (left[3], left[4]))
    return found
