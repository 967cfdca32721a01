"""Numbers on their way in half the bytes: as float16, scaled by one power of two for each piece.

The largest number of a piece comes to the top of float16's range: nothing overflows, each number keeps 11 bits, and what is
below 2**-30 of the largest is nothing. Pieces with numbers that are none, or infinite, go whole.

NumPy converts from and to float16 in software, a number at a time; by whole arrays of their bits it takes a third.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

HEAD = struct.Struct("!h")
"""Before the numbers of a piece: by which power of two they were multiplied."""
_WHOLE = -(1 << 15)
"""In its place: they are as they were."""
_TOP = 15
"""Float16 ends at 2**16; one more for what is rounded up."""
_POWERS = 100
"""At the most, either way: what comes of it are normal numbers, alike in threads that know no others (TensorFlow's)."""
_DOWN, _UP = np.float32(2.0**-112), np.float32(2.0**112)
"""Between the exponents of float32 and float16, in the bits of float32."""


def packed(piece: Array) -> bytes:
    """A message.

    Args:
      piece: [n], of float32 or float64.
    """
    most = max(float(np.max(piece)), -float(np.min(piece))) if piece.size else 0.0
    power = _TOP - math.frexp(most)[1] if math.isfinite(most) else 0
    if not math.isfinite(most) or power < -_POWERS:
        return HEAD.pack(_WHOLE) + piece.tobytes()
    power = min(power, _POWERS)
    scaled = (piece * piece.dtype.type(2.0**power)).astype(np.float32, copy=False)
    scaled *= _DOWN
    bits = scaled.view(np.uint32)
    sign = bits >> 16
    sign &= 0x8000
    bits &= 0x7FFFFFFF
    bits += 0x1000  # to the nearest
    bits >>= 13
    bits *= bits >= 0x400  # a number that is not normal is none here
    bits |= sign
    return HEAD.pack(power) + bits.astype(np.uint16).tobytes()


def length(head: Array, piece: Array) -> int:
    """Bytes behind the head, [HEAD.size], of a message that is to become this piece."""
    return int(piece.nbytes if HEAD.unpack(head.tobytes())[0] == _WHOLE else 2 * piece.size)


def unpack(said: Array, piece: Array) -> None:
    """Into the piece, what a member has packed.

    Args:
      said: the message, bytes.
    """
    (power,) = HEAD.unpack(said[: HEAD.size].tobytes())
    numbers = said[HEAD.size :]
    if power == _WHOLE:
        piece.view(np.uint8)[:] = numbers
        return
    bits = numbers.view(np.uint16).astype(np.uint32)
    sign: Array = np.bitwise_and(bits, 0x8000)
    bits ^= sign
    bits <<= 13
    sign <<= 16
    bits |= sign
    np.multiply(bits.view(np.float32), _UP, out=piece)
    piece *= piece.dtype.type(2.0**-power)
