"""What the containers of a job write, through the API server: the last lines, or for as long as the pod lives.

A connection is cut sooner or later (a proxy, an API server that is restarted, a container that is started again). So every
line is asked for with its time, and who follows goes on after the last one. Memory is bounded: a line that is too long comes in
pieces.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable

from deeprec_ext.errors import UnreachableError
from tfjob.api.client import Api, ApiError, ForbiddenError, NotFoundError
from tfjob.model.kinds import PODS, Manifest

LINE_BYTES_MAX = 64 << 10
SILENT_SECONDS = 600.0
"""Then the connection may be dead: another one is made."""

PAUSE_SECONDS = 1.0
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ?")


async def read(
    api: Api, namespace: str, pod: str, container: str, *, lines: int | None = None, since: str = "", follow: bool = False
) -> AsyncIterator[tuple[str, bytes]]:  # fmt: skip
    """(time as the server wrote it, the line without it).

    Args:
        lines: so many last ones; None: all there are.
        since: a time as it came; lines of the same second come again.

    Raises ApiError (400: it has not started yet), UnreachableError.
    """
    query = {
        "container": container, "timestamps": "true", "follow": str(follow).lower(),
        **({"tailLines": str(lines)} if lines is not None else {}), **({"sinceTime": since} if since else {}),
    }  # fmt: skip
    path = PODS.path(namespace, pod, "log")
    stamp = ""
    async with api.stream(path, query, read_seconds=SILENT_SECONDS) as content:
        async for line in _pieces(content.iter_any()):
            match = _STAMP.match(line)
            if match is not None:
                stamp = match[0].decode().strip()
            yield stamp, line[match.end() :] if match is not None else line


async def follow(
    api: Api, namespace: str, pod: str, container: str, *, lines: int, since: str = "",
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[bytes]:  # fmt: skip
    """Every line once, until the pod has ended or gone. Raises ForbiddenError; everything else is tried again."""
    last = since
    while True:
        seen, whole = last, False
        try:
            asked = None if seen else lines
            async for stamp, line in read(api, namespace, pod, container, lines=asked, since=seen, follow=True):
                if not seen or after(stamp, seen):
                    last = stamp or last
                    yield line
            whole = True
        except NotFoundError:
            return
        except ForbiddenError:
            raise
        except (ApiError, UnreachableError):
            pass  # not started yet, or the connection broke
        try:
            if whole and last == seen and has_ended(await api.get(PODS, namespace, pod)):  # there is nothing new
                return
        except NotFoundError:
            return
        except (ApiError, UnreachableError):
            pass
        await sleep(PAUSE_SECONDS)


def has_ended(pod: Manifest) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def after(stamp: str, other: str) -> bool:
    """Whether a time is later than another of the same container. Trailing zeros are not written."""
    return _comparable(stamp) > _comparable(other)


def _comparable(stamp: str) -> tuple[str, str]:
    match = _STAMP.match(stamp.encode())
    return (match[1].decode(), (match[2] or b"").decode().ljust(9, "0")) if match is not None else ("", "")


async def _pieces(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Lines; of one that is too long, its parts."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            for at in range(0, max(1, len(line)), LINE_BYTES_MAX):
                yield line[at : at + LINE_BYTES_MAX]
        while len(rest) > LINE_BYTES_MAX:
            yield rest[:LINE_BYTES_MAX]
            rest = rest[LINE_BYTES_MAX:]
    if rest:
        yield rest
