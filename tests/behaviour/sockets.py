"""What is on its way between two processes of this machine, as the kernel sees it (Linux)."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Connection:
    """One end of a TCP connection."""

    local: int  # port
    remote: int
    unsent: int  # bytes that the other side has not acknowledged
    unread: int
    inode: str


def connections() -> list[Connection]:
    """All of this machine; IPv4 and IPv6."""
    found = []
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(path).read_text().splitlines()[1:]:
                words = line.split()
                unsent, _, unread = words[4].partition(":")
                ports = (int(address.rpartition(":")[2], 16) for address in words[1:3])
                found.append(Connection(*ports, int(unsent, 16), int(unread, 16), words[9]))
    return found


def sockets_of(pid: int) -> set[str]:
    """Inodes of the sockets that a process has."""
    found = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            kind, _, inode = os.readlink(entry.path).partition(":")
            if kind == "socket":
                found.add(inode.strip("[]"))
    return found


def on_the_way(receiver: int, server: int) -> int:
    """Bytes that a server (its port) has sent to a client (its pid), and that the client has not read."""
    known, own = connections(), sockets_of(receiver)
    ends = {one.local: one.unread for one in known if one.remote == server and one.inode in own}
    return sum(ends.values()) + sum(one.unsent for one in known if one.local == server and one.remote in ends)
