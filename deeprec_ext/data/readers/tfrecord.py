"""TFRecord: a record is the serialised string (mostly a tf.train.Example). Uncompressed files only.

A record lies in the file as: length (8 bytes), its masked CRC-32C (4), the data, its CRC (4). Counting checks the CRC of every
length, reading that of the data as well (`crc32c`). Where a length is damaged nobody knows where the next record begins: it is
looked for, and what is between counts as one record, so that a file has the same records whoever counts and reads it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from deeprec_ext.data import compressed, files
from deeprec_ext.data.errors import ChangedError, DamagedError, DataError
from deeprec_ext.data.readers import crc32c
from deeprec_ext.data.readers.base import Salvaged, Scan, Shard, StringReader, shares, strings
from deeprec_ext.data.readers.crc32c import length_of, masked_crc32c, next_header
from deeprec_ext.tf_private.records import record_readers

log = logging.getLogger("deeprec_ext")

HEAD_BYTES, TAIL_BYTES = 12, 4
FRAME_BYTES = HEAD_BYTES + TAIL_BYTES
LENGTHS_MAX = 65536
"""Headers that are remembered as right: what differs in length only is checked by looking it up."""
SEARCH_BYTES = 1 << 20
"""Looked through at once for the record behind a damaged length."""

LENGTH, DATA = "the CRC of its length is wrong", "the CRC of its data is wrong"
BEYOND = "it goes beyond its shard: torn, or changed after the records were counted"


class TFRecordReader(StringReader):
    name = "tfrecord"

    def __init__(self) -> None:
        self._lengths: dict[bytes, int] = {}  # header whose CRC is right -> length
        self._fallback: Callable[[str], Any] | None = None if crc32c.CRC_IS_FAST else _tensorflow()

    # -- counting

    def _scan(self, path: str, shard_records: int, lenient: bool) -> Scan:
        begins: list[int] = []
        records = at = 0
        total = files.size(path)
        lengths = self._lengths.copy()  # another thread may read
        with files.places(path) as file:
            while at < total:
                data = file.read(at, max(file.block_bytes, HEAD_BYTES))
                found, used, wrong = _walk(data, lengths)
                begins += [at + place for place in found[-records % shard_records :: shard_records]]
                records += len(found)
                beyond = at + used > total  # the last one
                if beyond and not wrong:
                    used = found[-1]
                    records -= 1
                    if records % shard_records == 0:
                        begins.pop()
                at += used
                if not (wrong or beyond or (not used and len(data) < HEAD_BYTES)):
                    continue
                if at == 0:
                    compressed.refuse(path, data)
                after = _next_record(file, at, total) if lenient else total
                if not lenient or (at == 0 and after == total):
                    raise self._wrong(path, records, at, total, wrong)
                if records % shard_records == 0:
                    begins.append(at)
                records += 1
                at = after
        return Scan(begins, shares(records, shard_records), total)

    def _wrong(self, path: str, record: int, at: int, total: int, wrong: bool) -> DataError:
        if wrong and at == 0:
            return DataError(f"{path} is no TFRecord file, or its first length is damaged, at byte 0")
        if wrong:
            return DamagedError(path, record, at, LENGTH)
        if total - at < HEAD_BYTES:
            return DataError(f"{path} is torn: {total - at} bytes after its last record, at byte {at}")
        return DataError(f"{path} is torn: the record at byte {at} goes beyond its end")

    # -- reading

    def read(self, shard: Shard) -> np.ndarray:
        found: list[bytes] = []
        at, end = shard.begin, shard.end
        wanted = 0
        with files.places(shard.path) as file:
            while at < end:
                size = min(end - at, max(file.block_bytes, HEAD_BYTES, wanted))
                data = file.read(at, size)
                if len(data) < size:
                    raise ChangedError(f"{shard}: the file has shrunk since its records were counted")
                records, used, wrong = _slices(data, self._lengths)
                bad = self._damaged(file, at, data, records)
                if bad is not None:
                    place = at + sum(FRAME_BYTES + len(record) for record in records[:bad])
                    raise DamagedError(shard.path, shard.first + len(found) + bad, place, DATA)
                found += records
                at += used
                if wrong or at + HEAD_BYTES > end > at:
                    raise DamagedError(shard.path, shard.first + len(found), at, LENGTH)
                if not records:  # longer than a block
                    wanted = FRAME_BYTES + self._lengths.get(data[:HEAD_BYTES], 0)
                    if at + wanted > end or wanted <= size:
                        raise DamagedError(shard.path, shard.first + len(found), at, BEYOND)
        if len(found) != shard.records:
            raise ChangedError(f"{shard} has {len(found)} records: the file was changed after they were counted")
        return strings(found)

    def _damaged(self, file: files.Places, at: int, data: bytes, records: list[bytes]) -> int | None:
        if self._fallback is None:
            return crc32c.damaged(data, records)
        return self._fallback(file.path)(at, len(records))

    def read_leniently(self, shard: Shard) -> Salvaged:
        try:
            return Salvaged(self.read(shard), ())
        except DamagedError:
            pass
        data = files.read_range(shard.path, shard.begin, shard.end)
        found: list[bytes | None] = []
        errors: list[DamagedError] = []
        sure: int | None = None  # records before the first of which the length is damaged
        at = 0
        while at < len(data):
            header = data[at : at + HEAD_BYTES]
            length = length_of(header) if len(header) == HEAD_BYTES else None
            end = at + FRAME_BYTES + (length or 0)
            whole = length is not None and end <= len(data)
            record = data[at + HEAD_BYTES : end - TAIL_BYTES]
            good = whole and masked_crc32c(record).to_bytes(4, "little") == data[end - TAIL_BYTES : end]
            if not good:
                number = shard.first + len(found)
                errors.append(DamagedError(shard.path, number, shard.begin + at, DATA if whole else LENGTH))
            if not whole:
                sure = len(found) if sure is None else sure
                end = next_header(data, at + 1, len(data) - at - 1) or len(data)
            found.append(record if good else None)
            at = end
        if len(found) != shard.records:  # a length was damaged after they were counted: which are missing nobody knows
            if sure is None or sure > shard.records:
                raise ChangedError(f"{shard} has {len(found)} records: the file was changed after they were counted")
            found = found[:sure] + [None] * (shard.records - sure)
        bad = tuple(number for number, record in enumerate(found) if record is None)
        return Salvaged(strings([record or b"" for record in found]), bad, tuple(errors))


def _walk(data: bytes, lengths: dict[bytes, int]) -> tuple[list[int], int, bool]:
    """Where the records begin; where the last one ends, perhaps behind these bytes; whether the length behind it is damaged."""
    places: list[int] = []
    append, get = places.append, lengths.get
    at, size = 0, len(data) - HEAD_BYTES
    while at <= size:
        header = data[at : at + HEAD_BYTES]
        length = get(header)
        if length is None:
            length = length_of(header)
            if length is None:
                return places, at, True
            if len(lengths) < LENGTHS_MAX:
                lengths[header] = length
        append(at)
        at += FRAME_BYTES + length
    return places, at, False


def _slices(data: bytes, lengths: dict[bytes, int]) -> tuple[list[bytes], int, bool]:
    """The whole records of these bytes; where the last one ends; whether the length behind it is damaged."""
    records: list[bytes] = []
    append, get = records.append, lengths.get
    at, size = 0, len(data) - TAIL_BYTES
    while True:
        begin = at + HEAD_BYTES
        header = data[at:begin]
        length = get(header)
        if length is None:
            if len(header) < HEAD_BYTES:
                return records, at, False
            length = length_of(header)
            if length is None:
                return records, at, True
            if len(lengths) >= LENGTHS_MAX:
                lengths.clear()
            lengths[header] = length
        end = begin + length
        if end > size:
            return records, at, False
        append(data[begin:end])
        at = end + TAIL_BYTES


def _next_record(file: files.Places, at: int, total: int) -> int:
    """Where the next record begins behind a damaged one at `at`; the end of the file where there is none."""
    begin = at + 1
    while begin < total:
        data = file.read(begin, SEARCH_BYTES)
        found = next_header(data, 0, total - begin)
        if found is not None:
            return begin + found
        if len(data) < SEARCH_BYTES:
            break
        begin += len(data) - HEAD_BYTES + 1
    return total


def _tensorflow() -> Callable[[str], Any] | None:
    """TensorFlow's own reader, which checks at the speed of C; None: there is no TensorFlow, a table in Python does it."""
    try:
        reader_of = record_readers()
    except ImportError:
        log.warning("TFRecord files are checked slowly: pip install google-crc32c")
        return None

    def of(path: str) -> Callable[[int, int], int | None]:
        reader = reader_of(path)

        def damaged(at: int, records: int) -> int | None:
            for number in range(records):
                try:
                    _, at = reader.read(at)
                except Exception as error:
                    if type(error).__name__ != "DataLossError":
                        raise
                    return number
            return None

        return damaged

    return of
