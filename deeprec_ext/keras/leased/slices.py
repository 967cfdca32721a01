"""Pipelines over arrays: `from_tensor_slices`, `range`, functions of their elements, and what `zip` makes of several of those,
as Keras's `…_dataset_from_directory` does. An element is one row of all the arrays, so that rows can be given out as those of
arrays are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.tf_private.eager import Stage, stage_of

STAGES_MAX = 100

NUMBERS_MAX = 1 << 48
"""Of a range; the ledger has room for a few times as many records."""

CACHED = "its cache() keeps what its functions have made, of all elements"


class NotSliced(Exception):
    """Why its elements are not rows of arrays."""


class Numbers:
    """Those of a range, for what takes arrays; they are made when they are read."""

    ndim = 1

    def __init__(self, numbers: range, dtype: np.dtype[Any]) -> None:
        self._numbers, self.dtype = numbers, dtype
        self.size = len(numbers)
        self.shape, self.nbytes = (self.size,), dtype.itemsize * self.size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: Any) -> np.ndarray:
        if isinstance(part, slice):
            taken = self._numbers[part]
            return np.arange(taken.start, taken.stop, taken.step, np.int64).astype(self.dtype, copy=False)
        return (self._numbers.start + self._numbers.step * np.asarray(part, np.int64)).astype(self.dtype, copy=False)


@dataclass(frozen=True)
class Slices:
    arrays: Sequence[Any]
    """With as many rows each; `Numbers` among them."""
    elements: Callable[[Sequence[Any]], tf.data.Dataset]
    """Of some rows of the arrays."""
    whole: Callable[[Sequence[Any]], Any] | None
    """All of them in one structure, where no function makes elements of rows."""


def is_source(stage: Stage) -> bool:
    """Whether its elements may be rows of arrays."""
    return bool(stage.slices) or stage.numbers is not None or stage.zipped is not None


def slices_of(dataset: Any, maps: frozenset[str], in_order: frozenset[str]) -> Slices | None:
    """None: it does not begin with arrays. Raises NotSliced.

    Args:
      maps: kinds of stages that make one element of each.
      in_order: those that change nothing.
    """
    functions: list[Callable[..., Any]] = []
    cached = False
    for _ in range(STAGES_MAX):
        stage = stage_of(dataset)
        if is_source(stage):
            break
        if stage.source is not None or stage.before is None:
            return None
        if stage.kind in maps and stage.function is not None:
            if cached:
                raise NotSliced(CACHED)
            functions.insert(0, stage.function)
        elif stage.kind not in in_order:
            return None
        cached = cached or stage.kind == "CacheDataset"
        dataset = stage.before
    else:
        return None
    if stage.zipped is not None:
        found = _zipped(stage, maps, in_order)
    else:
        found = _sliced(
            stage.slices or [_numbers(stage.numbers or range(0), dataset.element_spec)], dataset.element_spec
        )
    if found is None or not functions:
        return found

    def elements(rows: Sequence[Any]) -> tf.data.Dataset:
        made = found.elements(rows)
        for function in functions:
            made = made.map(function)
        return made

    return Slices(found.arrays, elements, None)


def _numbers(numbers: range, spec: tf.TensorSpec) -> Numbers:
    if len(numbers) > NUMBERS_MAX:
        raise NotSliced("its range is without end")
    return Numbers(numbers, np.dtype(spec.dtype.as_numpy_dtype))


def _sliced(tensors: Sequence[Any], spec: Any) -> Slices:
    if not all(isinstance(one, tf.TensorSpec) for one in tf.nest.flatten(spec)):
        raise NotSliced("from_tensor_slices has sparse or ragged tensors")

    def whole(rows: Sequence[Any]) -> Any:
        return tf.nest.pack_sequence_as(spec, list(rows))

    if not tensors[0].shape[0]:
        raise NotSliced("it has no elements")
    return Slices(
        [one if isinstance(one, Numbers) else _array(one) for one in tensors],
        lambda rows: tf.data.Dataset.from_tensor_slices(whole(rows)),
        whole,
    )


def _array(tensor: Any) -> np.ndarray:
    """Without a copy, where NumPy has the type."""
    try:
        return np.asarray(memoryview(tensor))
    except (TypeError, ValueError, BufferError):
        return np.asarray(tensor.numpy())


def _zipped(stage: Stage, maps: frozenset[str], in_order: frozenset[str]) -> Slices | None:
    parts = [slices_of(one, maps, in_order) for one in tf.nest.flatten(stage.zipped)]
    found = [one for one in parts if one is not None]
    if len(found) < len(parts):
        return None
    if len({len(one.arrays[0]) for one in found}) != 1:
        raise NotSliced("zip ends with the shortest of its parts")

    def each(rows: Sequence[Any], make: Callable[[Slices, Sequence[Any]], Any]) -> Any:
        made, left = [], list(rows)
        for one in found:
            made.append(make(one, left[: len(one.arrays)]))
            left = left[len(one.arrays) :]
        return tf.nest.pack_sequence_as(stage.zipped, made)

    def elements(rows: Sequence[Any]) -> tf.data.Dataset:
        return tf.data.Dataset.zip(each(rows, lambda one, own: one.elements(own)))

    def whole(rows: Sequence[Any]) -> Any:
        return each(rows, lambda one, own: one.whole(own))  # type: ignore[misc]

    arrays = [array for one in found for array in one.arrays]
    return Slices(arrays, elements, whole if all(one.whole for one in found) else None)
