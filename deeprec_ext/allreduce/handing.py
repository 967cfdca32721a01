"""A state on its way round a ring: from the member that has it to those that are new, by way of the others; checked."""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from deeprec_ext.allreduce.ring import Array, LostError, Ring

STATE_BYTES = 1 << 22
_LENGTH = struct.Struct("!q")


class State(Protocol):
    """What a newcomer needs: all that steps leave behind and that is alike on all members."""

    def take(self) -> Sequence[Array]:
        """Arrays of any shape and type, always the same ones in the same order."""

    def put(self, arrays: Sequence[Array]) -> None:
        """What another member has taken. Raises ProtocolError where the models are not alike."""


def hand_on(ring: Ring, source: int, state: State, says: Any, *, takes: bool) -> Any:
    """The state of `source` to all that take it; the others are on its way. Returns what the source says with it.

    Raises LostError.

    Args:
      says: this member's word, as JSON has it; that of the source counts.
    """
    arrays: list[Array] = []
    if ring.rank == source:
        arrays = [np.asarray(one, order="C") for one in state.take()]
    head = {"says": says, "arrays": [(one.dtype.str, one.shape) for one in arrays]}
    head = json.loads(_text(ring, source, json.dumps(head)))
    if takes:
        arrays = [np.empty(shape, np.dtype(kind)) for kind, shape in head["arrays"]]
    if takes or ring.rank == source:
        checks = [_checked(ring, source, octets(one)) for one in arrays]
    else:
        _passed(ring, source, head["arrays"])
        checks = []
    true = json.loads(_text(ring, source, json.dumps(checks)))
    if takes:
        for place, (check, other) in enumerate(zip(checks, true)):
            if check != other:
                raise LostError(f"array {place} of the state has not come as it was sent")
        state.put(arrays)
    return head["says"]


def digest(state: State) -> int:
    """Alike for states that are alike to the bit."""
    check = zlib.crc32(b"")
    for one in state.take():
        check = zlib.crc32(octets(np.ascontiguousarray(one)), check)
    return check


def octets(array: Array) -> Any:
    return array.reshape(-1).view(np.uint8)


def _passed(ring: Ring, source: int, arrays: Sequence[tuple[str, Sequence[int]]]) -> None:
    """Who does not take it holds a part of it at a time."""
    part = np.empty(STATE_BYTES, np.uint8)
    for kind, shape in arrays:
        size = math.prod(shape) * np.dtype(kind).itemsize
        for start in range(0, size, STATE_BYTES):
            ring.hand_on(part[: min(STATE_BYTES, size - start)], source)
        ring.hand_on(part[:0], source)


def _checked(ring: Ring, source: int, data: Array) -> int:
    """While a part is on its way the one before it is checked."""
    check = 0
    for start in range(0, data.size, STATE_BYTES):
        part = data[start : start + STATE_BYTES]
        ring.hand_on(part, source, waits=False)
        check = zlib.crc32(octets(part), check)
    ring.hand_on(data[:0], source)
    return check


def _text(ring: Ring, source: int, text: str) -> str:
    data = np.frombuffer(bytearray(text.encode()), np.uint8)
    length = np.frombuffer(bytearray(_LENGTH.pack(data.size)), np.uint8)
    ring.hand_on(length, source)
    if ring.rank != source:
        data = np.empty(_LENGTH.unpack(length.tobytes())[0], np.uint8)
    ring.hand_on(data, source)
    return data.tobytes().decode()
