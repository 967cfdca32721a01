"""Arrays that are given to `fit`: their rows are records by number, which the data ledger leases.

Every process has all rows in its memory, as the script made them; it reads those whose numbers it has leased.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.data.plan import Plan, plan, shard_of
from deeprec_ext.data.readers import IndexReader
from deeprec_ext.data.readers.base import Columns, Shard
from deeprec_ext.keras.leased.digests import digests, numbered

BATCH = 32
"""Rows of a batch where the script does not say, as in Keras."""

ORDERED_ROWS_MAX = 100_000_000
"""The numbers of more rows would take a gigabyte."""

SAMPLED_ROWS = 64
"""So many rows tell whether two processes have the same ones."""


@dataclass(frozen=True)
class Rows:
    """Arrays with as many rows each, in the structure that an element has in Keras: `(x, y)`, `(x, y, sample_weight)`, an array
    alone, or `(x,)` of several."""

    structure: Any
    count: int

    @property
    def spec(self) -> Any:
        """Of a batch, which may be of any size."""
        return tf.nest.map_structure(
            lambda one: tf.TensorSpec([None, *one.shape[1:]], _kind(one)), self.structure
        )  # fmt: skip

    def split(self, share: float) -> tuple[Rows, Rows] | None:
        """The rows to train on, and the last `share` of them, to be looked at. None: one of the two would be empty."""
        at = math.floor(self.count * (1.0 - share))
        if not 0 < at < self.count:
            return None
        first, last = (tf.nest.map_structure(lambda one, part=part: one[part], self.structure)
                       for part in (slice(0, at), slice(at, None)))  # fmt: skip
        return Rows(first, at), Rows(last, self.count - at)

    @functools.cached_property
    def _digests(self) -> np.ndarray | None:
        arrays = tf.nest.flatten(self.structure)
        return digests(arrays) if any(isinstance(one, np.ndarray) for one in arrays) else None

    def content(self, shuffle: bool) -> str:
        """Another one: other rows. The same one: the same rows, in any order if they are shuffled; of what is too large to be
        looked at, as far as a sample can tell."""
        if shuffle and self._digests is not None:
            return f"{int(self._digests.sum(dtype=np.uint64)):016x}"
        chosen = np.unique(np.linspace(0, self.count - 1, min(self.count, SAMPLED_ROWS)).astype(np.int64))
        check = 0
        for one in tf.nest.flatten(self.structure):
            check = zlib.crc32(f"{one.dtype}{one.shape[1:]}".encode(), check)
            rows = one[chosen]
            check = zlib.crc32(repr(rows.tolist()).encode() if rows.dtype == object else rows.tobytes(), check)
        return f"{check:08x}"

    def plan(self, batch_size: int, epochs: int | None, shuffle: bool, seed: int) -> Plan:
        reader, shard = self.reader(shuffle, seed), shard_of(self.count, batch_size)
        return plan(self.count, batch_size, epochs, shuffle, seed, reader, shard, None, "train", False, {})

    def reader(self, shuffle: bool, seed: int) -> RowReader:
        """Shuffled rows are numbered in an order of chance, the same in all processes, also where each has them in another
        one: a shard has rows of everywhere."""
        order = None
        if shuffle and self._digests is not None:
            order = numbered(self._digests, seed)
        elif shuffle and self.count <= ORDERED_ROWS_MAX:  # the ledger shuffles what it leases
            order = np.random.Generator(np.random.PCG64(seed)).permutation(self.count)
        return RowReader(tf.nest.flatten(self.structure), order)

    def pack(self, columns: Mapping[str, np.ndarray]) -> Any:
        """A batch of the reader as an element."""
        return tf.nest.pack_sequence_as(self.structure, [columns[str(place)] for place in range(len(columns))])


class RowReader(IndexReader):
    """Of the rows themselves, instead of their numbers: columns are named by their places."""

    def __init__(self, arrays: Sequence[np.ndarray], order: np.ndarray | None = None) -> None:
        self._arrays, self._order = arrays, order

    def release(self) -> None:
        """Nothing of it is read any more; the dataset is known to the ledger as long as the process lives."""
        self._arrays, self._order = (), None

    def sample(self, path: str) -> Columns:
        return {str(place): one[:1] for place, one in enumerate(self._arrays)}

    def read(self, shard: Shard) -> Columns:
        part: Any = slice(shard.first, shard.first + shard.records)
        if self._order is not None:
            part = self._order[part]
        return {str(place): one[part] for place, one in enumerate(self._arrays)}


def rows_of(x: Any, y: Any, sample_weight: Any) -> Rows | None:
    """None: these are no arrays, or not with as many rows each; then Keras may say what it makes of them."""
    parts = [x] if y is None and sample_weight is None else [x, y] if sample_weight is None else [x, y, sample_weight]
    try:
        structure: Any = tuple(_arrays(part) for part in parts)
    except TypeError:
        return None
    if len(structure) == 1 and isinstance(structure[0], np.ndarray):
        [structure] = structure
    counts = {one.shape[0] if one.ndim else -1 for one in tf.nest.flatten(structure)}
    if len(counts) != 1 or min(counts) < 1:
        return None
    return Rows(structure, counts.pop())


def _arrays(part: Any) -> Any:
    """The same structure with arrays, of the types that Keras makes of them, and with tuples for lists. Raises TypeError."""
    if isinstance(part, Mapping):
        return {name: _arrays(one) for name, one in part.items()}
    if isinstance(part, (list, tuple)):
        if _is_of_scalars(part):
            return _array(np.asarray(part))
        return tuple(_arrays(one) for one in part)
    if type(part).__module__.startswith("pandas"):
        values = part.to_numpy()
        return _array(values[:, np.newaxis] if values.ndim == 1 else values)
    if isinstance(part, np.ndarray) or (tf.is_tensor(part) and hasattr(part, "numpy") and hasattr(part, "ndim")):
        return _array(part if isinstance(part, np.ndarray) else part.numpy(), exact=not isinstance(part, np.ndarray))
    raise TypeError


def _is_of_scalars(part: Sequence[Any]) -> bool:
    first = part
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    return isinstance(first, (float, int, str, bytes))


def _array(array: Any, exact: bool = False) -> np.ndarray:
    """`exact`: it is a tensor, whose type counts. Numbers with a fraction become those that Keras computes with."""
    if not isinstance(array, np.ndarray):
        raise TypeError
    if np.issubdtype(array.dtype, np.floating) and not exact:
        return array.astype(tf.keras.backend.floatx(), copy=False)
    if array.dtype == object and not all(isinstance(one, (str, bytes)) for one in array.flat):
        raise TypeError
    return array


def _kind(array: np.ndarray) -> tf.DType:
    return tf.string if array.dtype.kind in "OSU" else tf.as_dtype(array.dtype)
