"""The wire format of protocol buffers, as far as we need it.

TensorFlow brings no Python classes for the messages of its own services (master.proto, worker.proto); of each we need one or
two fields.
"""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

_VARINT, _BYTES = 0, 2
_SIZES = {1: 8, 5: 4}
"""Bytes of the numbers of fixed size, by wire type."""

BAD = "the TensorFlow server answered something that is no message, or cut off"


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and where it ends."""
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise tf.errors.AbortedError(None, None, BAD)


def pack(*fields: tuple[int, bytes | int]) -> bytes:
    """A message of these (number, value) fields."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(_varint(number << 3 | _VARINT) + _varint(value & 0xFFFFFFFFFFFFFFFF))
        else:
            parts += [_varint(number << 3 | _BYTES) + _varint(len(value)), value]
    return b"".join(parts)


def fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """(number, value) of each field; fixed-size numbers as bytes. Raises tf.errors.AbortedError for what is no message."""
    at, end = 0, len(message)
    while at < end:
        key, at = _read_varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _read_varint(message, at)
            yield key >> 3, value
            continue
        size = _SIZES.get(kind, end)
        if kind == _BYTES:
            size, at = _read_varint(message, at)
        if at + size > end:
            raise tf.errors.AbortedError(None, None, BAD)
        yield key >> 3, message[at : at + size]
        at += size


def first_bytes(message: bytes, number: int) -> bytes:
    """Of the first field of that number that is bytes; empty without one."""
    return next((value for field, value in fields(message) if field == number and isinstance(value, bytes)), b"")


def first_number(message: bytes, number: int) -> int:
    """Of the first field of that number that is a number; 0 without one."""
    return next((value for field, value in fields(message) if field == number and isinstance(value, int)), 0)


def split_strings(content: bytes, count: int) -> list[bytes]:
    """The strings of a tensor as TensorFlow's servers send them: all lengths, then all bytes."""
    sizes, at = [], 0
    for _ in range(count):
        size, at = _read_varint(content, at)
        sizes.append(size)
    if at + sum(sizes) != len(content):
        raise tf.errors.AbortedError(None, None, BAD)
    strings = []
    for size in sizes:
        strings.append(content[at : at + size])
        at += size
    return strings
