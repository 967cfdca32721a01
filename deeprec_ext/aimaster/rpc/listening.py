"""The address of the AIMaster: a port that is taken is an error, a Unix socket that cannot be made is waited for.

The socket of `run --isolate` lies in the run directory. Where that cannot be written at present (read-only, full), neither can
a socket be made in it, and an AIMaster that ended for that would use up its restarts within seconds.
"""

from __future__ import annotations

import asyncio
import logging

import grpc.aio

from deeprec_ext.aimaster.store.storefile import AGAIN_SECONDS
from deeprec_ext.errors import UsageError
from deeprec_ext.security import credentials

log = logging.getLogger(__name__)

SOCKET = "unix:"


def try_listen(server: grpc.aio.Server, address: str, certs: str | None) -> int | None:
    """The port (1 for a socket). None: a socket that cannot be made now. Raises UsageError: the port is taken."""
    try:
        return credentials.add_port(server, address, "aimaster", certs)
    except RuntimeError as error:
        if address.startswith(SOCKET):
            return None
        raise UsageError(f"the AIMaster cannot listen at {address}: the port is in use; give another") from error


async def listen(server: grpc.aio.Server, address: str, certs: str | None) -> int:
    """The same, and waits for a socket as long as it takes."""
    told = False
    while (port := try_listen(server, address, certs)) is None:
        if not told:
            log.error("%s cannot be made, as if its directory were full or read-only; it is tried again", address)
        told = True
        await asyncio.sleep(AGAIN_SECONDS)
    return port
