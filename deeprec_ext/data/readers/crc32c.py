"""CRC-32C (Castagnoli), as TFRecord files have it: masked, of lengths and of data.

`google_crc32c` computes it with the processor's own instructions. `CRC_IS_FAST` is false where that is not installed: then a
table in Python gives the same values at some MB a second.

Many short records are checked by one call. A record's data followed by its CRC is a code word: it takes the CRC's register from
its start to a fixed value, whatever the record is. Twelve fixed bytes in place of the next record's header take it back to the
start. So a block of records, so rewritten, has a known CRC; a single flipped bit, or a burst of up to 32 in one record, always
changes it, anything else with probability 1 - 2^-32.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

try:
    import google_crc32c

    CRC_IS_FAST = google_crc32c.implementation == "c"
except ImportError:
    CRC_IS_FAST = False

_MASK_DELTA = 0xA282EAD8

RESIDUE = 0x48674BC7
"""CRC-32C of any bytes followed by their own CRC-32C (little endian)."""

RESET = (0, 0, 0xB0802EF6)
"""Three words: behind bytes of the CRC `RESIDUE`, they bring it to 0, that of no bytes."""

SHORT_BYTES = 1000
"""Records of fewer bytes on average are checked by one call a block: the calls cost more than copying the block."""


def _table() -> tuple[int, ...]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return tuple(table)


_TABLE = _table()


def extend_slowly(crc: int, data: bytes) -> int:
    """CRC-32C of some bytes of that CRC followed by `data`."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def value_slowly(data: bytes) -> int:
    return extend_slowly(0, data)


extend = google_crc32c.extend if CRC_IS_FAST else extend_slowly
value = google_crc32c.value if CRC_IS_FAST else value_slowly


def masked_crc32c(data: bytes) -> int:
    """As TFRecord files have it."""
    crc = value(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def damaged(data: bytes, records: Sequence[bytes], first: int = 0) -> int | None:
    """Number of the first record whose CRC is wrong; None: there is none.

    Args:
      data: records as they lie in the file: header (12 bytes), data, CRC (4 bytes).
      records: their data. The first header stands at `first`; the others follow each other.
    """
    if not records:
        return None
    lengths: np.ndarray = np.fromiter(map(len, records), np.int64, len(records))
    crcs = first + np.cumsum(lengths + 16) - 4  # where they stand
    end = int(crcs[-1]) + 4
    stored = _words(data)[crcs] - np.uint32(_MASK_DELTA)
    stored = (stored >> 17) | (stored << 15)
    if CRC_IS_FAST and end - first < SHORT_BYTES * len(records):
        block = np.frombuffer(data, np.uint8, end - first, first).copy()
        words, at = _words(block), crcs - first
        headers = at - lengths - 12
        words[at] = stored
        words[headers], words[headers + 4], words[headers + 8] = RESET
        if extend(RESIDUE, block.tobytes()) == RESIDUE:
            return None
    wrong = np.flatnonzero(np.fromiter(map(value, records), np.uint32, len(records)) != stored)
    return int(wrong[0]) if len(wrong) else None


def _words(data: bytes | np.ndarray) -> np.ndarray:
    """Little-endian words, one beginning at each byte."""
    size = data.nbytes if isinstance(data, np.ndarray) else len(data)
    return np.ndarray((size - 3,), "<u4", data, 0, (1,))


_HEADER = struct.Struct("<QI")


def length_of(header: bytes) -> int | None:
    """The length that the twelve bytes before a record tell; None: their CRC is wrong."""
    length, crc = _HEADER.unpack(header)
    return length if masked_crc32c(header[:8]) == crc else None


def next_header(data: bytes, begin: int, longest: int) -> int | None:
    """The first place from `begin` on where a header stands whose record would have up to `longest` bytes behind that place."""
    count = len(data) - begin - 11
    if count <= 0:
        return None
    lengths: np.ndarray = np.ndarray((count,), "<u8", data, begin, (1,))
    limit = np.maximum(longest - 16 - np.arange(count), -1)
    for place in np.flatnonzero(lengths.astype(np.float64) <= limit).tolist():
        at = begin + place
        if length_of(data[at : at + 12]) is not None:
            return at
    return None
