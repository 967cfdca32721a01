"""The table of processes, read from /proc: who belongs to whom, and since when.

psutil tells when a process started in seconds since 1970. That is the time since boot, which never changes, plus the time of
the boot, which the kernel gives in whole seconds and moves whenever the clock is set or has drifted over one: the same process
is then a second younger, and a child may be older than its parent, which psutil leaves out of `children`. Here the time is
since boot.
"""

from __future__ import annotations

import os

from deeprec_ext.gazer.cgroup import read

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def started(pid: int, proc: str = "/proc") -> int:
    """When the process started, in ticks since boot; 0 when there is none. With the pid it is unique until the next boot."""
    fields = stat_fields(f"{proc}/{pid}/stat")
    return fields[22] if fields[1] == pid else 0


def descendants(pid: int, proc: str = "/proc") -> list[int]:
    """The processes that it has started and that these have started, as far as their parents live; ascending."""
    children: dict[int, list[int]] = {}
    for name in os.listdir(proc):
        if name.isdigit():
            fields = stat_fields(f"{proc}/{name}/stat")
            children.setdefault(fields[4], []).append(int(name))
    found: set[int] = set()
    left = [pid]
    while left:
        new = set(children.get(left.pop(), ())) - found
        found |= new
        left += new
    return sorted(found)


def stat_fields(path: str) -> list[int]:
    """Fields 1 to 24 of a /proc/<pid>/stat, numbered as in proc(5); 0 for what is missing or no number.

    The second is the name of the program, in parentheses: it may hold anything, blanks and parentheses too.
    """
    before, _, after = read(path).rpartition(")")
    words = ["", before.split(" ", 1)[0], "", *after.split()]
    numbers = [int(word) if word.lstrip("-").isdigit() else 0 for word in words[:25]]
    return numbers + [0] * (25 - len(numbers))
