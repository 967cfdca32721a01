"""Where the shards of a dataset are: which file, which records, which bytes.

Shards are numbered through the dataset, file after file, so a file's shards have numbers as soon as all files before it
are counted. Sixteen bytes a shard; an index range, whose records are known in advance, needs none.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from deeprec_ext.aimaster.ledger.declaration import RECORDS_MAX
from deeprec_ext.errors import UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb


@dataclass(frozen=True)
class Extent:
    """One shard."""

    file: int
    first_record: int  # within the file
    records: int
    begin_byte: int = 0
    end_byte: int = 0


@dataclass(frozen=True)
class FileShards:
    """The shards of one file. Without `firsts`: a range of `records`, cut every `shard_records`."""

    records: int
    shard_records: int = 0
    firsts: array[int] | None = None  # record at which each shard begins, and the number of records
    begins: array[int] | None = None  # byte at which each shard begins, and the last one's end

    @property
    def count(self) -> int:
        if self.firsts is not None:
            return len(self.firsts) - 1
        return -(-self.records // self.shard_records) if self.records else 0

    def extent(self, file: int, number: int) -> Extent:
        if self.firsts is None or self.begins is None:
            first = number * self.shard_records
            return Extent(file, first, min(self.shard_records, self.records - first))
        first = self.firsts[number]
        return Extent(file, first, self.firsts[number + 1] - first, self.begins[number], self.begins[number + 1])

    def pack(self) -> bytes:
        """For the store."""
        assert self.firsts is not None and self.begins is not None
        return zlib.compress(self.firsts.tobytes() + self.begins.tobytes(), 1)

    @staticmethod
    def unpack(packed: bytes) -> FileShards:
        values = array("q", zlib.decompress(packed))
        half = len(values) // 2
        return FileShards(values[half - 1], 0, values[:half], values[half:])


def from_scan(begins: Sequence[int], records: Sequence[int], end_byte: int) -> FileShards:
    """What a worker counted. Raises UsageError when it cannot be true."""
    if len(begins) != len(records):
        raise UsageError(f"{len(begins)} shard beginnings, but {len(records)} counts")
    if any(count <= 0 for count in records):
        raise UsageError("a shard without records")
    if sum(records) > RECORDS_MAX:
        raise UsageError(f"{sum(records)} records in one file")
    places = array("q", [*begins, end_byte])
    if places[0] < 0 or any(places[i] > places[i + 1] for i in range(len(places) - 1)):
        raise UsageError("shards that do not follow each other")
    firsts = array("q", accumulate(records, initial=0))
    return FileShards(firsts[-1], 0, firsts, places)


class ShardTable:
    """All files of a dataset, counted or not."""

    def __init__(self, declaration: pb.Dataset) -> None:
        self._files: list[FileShards | None] = [
            FileShards(file.records, declaration.shard_records) if file.records else None for file in declaration.files
        ]
        self.uncounted = sum(file is None for file in self._files)
        self._firsts = [0]  # number of the first shard of each file of the counted beginning, and of the next file
        self._records = 0
        self._extend()

    def _extend(self) -> None:
        while (number := len(self._firsts) - 1) < len(self._files):
            shards = self._files[number]
            if shards is None:
                return
            self._firsts.append(self._firsts[-1] + shards.count)
            self._records += shards.records

    @property
    def complete(self) -> bool:
        return self.uncounted == 0

    @property
    def count(self) -> int:
        """Shards with a number: those of the files before the first that is not counted."""
        return self._firsts[-1]

    @property
    def records(self) -> int:
        """Their records."""
        return self._records

    def counted(self, file: int) -> bool:
        return self._files[file] is not None

    def shards(self, file: int) -> FileShards | None:
        return self._files[file]

    def set(self, file: int, shards: FileShards) -> None:
        """A file has been counted; once."""
        if self._files[file] is None:
            self._files[file] = shards
            self.uncounted -= 1
            self._extend()

    def extent(self, shard: int) -> Extent:
        file = bisect_right(self._firsts, shard) - 1
        shards = self._files[file]
        assert shards is not None
        return shards.extent(file, shard - self._firsts[file])
