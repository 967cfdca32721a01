"""A command in a running container, as `kubectl exec` runs it: through the API server, by a websocket.

The protocol is `v4.channel.k8s.io`, which every server has had since long before 1.20. The first byte of a message names its
channel: 1 stdout, 2 stderr, 3 a `Status` with how the command ended. Nothing is sent; now and then a ping, so that no proxy
takes a command that waits for a dead connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from deeprec_ext.errors import UnreachableError
from tfjob.api.client import Api, ApiError
from tfjob.model.kinds import PODS, Manifest

PROTOCOL = "v4.channel.k8s.io"
STDOUT, STDERR, STATUS = 1, 2, 3
PING_SECONDS = 20.0

Sink = Callable[[bytes], Any]


async def execute(
    api: Api, namespace: str, pod: str, container: str, command: Sequence[str], stdout: Sink, stderr: Sink
) -> int:
    """Runs it to its end; returns its exit code. What it writes is handed on as it comes.

    Raises ForbiddenError, NotFoundError and other ApiErrors when it was not started, UnreachableError when the connection
    broke before it had ended.
    """
    path = PODS.path(namespace, pod, "exec")
    words = [("command", word) for word in command]
    query = urlencode([("container", container), ("stdout", "1"), ("stderr", "1"), *words], quote_via=quote)
    async with api.websocket(f"{path}?{query}", PROTOCOL) as opened:
        pinging = asyncio.ensure_future(_ping(opened))
        try:
            return await _read(opened, {STDOUT: stdout, STDERR: stderr}, pod)
        finally:
            pinging.cancel()


async def _read(opened: Any, sinks: dict[int, Sink], pod: str) -> int:
    async for message in opened:
        data = message.data
        if not isinstance(data, bytes) or len(data) < 2:
            continue  # a server says that it has started by an empty message
        if data[0] == STATUS:
            return exit_code(json.loads(data[1:]), pod)
        if data[0] in sinks:
            sinks[data[0]](data[1:])
    raise UnreachableError(f"the connection to pod {pod} broke before the command had ended; run it again")


def exit_code(status: Manifest, pod: str) -> int:
    """From the last message. Raises ApiError when the command could not be run."""
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or []:
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    message = status.get("message") or "no reason given"
    raise ApiError(int(status.get("code") or 500), status.get("reason") or "", f"exec in pod {pod}: {message}")


async def _ping(opened: Any) -> None:
    with contextlib.suppress(ConnectionError):  # whoever reads finds out
        while True:
            await asyncio.sleep(PING_SECONDS)
            await opened.ping()
