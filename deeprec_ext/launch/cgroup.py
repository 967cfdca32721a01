"""What this machine, or the container around us, lets us use (cgroup version 2 and 1)."""

from __future__ import annotations

import os
from pathlib import Path

_UNLIMITED = 1 << 60  # version 1 writes a huge number for "no limit"


def memory_limit_bytes(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """None: no limit but the machine's memory."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        value = _read(root / name)
        if value.isdigit() and int(value) < _UNLIMITED:
            return int(value)
    return None


def cpu_limit(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Cores' worth of time; None: no limit but the machine's cores."""
    quota, _, period = _read(root / "cpu.max").partition(" ")
    if not quota:
        quota, period = _read(root / "cpu/cpu.cfs_quota_us"), _read(root / "cpu/cpu.cfs_period_us")
    if quota.isdigit() and period.isdigit() and int(period) > 0:
        return int(quota) / int(period)
    return None


def usable_cpus() -> int:
    return len(os.sched_getaffinity(0))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
