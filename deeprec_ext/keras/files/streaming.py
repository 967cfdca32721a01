"""Keras and TensorFlow write what is large a piece at a time.

Keras asks a variable for its value and gives it to h5py; TensorFlow, to an op that writes a checkpoint. Where both are given
`rows.Rows` for a value, what they call writes these by pieces: the file is the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import tensorflow as tf

from deeprec_ext.keras.files.archives import close_into_archive, open_on_disk
from deeprec_ext.keras.files.rows import Rows
from deeprec_ext.tf_private import eager, keras_classes
from deeprec_ext.tf_private.wrapping import wrap_within

PART_BYTES = 32 << 20
"""About what is in one file of a checkpoint of TensorFlow: it is in memory until that is written."""


@contextmanager
def streamed(rows_of: Callable[[Any], Rows | None]) -> Iterator[None]:
    """Within, in this process.

    Args:
      rows_of: of a value that is written: a variable of Keras 3, an array, a tensor. None: it is written as ever.
    """

    def number(original: Callable[..., Any], value: Any) -> Any:
        rows = rows_of(value)
        return original(value) if rows is None else rows

    def create(
        original: Callable[..., Any], group: Any, name: Any, shape: Any = None, dtype: Any = None, data: Any = None,
        **words: Any,
    ) -> Any:  # fmt: skip
        rows = rows_of(data)
        if rows is None:
            return original(group, name, shape, dtype, data, **words)
        made = original(group, name, shape or rows.shape, rows.dtype if dtype is None else dtype, **words)
        _fill(made, rows)
        return made

    def put(original: Callable[..., Any], group: Any, name: Any, value: Any) -> None:
        if rows_of(value) is None:
            original(group, name, value)
        else:  # the original holds the lock of h5py, which others read their examples with, until all is written
            group.create_dataset(name, data=value)

    def fill(original: Callable[..., Any], dataset: Any, place: Any, value: Any) -> None:
        rows = rows_of(value)
        if rows is not None and isinstance(place, slice) and place == slice(None) and dataset.shape == rows.shape:
            _fill(dataset, rows)
        else:
            original(dataset, place, value)

    def checkpoint(
        original: Callable[..., Any], prefix: Any, names: Sequence[str], slices: Sequence[str], tensors: Sequence[Any],
        **words: Any,
    ) -> Any:  # fmt: skip
        entries = list(zip(names, slices, tensors))
        if all(rows_of(tensor) is None for tensor in tensors):
            return original(prefix, names, slices, tensors, **words)
        return _in_parts(original, os.fsdecode(tf.get_static_value(prefix)), entries, rows_of)

    with ExitStack() as undo:
        wrap_within(undo, *eager.writer_of_checkpoints(), checkpoint)
        if (h5py := sys.modules.get("h5py")) is not None:
            wrap_within(undo, h5py.Group, "create_dataset", create)
            wrap_within(undo, h5py.Group, "__setitem__", put)
            wrap_within(undo, h5py.Dataset, "__setitem__", fill)
            for store in keras_classes.stores():
                wrap_within(undo, store, "__init__", open_on_disk)
                wrap_within(undo, store, "close", close_into_archive)
        for module, name in keras_classes.converters():
            wrap_within(undo, module, name, number)
        yield


def _fill(dataset: Any, rows: Rows) -> None:
    for begin, values in rows.pieces():
        dataset[begin : begin + len(values)] = values


def _in_parts(
    save: Callable[..., Any], prefix: str, entries: Sequence[tuple[str, str, Any]],
    rows_of: Callable[[Any], Rows | None],
) -> Any:  # fmt: skip
    """A checkpoint of one part with all that is not written by pieces, and one for a few pieces each, which are slices of their
    wholes. They are merged: no values are read for that, the files of the parts are renamed.

    Args:
      entries: (name in the checkpoint, slice of it, tensor).
    """
    parts: list[str] = []
    pieces: list[tuple[str, str, Any]] = []

    def write(*taken: tuple[str, str, Any]) -> None:
        parts.append(f"{prefix}-of-rows-{len(parts):05d}")
        save(parts[-1], *([entry[place] for entry in taken] for place in range(3)))

    try:
        if plain := [entry for entry in entries if rows_of(entry[2]) is None]:
            write(*plain)
        for name, _, tensor in entries:
            if (rows := rows_of(tensor)) is None:
                continue
            for begin, values in rows.pieces():
                pieces.append((name, _slice(rows.shape, begin, len(values)), tf.constant(values)))
                if len(pieces) * values.nbytes >= PART_BYTES:
                    write(*pieces)
                    pieces.clear()
        if pieces:
            write(*pieces)
    except BaseException:
        _remove(parts)
        raise
    return tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=parts, destination_prefix=prefix, delete_old_dirs=False
    )  # fmt: skip


def _remove(parts: Sequence[str]) -> None:
    """Of a checkpoint that failed: the disk may be full of them."""
    with suppress(tf.errors.OpError):
        for part in parts:
            for path in tf.io.gfile.glob(part + ".*"):
                tf.io.gfile.remove(path)


def _slice(shape: Sequence[int], begin: int, size: int) -> str:
    """Saver's `shape_and_slice` of rows."""
    taken = ":".join((f"{begin},{size}", *(f"0,{one}" for one in shape[1:])))
    return f"{' '.join(map(str, shape))} {taken}"
