"""A number for each row of arrays, of what is in it: the same in all processes, wherever the row stands.

Rows are given out by their place in the order of these numbers, so that processes whose scripts have shuffled the same rows in
different orders (`np.random.permutation` without a seed) mean the same row.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence

import numpy as np

BYTES_MAX = 1 << 28
ROWS_MAX = 20_000_000
TEXTS_MAX = 10_000_000
"""What is larger is not looked at: this takes a second, and a million texts another, in each call of `fit`."""

CHUNK_BYTES = 32 << 20


def digests(arrays: Sequence[np.ndarray]) -> np.ndarray | None:
    """uint64 [rows]. Two rows have the same one with a chance of 2⁻⁶⁴, equal ones as well. None: it would take too long."""
    texts = sum(one.size for one in arrays if one.dtype == object)
    if sum(one.nbytes for one in arrays) > BYTES_MAX or texts > TEXTS_MAX or len(arrays[0]) > ROWS_MAX:
        return None
    found = np.zeros(len(arrays[0]), np.uint64)
    for one in arrays:
        own = _of_texts(one) if one.dtype == object else _of_bytes(one)
        found = _mixed(found + own + np.uint64(zlib.crc32(f"{one.dtype}{one.shape[1:]}".encode())))
    return _apart(found)


def numbered(given: np.ndarray, seed: int) -> np.ndarray:
    """Places of the rows, in an order that follows from these numbers and the seed: where a row is another one in some process,
    the places of others are the same, or next to it."""
    return np.argsort(_mixed(given + _mixed(np.array([seed + 1], np.uint64))), kind="stable")


def _apart(found: np.ndarray) -> np.ndarray:
    """Equal rows are not next to each other: the second is another one than the first."""
    order = np.argsort(found, kind="stable")
    in_order, places = found[order], np.arange(len(found))
    new = np.ones(len(found), bool)
    new[1:] = in_order[1:] != in_order[:-1]
    if not new.all():
        found[order] = _mixed(in_order + (places - np.maximum.accumulate(np.where(new, places, 0))).astype(np.uint64))
    return found


def _of_texts(array: np.ndarray) -> np.ndarray:
    rows = array.reshape(len(array), -1)
    kept = np.empty(len(array), np.uint64)
    for place, row in enumerate(rows.tolist()):
        digest = hashlib.blake2b(digest_size=8)
        for text in row:
            part = text.encode() if isinstance(text, str) else text
            digest.update(len(part).to_bytes(8, "little") + part)
        kept[place] = int.from_bytes(digest.digest(), "little")
    return kept


def _of_bytes(array: np.ndarray) -> np.ndarray:
    rows, width = len(array), array.nbytes // max(1, len(array))
    words = -(-width // 8)
    factors = np.random.Generator(np.random.PCG64(words)).integers(0, 1 << 63, words, np.uint64) * np.uint64(
        2
    ) + np.uint64(1)
    kept = np.empty(rows, np.uint64)
    step = max(1, CHUNK_BYTES // max(8, 8 * words))
    for first in range(0, rows, step):
        part = np.ascontiguousarray(array[first : first + step]).reshape(min(step, rows - first), -1)
        padded = np.zeros((len(part), 8 * words), np.uint8)
        padded[:, :width] = part.view(np.uint8).reshape(len(part), width)
        kept[first : first + step] = _mixed(_mixed(padded.view(np.uint64)) * factors).sum(axis=1, dtype=np.uint64)
    return kept


def _mixed(values: np.ndarray) -> np.ndarray:
    """Every bit depends on all: those of a sum of products would only on lower ones."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = values ^ (values >> np.uint64(31))
    return mixed
