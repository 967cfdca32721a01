"""What a reader is: it finds where the shards of a file begin, and reads one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Union, runtime_checkable

import numpy as np

from deeprec_ext.data.errors import DamagedError

Columns = Union[np.ndarray, Mapping[str, np.ndarray]]
"""Records: their number is the first dimension of the array, or of each of the named arrays."""


@dataclass(frozen=True)
class Scan:
    """Where the shards of one file begin, and how many records each has."""

    begins: Sequence[int]
    records: Sequence[int]
    end: int
    """Where the last one ends: the size of the file, for readers that count bytes."""


@dataclass(frozen=True)
class Shard:
    """One range of records of one file."""

    path: str
    number: int
    first: int
    records: int
    begin: int
    end: int

    def __str__(self) -> str:
        return f"shard {self.number} (records {self.first} to {self.first + self.records - 1}) of {self.path}"


@dataclass(frozen=True)
class Salvaged:
    """A shard some of whose records may be damaged."""

    columns: Columns
    """All records of the shard; in the place of a damaged one anything."""
    bad: Sequence[int]
    """Numbers in the shard of those that are damaged, in order."""
    errors: Sequence[DamagedError] = ()
    """What is wrong with them."""


class Reader(Protocol):
    """Called in the feeder's threads, one call at a time per method. Errors: OSError, or DataError naming the file."""

    name: str
    """Part of the dataset's declaration: with what differs in it, offsets may differ."""

    def scan(self, path: str, shard_records: int) -> Scan:
        """Counts the records. `begins` mean what the reader wants them to (bytes, row numbers)."""

    def read(self, shard: Shard) -> Columns:
        """All records of the shard, in the order of the file; raises ChangedError where they are others than counted."""

    def sample(self, path: str) -> Columns | None:
        """Some records, to tell types and shapes; None: strings."""


@runtime_checkable
class Lenient(Protocol):
    """A reader that can leave damaged records out (`bad_records=skip`). Both find the same records, damaged or not."""

    def scan_leniently(self, path: str, shard_records: int) -> Scan:
        """As `scan`; damaged records are counted."""

    def read_leniently(self, shard: Shard) -> Salvaged:
        """As `read`; DamagedError is not raised."""


class StringReader:
    """A reader whose records are strings, and which counts damaged ones, too, if it is asked to."""

    def sample(self, path: str) -> None:
        return None

    def scan(self, path: str, shard_records: int) -> Scan:
        return self._scan(path, shard_records, False)

    def scan_leniently(self, path: str, shard_records: int) -> Scan:
        return self._scan(path, shard_records, True)

    def _scan(self, path: str, shard_records: int, lenient: bool) -> Scan:
        raise NotImplementedError


def strings(records: Sequence[bytes]) -> np.ndarray:
    """One dimension, whatever they are: NumPy's own strings end at a zero byte."""
    found = np.empty(len(records), object)
    found[:] = records
    return found


def shares(records: int, shard_records: int) -> list[int]:
    """How many records each shard has: all as many, but for a smaller last one."""
    full, left = divmod(records, shard_records)
    return [shard_records] * full + ([left] if left else [])


def take(columns: Columns, rows: np.ndarray | slice) -> Columns:
    """Some of the records, in the order of `rows`."""
    if isinstance(columns, np.ndarray):
        return columns[rows]
    return {name: column[rows] for name, column in columns.items()}


def concatenate(parts: Sequence[Columns]) -> Columns:
    """One batch of several parts."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)  # type: ignore[arg-type]
    return {name: np.concatenate([part[name] for part in parts]) for name in first}  # type: ignore[call-overload]


def order(seed: int, records: int) -> np.ndarray | None:
    """The order inside a shard; None: as the records stand. The same on every machine and NumPy (PCG64, its own stream)."""
    return np.random.Generator(np.random.PCG64(seed)).permutation(records) if seed else None
