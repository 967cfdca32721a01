"""Ports on this machine."""

from __future__ import annotations

import socket

from deeprec_ext.errors import UsageError

HOST = "127.0.0.1"


def free_port() -> int:
    """A port nobody listens on at the moment, chosen by the kernel."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


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
