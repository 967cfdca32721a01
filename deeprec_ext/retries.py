"""Trying again: how long to wait between two tries, and until when.

By hand, and not by a library (tenacity): two functions, whose waits a test replaces as those of everything around them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


def pauses(first_seconds: float, most_seconds: float) -> Iterator[float]:
    """For ever, each twice as long as the one before."""
    pause = first_seconds
    while True:
        yield pause
        pause = min(2 * pause, most_seconds)


async def retried(
    call: Callable[[], Awaitable[T]], worth: Callable[[Exception], bool], seconds: float, *,
    first_seconds: float = 0.1, most_seconds: float = 2.0, sleep: Sleep = asyncio.sleep,
) -> T:  # fmt: skip
    """What `call` returns at last.

    Args:
        worth: whether another try may help after this error.
        seconds: after so long an error counts, whatever it is.

    Raises what `call` raises.
    """
    clock = asyncio.get_running_loop().time
    began, waited = clock(), 0.0
    for pause in pauses(first_seconds, most_seconds):
        try:
            return await call()
        except Exception as error:
            if not worth(error) or max(waited, clock() - began) >= seconds:
                raise
        await sleep(pause)
        waited += pause
    raise AssertionError("pauses never end")
