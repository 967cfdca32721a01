"""TFRecord: a record is the serialised string (mostly a tf.train.Example). Uncompressed files only.

A record lies in the file as: length (8 bytes), its masked CRC-32C (4), the data, its CRC (4). The CRC of the first length
of each shard is checked (it tells a TFRecord from anything else); lengths must end exactly where the shard ends. The CRC
of the data is not checked: in Python that would be slower than training.
"""

from __future__ import annotations

import struct

import numpy as np

from deeprec_ext.data import files
from deeprec_ext.data.errors import ChangedError, DataError
from deeprec_ext.data.readers.base import Scan, Shard

_HEAD = struct.Struct("<QI")
_TAIL = 4
_RECORD_LIMIT = 2 << 30


def _crc32c_table() -> tuple[int, ...]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return tuple(table)


_TABLE = _crc32c_table()


def masked_crc32c(data: bytes) -> int:
    """As TFRecord files have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


class TFRecordReader:
    name = "tfrecord"

    def sample(self, path: str) -> None:
        return None

    def scan(self, path: str, shard_records: int) -> Scan:
        begins: list[int] = []
        records = at = 0
        total = files.size(path)
        rest, base = b"", 0  # bytes not yet walked, and their offset
        for block in files.blocks(path):
            data = rest + block if rest else block
            position = at - base
            while position + _HEAD.size <= len(data):
                length, crc = _HEAD.unpack_from(data, position)
                if records % shard_records == 0 and masked_crc32c(data[position : position + 8]) != crc:
                    raise DataError(f"{path} is no TFRecord file, or compressed, or torn, at byte {base + position}")
                end = position + _HEAD.size + length + _TAIL
                if length > _RECORD_LIMIT or base + end > total:
                    raise DataError(f"{path} is torn: the record at byte {base + position} goes beyond its end")
                if end > len(data):
                    break
                if records % shard_records == 0:
                    begins.append(base + position)
                records += 1
                position = end
            at = base + position
            rest, base = data[position:], at
        if rest:
            raise DataError(f"{path} is torn: {len(rest)} bytes after its last record, at byte {at}")
        full, left = divmod(records, shard_records)
        return Scan(begins, [shard_records] * full + ([left] if left else []), at)

    def read(self, shard: Shard) -> np.ndarray:
        data = files.read_range(shard.path, shard.begin, shard.end)
        found = np.empty(shard.records, object)
        position = 0
        for number in range(shard.records):
            if position + _HEAD.size > len(data):
                raise ChangedError(f"{shard}: the file was changed after its records were counted")
            length, crc = _HEAD.unpack_from(data, position)
            if number == 0 and masked_crc32c(data[:8]) != crc:
                raise ChangedError(f"{shard}: no record begins here, the file was changed after they were counted")
            begin = position + _HEAD.size
            position = begin + length + _TAIL
            found[number] = data[begin : begin + length]
        if position != len(data):
            raise ChangedError(f"{shard} ends elsewhere: the file was changed after its records were counted")
        return found
