"""One data file: a header, blocks, an index of the blocks, and an end mark.

    header   magic, length, crc32 | JSON: version, codec, cut, slot
    block    magic, lengths, crc32 | JSON: variable, type, kind, shape, rows | payload
    ...
    index    JSON, compressed: offset, size and description of every block
    end      offset, lengths and crc32 of the index, magic

A block holds rows of one variable: a range of consecutive rows (`range`), rows by number (`rows`, ascending), or the
value as a whole (`whole`: scalars, and what has no rows). Every length is checked against the file and against the
variable before anything of that size is allocated. Numbers are little-endian.
"""

from __future__ import annotations

import dataclasses
import json
import math
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np

from deeprec_ext.backup import codec as codecs
from deeprec_ext.backup import dtypes
from deeprec_ext.backup.errors import DamagedError, WrongBackupError
from deeprec_ext.backup.manifest import VERSION

MAGIC, BLOCK, END = b"DRXDISK1", b"DRXB", b"DRXDEND1"
_HEADER = struct.Struct("<8sII")  # magic, length, crc32 of what follows
_BLOCK = struct.Struct("<4sIQQI")  # magic, length of the description, stored and raw length of the payload, checksum
_END = struct.Struct("<QIII8s")  # offset, stored length, raw length and checksum of the index, magic
DESCRIPTION_MAX, INDEX_MAX = 1 << 20, 1 << 28

RANGE, ROWS, WHOLE = "range", "rows", "whole"


@dataclass(frozen=True)
class BlockInfo:
    """What a block holds."""

    variable: str
    dtype: int
    kind: str
    shape: tuple[int, ...]
    """Of the values in this block; the first dimension counts its rows."""
    first: int
    """First row, and last row for `rows`."""
    last: int
    stored: str
    """raw, zlib, zstd."""
    offset: int = 0
    size: int = 0
    """Of the whole block in the file."""

    @property
    def rows(self) -> int:
        return self.shape[0] if self.kind != WHOLE else 1

    def to_list(self) -> list[Any]:
        """Its fields, for JSON; the last two are its place."""
        return [*vars(self).values()]

    @classmethod
    def from_list(cls, values: list[Any]) -> BlockInfo:
        """Raises ValueError or TypeError."""
        name, dtype, kind, shape, first, last, stored, offset, size = values
        one = cls(
            str(name), int(dtype), str(kind), tuple(int(s) for s in shape), int(first), int(last), str(stored),
            int(offset), int(size),
        )  # fmt: skip
        if kind not in (RANGE, ROWS, WHOLE) or not dtypes.known(one.dtype) or any(s < 0 for s in one.shape):
            raise ValueError(f"block of {name!r}: {kind} {shape} of type {dtype}")
        if kind != WHOLE and not one.shape:
            raise ValueError(f"block of {name!r}: rows of a scalar")
        return one


@dataclass(frozen=True)
class Block:
    info: BlockInfo
    rows: np.ndarray | None
    """[n] int64, ascending, for `rows`."""
    data: np.ndarray
    """Flat: bytes (uint8) of the values, or objects (bytes) for strings."""

    def values(self, dtype: Any) -> np.ndarray:
        """As an array of this NumPy type (object for strings)."""
        if self.info.dtype == dtypes.STRING:
            return self.data.reshape(self.info.shape)
        return self.data.view(dtype).reshape(self.info.shape)


def flat_bytes(values: np.ndarray) -> bytes:
    """The payload of some values: their bytes; of strings their lengths (int64) and then their bytes."""
    if values.dtype == object or values.dtype.kind in "SU":
        texts = [text.encode() if isinstance(text, str) else bytes(text) for text in values.reshape(-1).tolist()]
        return np.array([len(text) for text in texts], "<i8").tobytes() + b"".join(texts)
    return np.ascontiguousarray(values).tobytes()


def _texts(payload: bytes, count: int) -> np.ndarray:
    if len(payload) < 8 * count:
        raise ValueError("too short for the lengths of its strings")
    lengths = np.frombuffer(payload, "<i8", count)
    if count and (lengths.min() < 0 or int(lengths.sum()) != len(payload) - 8 * count):
        raise ValueError("lengths of strings that do not fit")
    ends = 8 * count + np.cumsum(lengths)
    found = np.empty(count, object)
    found[:] = [payload[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist())]
    return found


@dataclass
class FileWriter:
    """Writes one data file into `stream`; `finish` makes it complete."""

    stream: BinaryIO
    cut: str
    slot: int
    codec: codecs.Codec = field(default_factory=codecs.best)
    size: int = 0
    crc32: int = 0
    raw_bytes: int = 0
    rows: int = 0
    index: list[BlockInfo] = field(default_factory=list)

    def __post_init__(self) -> None:
        text = json.dumps({"version": VERSION, "codec": self.codec.name, "cut": self.cut, "slot": self.slot}).encode()
        self._put(_HEADER.pack(MAGIC, len(text), zlib.crc32(text)) + text)

    def _put(self, data: bytes) -> None:
        self.stream.write(data)
        self.size += len(data)
        self.crc32 = zlib.crc32(data, self.crc32)

    def add_range(self, variable: str, dtype: int, first: int, values: np.ndarray) -> None:
        """Consecutive rows, from `first` on."""
        self._add(BlockInfo(variable, dtype, RANGE, values.shape, first, first + len(values) - 1, "raw"), b"", values)

    def add_rows(self, variable: str, dtype: int, rows: np.ndarray, values: np.ndarray) -> None:
        """Rows by number, ascending."""
        if len(rows):
            steps = np.diff(rows.astype("<i8"), prepend=np.int64(0)).astype("<i8").tobytes()
            info = BlockInfo(variable, dtype, ROWS, values.shape, int(rows[0]), int(rows[-1]), "raw")
            self._add(info, steps, values)

    def add_whole(self, variable: str, dtype: int, value: np.ndarray) -> None:
        self._add(BlockInfo(variable, dtype, WHOLE, np.shape(value), 0, 0, "raw"), b"", np.asarray(value))

    def _add(self, info: BlockInfo, rows: bytes, values: np.ndarray) -> None:
        raw = rows + flat_bytes(values)
        payload, stored = raw, "raw"
        packed = self.codec.compress(raw)
        if len(packed) < codecs.WORTH * len(raw):
            payload, stored = packed, self.codec.name
        info = dataclasses.replace(info, stored=stored, offset=self.size)
        description = json.dumps(info.to_list()[:-2]).encode()
        crc32 = _checksum((len(description), len(payload), len(raw)), description, payload)
        self._put(_BLOCK.pack(BLOCK, len(description), len(payload), len(raw), crc32) + description)
        self._put(payload)
        self.index.append(dataclasses.replace(info, size=self.size - info.offset))
        self.raw_bytes += len(raw)
        self.rows += info.rows

    def finish(self) -> None:
        raw = json.dumps([one.to_list() for one in self.index], separators=(",", ":")).encode()
        packed = zlib.compress(raw, 1)
        offset = self.size
        self._put(packed)
        crc32 = _checksum((offset, len(packed), len(raw)), packed)
        self._put(_END.pack(offset, len(packed), len(raw), crc32, END))


def _checksum(numbers: tuple[int, int, int], *parts: bytes | memoryview) -> int:
    """Of the contents and of the numbers that say how long they are: a flipped length must not be believed either."""
    crc32 = zlib.crc32(struct.pack("<3Q", *numbers))
    for part in parts:
        crc32 = zlib.crc32(part, crc32)
    return crc32


class FileReader:
    """Reads one data file. `stream` can be sought; `size` is the file's. Raises DamagedError and WrongBackupError."""

    def __init__(self, stream: Any, name: str, size: int) -> None:
        self._stream, self.name, self._size = stream, name, size
        self._header()
        self.blocks = self._index()

    def _at(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0 or offset + length > self._size:
            raise DamagedError(self.name, "torn", f"{length} bytes at {offset} of a file of {self._size}")
        self._stream.seek(offset)
        data = self._stream.read(length)
        if len(data) != length:
            raise DamagedError(self.name, "torn", f"{len(data)} of {length} bytes at {offset}")
        return bytes(data)

    def _header(self) -> None:
        magic, length, crc32 = _HEADER.unpack(self._at(0, _HEADER.size))
        if magic != MAGIC:
            raise DamagedError(self.name, "flipped", "it does not begin as a data file of a backup does")
        text = self._at(_HEADER.size, min(length, DESCRIPTION_MAX))
        if zlib.crc32(text) != crc32:
            raise DamagedError(self.name, "flipped", "its header")
        values = json.loads(text)
        if values["version"] != VERSION:
            raise WrongBackupError(f"{self.name} has version {values['version']}, this deeprec-ext reads {VERSION}")
        self.codec = codecs.named(values["codec"])
        self.cut, self.slot = str(values["cut"]), int(values["slot"])

    def _index(self) -> list[BlockInfo]:
        offset, stored, raw, crc32, magic = _END.unpack(self._at(self._size - _END.size, _END.size))
        if magic != END:
            raise DamagedError(self.name, "torn", "its end is missing")
        packed = self._at(offset, stored)
        if _checksum((offset, stored, raw), packed) != crc32 or raw > INDEX_MAX:
            raise DamagedError(self.name, "flipped", "its index")
        try:
            found = [BlockInfo.from_list(one) for one in json.loads(codecs.ZLIB.expand(packed, raw))]
        except (ValueError, TypeError) as error:
            raise DamagedError(self.name, "flipped", f"its index: {error}") from error
        return found

    def read(self, info: BlockInfo) -> Block:
        """One block of `blocks`, with its checksum compared."""
        data = self._at(info.offset, info.size)
        where = f"block of {info.variable} at {info.offset}"
        if len(data) < _BLOCK.size:
            raise DamagedError(self.name, "torn", where)
        magic, length, stored, raw, crc32 = _BLOCK.unpack_from(data)
        body = memoryview(data)[_BLOCK.size :]
        if magic != BLOCK or length + stored != len(body) or _checksum((length, stored, raw), body) != crc32:
            raise DamagedError(self.name, "flipped", where)
        try:
            return self._block(info, body[length:], raw)
        except ValueError as error:
            raise DamagedError(self.name, "flipped", f"{where}: {error}") from error

    def _block(self, info: BlockInfo, payload: memoryview, raw: int) -> Block:
        count = math.prod(info.shape)
        leading = 8 * info.shape[0] if info.kind == ROWS else 0
        if info.dtype != dtypes.STRING and raw != leading + count * dtypes.size_of(info.dtype):
            raise ValueError(f"{raw} bytes for {info.shape} of {dtypes.name_of(info.dtype)}")
        data = bytes(payload) if info.stored == "raw" else self.codec.expand(bytes(payload), raw)
        if len(data) != raw:
            raise ValueError(f"{len(data)} bytes instead of {raw}")
        rows = np.cumsum(np.frombuffer(data, "<i8", info.shape[0])) if leading else None
        if rows is not None and (rows[0] != info.first or rows[-1] != info.last or (np.diff(rows) <= 0).any()):
            raise ValueError("rows that do not ascend")
        if info.dtype == dtypes.STRING:
            return Block(info, rows, _texts(data[leading:], count))
        return Block(info, rows, np.frombuffer(data, np.uint8, offset=leading))
