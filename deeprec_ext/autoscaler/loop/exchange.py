"""What goes between an AIMaster and the arbiter of its cluster or pool: bids one way, allowances the other, as JSON.

Neither side waits for the other. What the arbiter writes is read like anything that comes from outside: what is no allowance is
ignored, and the last one goes on to count.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from deeprec_ext.arbiter.observed import Bid
from deeprec_ext.arbiter.wire import TEXT_MAX, bid_text
from deeprec_ext.options import Settings
from deeprec_ext.wholefiles import write

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5


class Exchange(Protocol):
    """One of these for each place where an arbiter may be."""

    @property
    def is_read(self) -> bool:
        """Whether somebody is there who reads bids: else nothing is measured for them."""

    async def publish(self, bid: Bid) -> None:
        """Raises OSError, DeepRecError: it is tried again later, with what is true then."""

    def allowances(self) -> AsyncIterator[str | None]:
        """For ever: each text that is another than before, the newest where several came; None: it was taken away, and nothing
        limits the job any more."""


class Files:
    """In a pool of one machine: two files, each written whole by one side."""

    is_read = True

    def __init__(self, bid: Path | None, allowance: Path | None, poll_seconds: float = POLL_SECONDS) -> None:
        self._bid, self._allowance, self._poll_seconds = bid, allowance, poll_seconds

    @classmethod
    def of(cls, settings: Settings) -> Files | None:
        """None: the job is in no pool."""
        bid, allowance = (Path(one) if one else None for one in (settings.bid_file, settings.allowance_file))
        return cls(bid, allowance) if bid or allowance else None

    async def publish(self, bid: Bid) -> None:
        if self._bid is not None:
            await asyncio.to_thread(write, self._bid, bid_text(bid) + "\n", 0o600)

    async def allowances(self) -> AsyncIterator[str | None]:
        seen: object = None
        while self._allowance is not None:
            found, text = await asyncio.to_thread(read_if_changed, self._allowance, seen)
            if found is None and seen is not None:
                seen = None
                yield None
            elif found is not None and found != seen:
                seen = found
                if text is not None:
                    yield text
            await asyncio.sleep(self._poll_seconds)

    def first(self) -> str | None:
        """What is there before the job starts; None: nothing."""
        return read_if_changed(self._allowance, None)[1] if self._allowance is not None else None


def read_if_changed(path: Path, seen: object) -> tuple[object, str | None]:
    """(what tells this version from others, its text). (None, None): there is no such file; no text: it has not changed since
    `seen`, or is none that can be read. Never waits for who writes it: a pipe in its place is not read."""
    try:
        now = os.stat(path)
        found = now.st_mtime_ns, now.st_size, now.st_ino
        if found == seen or not stat.S_ISREG(now.st_mode):
            return found, None
        with contextlib.closing(open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")) as file:
            return found, file.read(TEXT_MAX + 1).decode("utf-8", "replace")
    except FileNotFoundError:
        return None, None
    except OSError as error:
        log.debug("%s cannot be read: %s", path, error)
        return seen, None
