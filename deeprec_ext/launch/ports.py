"""Ports on this machine."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

from deeprec_ext.errors import UsageError

HOST = "127.0.0.1"


FIRST = 15_000
"""Below are the ports of well-known services."""

TRIES = 100
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port nobody listens on at the moment, and that nobody gets by chance later.

    The kernel gives out ports of its own range to whoever connects or asks for any port, at once after they became free: so
    it is taken from below that range, at random.
    """
    below = _kernel_range()[0]
    for _ in range(TRIES if below > FIRST else 0):
        port = random.randrange(FIRST, below)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return port
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _kernel_range() -> tuple[int, int]:
    """(first, last) of the ports that the kernel chooses from."""
    try:
        low, high = _RANGE.read_text().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 32_768, 60_999  # as Linux has it


def check_free(port: int, flag: str) -> int:
    """The port itself, if it can be had. Raises UsageError with a remedy otherwise."""
    if not 0 < port < 65536:
        raise UsageError(f"{flag} {port}: a port is a number from 1 to 65535")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except PermissionError:
            raise UsageError(f"{flag} {port}: not allowed for this user; choose a port above 1023") from None
        except OSError:
            raise UsageError(
                f"{flag} {port}: already in use; choose another, or leave the flag out for any free port"
            ) from None
    return port
