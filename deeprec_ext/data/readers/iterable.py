"""A reader around a function of the user: path -> its records, in an order that is always the same.

Such a file cannot be entered in the middle: a shard is reached by reading what is before it. Shards in order cost nothing
extra; with shuffle each costs half a file on average. For large files write a Reader with offsets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from deeprec_ext.data.errors import ChangedError
from deeprec_ext.data.readers.base import Columns, Scan, Shard, shares, strings


class IterableReader:
    """Records may be bytes or text (strings), numbers and arrays of one shape, or dicts of these."""

    def __init__(self, function: Callable[[str], Iterable[Any]]) -> None:
        self._function = function
        self.name = f"function-{getattr(function, '__qualname__', type(function).__name__)}"
        self._open: tuple[str, int, Iterator[Any]] | None = None  # path, next record, the rest

    def sample(self, path: str) -> Columns | None:
        first = list(itertools.islice(self._function(path), 1))
        return as_columns(first) if first else None

    def scan(self, path: str, shard_records: int) -> Scan:
        records = sum(1 for _ in self._function(path))
        return Scan(range(0, records, shard_records), shares(records, shard_records), records)

    def read(self, shard: Shard) -> Columns:
        if self._open is None or self._open[0] != shard.path or self._open[1] > shard.first:
            self._open = shard.path, 0, iter(self._function(shard.path))
        _, at, rest = self._open
        found = list(itertools.islice(rest, shard.first - at, shard.first - at + shard.records))
        if len(found) != shard.records:
            self._open = None
            raise ChangedError(f"{shard} has only {len(found)} records: the file has shrunk since they were counted")
        self._open = shard.path, shard.first + shard.records, rest
        return as_columns(found)


def as_columns(records: list[Any]) -> Columns:
    """Records as arrays whose first dimension is their number; strings become arrays of bytes objects."""
    if isinstance(records[0], dict):
        return {name: _column([record[name] for record in records]) for name in records[0]}
    return _column(records)


def _column(values: list[Any]) -> np.ndarray:
    if isinstance(values[0], (bytes, str)):
        return strings([value.encode() if isinstance(value, str) else value for value in values])
    return np.asarray(values)
