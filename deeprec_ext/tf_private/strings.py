"""Tensors of strings as TensorFlow's servers send them, which `tf.make_ndarray` does not read."""

from __future__ import annotations

import tensorflow as tf

BAD = "the TensorFlow server answered something that is no tensor of strings, or cut off"


def split_strings(content: bytes, count: int) -> list[bytes]:
    """All lengths, as varints, then all bytes. Raises tf.errors.AbortedError for what is none."""
    sizes: list[int] = []
    at = 0
    while len(sizes) < count and at < len(content):
        size = shift = 0
        for byte in content[at : at + 10]:
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += shift // 7
        sizes.append(size)
    if len(sizes) < count or at + sum(sizes) != len(content):
        raise tf.errors.AbortedError(None, None, BAD)
    strings = []
    for size in sizes:
        strings.append(content[at : at + size])
        at += size
    return strings
