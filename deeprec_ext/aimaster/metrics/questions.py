"""Questions to the time series of a running job: answered in a thread, with a connection of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.gazer.series import Series
from deeprec_ext.proto import deeprec_ext_pb2 as pb

READERS_MAX = 2
"""Questions answered at a time; others wait."""

T = TypeVar("T")


class Reading:
    """On the job's event loop. Writing goes on meanwhile."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._free: asyncio.Semaphore | None = None

    async def read(self, question: Callable[[Series], T]) -> T:
        """What `question` returns. Raises StoreError or sqlite3.Error when the store cannot be read."""
        if self._free is None:
            self._free = asyncio.Semaphore(READERS_MAX)  # in Python 3.9 it belongs to the loop it is made in
        async with self._free:
            return await asyncio.to_thread(self._read, question)

    def _read(self, question: Callable[[Series], T]) -> T:
        with contextlib.closing(self._store.reader()) as store:
            return question(Series(store))


def to_reply(series: Series, request: pb.SeriesRequest) -> pb.SeriesReply:
    lines = series.query(request.subjects, request.metrics, request.since, request.until, request.points)
    return pb.SeriesReply(lines=[pb.SeriesLine(**vars(line)) for line in lines])
