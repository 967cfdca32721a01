"""Of which stages a tf.data pipeline is made: TensorFlow keeps them as objects, each with the one before it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import tensorflow as tf

READERS = {"TFRecordDataset": "tfrecord", "TFRecordDatasetV2": "tfrecord", "TextLineDataset": "lines"}
"""Op, or class -> reader of `deeprec_ext.data`."""

_OVER_FILES = frozenset({"FlatMapDataset", "InterleaveDataset", "ParallelInterleaveDataset"})
_OF_ONE_FILE = frozenset({
    "Placeholder", "Const", "Reshape", "TensorSliceDataset", "FlatMapDataset", "LegacyParallelInterleaveDatasetV2",
    "SkipDataset", "Identity", "NoOp",
})  # fmt: skip
"""Ops of a function that gives the records of one path: TensorFlow makes a list of it, over which it maps `_READ`."""
_READ = frozenset({"Const", "Identity", "NoOp", *READERS})

FILES_MAX = 10_000


@dataclass(frozen=True)
class Source:
    """Files that are read record by record."""

    files: Sequence[str]
    reader: str
    skip: int = 0
    """Records at the beginning of each file that are left out."""


@dataclass(frozen=True)
class Stage:
    kind: str
    """As its class is called: `MapDataset`, `ShuffleDataset`."""
    before: Any = None
    """The dataset that it takes; None: none, or several."""
    function: Callable[..., Any] | None = None
    """As the script has given it."""
    batch_size: int = 0
    source: Source | None = None


def stage_of(dataset: Any) -> Stage:
    """Its last stage."""
    kind = type(dataset).__name__.lstrip("_").removesuffix("V2") if isinstance(dataset, tf.data.Dataset) else ""
    function = getattr(getattr(dataset, "_map_func", None), "_func", None)
    size = getattr(dataset, "_batch_size", None)
    before = getattr(dataset, "_input_dataset", None)
    return Stage(kind, before, function, int(size) if size is not None else 0, _source(dataset, kind, before))


def _source(dataset: Any, kind: str, before: Any) -> Source | None:
    if kind in READERS and not getattr(dataset, "_compression_type", None):
        return _of_names(getattr(dataset, "_filenames", None), READERS[kind], 0)
    if kind in _OVER_FILES:
        read = _one_file(dataset._map_func.function.graph.as_graph_def())
        return _of_names(before, *read) if read is not None else None
    if kind == "SkipDataset":
        found = stage_of(before).source
        if found is not None and len(found.files) == 1 and not found.skip and found.reader == "lines":
            return Source(found.files, found.reader, int(dataset._count))
    return None


def _one_file(body: Any) -> tuple[str, int] | None:
    """(reader, records left out) of a function of a path; None: it does something else."""
    nodes = {node.name: node for node in body.node}
    kinds = [node.op for node in nodes.values()]
    if not set(kinds) <= _OF_ONE_FILE or len(body.library.function) != 1 or kinds.count("Placeholder") != 1:
        return None
    inside = {node.name: node for node in body.library.function[0].node_def}
    readers = [node for node in inside.values() if node.op in READERS]
    names = [node for node in nodes.values() if node.op == "TensorSliceDataset"]
    skips = [node for node in nodes.values() if node.op == "SkipDataset"]
    if not {node.op for node in inside.values()} <= _READ or len(readers) != 1 or len(names) != 1 or len(skips) > 1:
        return None
    if _behind(nodes, names[0].input[0]).op != "Placeholder" or _constant(_behind(inside, readers[0].input[1])):
        return None
    count = _behind(nodes, skips[0].input[1]) if skips else None
    if count is not None and count.op != "Const":
        return None
    return READERS[readers[0].op], int(_constant(count)) if count is not None else 0


def _behind(nodes: Any, tensor: str) -> Any:
    node = nodes[tensor.split(":")[0]]
    while node.op in ("Identity", "Reshape"):
        node = nodes[node.input[0].split(":")[0]]
    return node


def _constant(node: Any) -> Any:
    return tf.make_ndarray(node.attr["value"].tensor).item()


def _of_names(names: Any, reader: str, skip: int) -> Source | None:
    """Files that are listed in another order each time are sorted: all processes have to name the same."""
    if not isinstance(names, tf.data.Dataset) or names.element_spec != tf.TensorSpec([], tf.string):
        return None
    found = [os.fsdecode(name) for name in islice(names.as_numpy_iterator(), FILES_MAX + 1)]
    if not found or len(found) > FILES_MAX or len(set(found)) < len(found):
        return None
    listed = stage_of(names).kind != "TensorSliceDataset"
    return Source(sorted(found) if listed else found, reader, skip)
