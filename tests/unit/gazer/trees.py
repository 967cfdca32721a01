"""Fake /proc and control groups below a folder of the test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SECOND = "30 20 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw\n"
"""Version 2, in a container with a namespace of its own."""


def plant(root: Path, files: Mapping[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def groups(folder: str, **files: str) -> dict[str, str]:
    """Files of one group; `__` in a name stands for a dot."""
    return {f"{folder}/{name.replace('__', '.')}": text for name, text in files.items()}


def first(controller: str, shown: str = "/") -> str:
    """A mount of one controller of version 1, of which the container sees the group `shown` as its root."""
    return f"31 20 0:27 {shown} /sys/fs/cgroup/{controller} rw - cgroup cgroup rw,{controller}\n"


def stat(
    pid: int,
    parent: int,
    user: int = 0,
    system: int = 0,
    threads: int = 1,
    pages: int = 0,
    name: str = "a",
    start: int = 0,
) -> str:
    fields = [pid, f"({name})", "S", parent, *[0] * 9, user, system, *[0] * 4, threads, 0, start, 0, pages, *[0] * 28]
    return " ".join(map(str, fields))
