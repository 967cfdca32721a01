"""Pipelines over arrays: `from_tensor_slices`, functions of its elements, and what `zip` makes of several of those, as Keras's
`…_dataset_from_directory` does. An element is one row of all the arrays, so that rows can be given out as those of arrays are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.tf_private.eager import Stage, stage_of

STAGES_MAX = 100


class NotSliced(Exception):
    """Why its elements are not rows of arrays."""


@dataclass(frozen=True)
class Slices:
    arrays: Sequence[np.ndarray]
    """With as many rows each."""
    elements: Callable[[Sequence[Any]], tf.data.Dataset]
    """Of some rows of the arrays."""
    whole: Callable[[Sequence[Any]], Any] | None
    """All of them in one structure, where no function makes elements of rows."""


def slices_of(dataset: Any, maps: frozenset[str], in_order: frozenset[str]) -> Slices | None:
    """None: it does not begin with arrays. Raises NotSliced.

    Args:
      maps: kinds of stages that make one element of each.
      in_order: those that change nothing.
    """
    functions: list[Callable[..., Any]] = []
    for _ in range(STAGES_MAX):
        stage = stage_of(dataset)
        if stage.slices or stage.zipped is not None:
            break
        if stage.source is not None or stage.before is None:
            return None
        if stage.kind in maps and stage.function is not None:
            functions.insert(0, stage.function)
        elif stage.kind not in in_order:
            return None
        dataset = stage.before
    else:
        return None
    found = _sliced(stage, dataset.element_spec) if stage.slices else _zipped(stage, maps, in_order)
    if found is None or not functions:
        return found

    def elements(rows: Sequence[Any]) -> tf.data.Dataset:
        made = found.elements(rows)
        for function in functions:
            made = made.map(function)
        return made

    return Slices(found.arrays, elements, None)


def _sliced(stage: Stage, spec: Any) -> Slices:
    if not all(isinstance(one, tf.TensorSpec) for one in tf.nest.flatten(spec)):
        raise NotSliced("from_tensor_slices has sparse or ragged tensors")

    def whole(rows: Sequence[Any]) -> Any:
        return tf.nest.pack_sequence_as(spec, list(rows))

    if not stage.slices[0].shape[0]:
        raise NotSliced("from_tensor_slices has no rows")
    return Slices(
        [_array(one) for one in stage.slices], lambda rows: tf.data.Dataset.from_tensor_slices(whole(rows)), whole
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
