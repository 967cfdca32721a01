"""What TensorFlow knows of an operation: its OpDef, what its profiler counts of one; and what a variable is in checkpoints.

What is public tells no OpDef without a graph that has such a node, and counts whole graphs, initialisers of tables included.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.framework import op_def_registry, ops
from tensorflow.python.profiler.internal import flops_registry  # noqa: F401  # its import fills the registry


@lru_cache(maxsize=4096)
def op_def(op: str) -> Any:
    """The OpDef, or None for an op whose library is not loaded here."""
    return op_def_registry.get(op)


def flops(graph: tf.Graph, nodes: Iterable[NodeDef], batch_size: int) -> float:
    """Of running these nodes once. Those that the profiler has no count for, or whose shapes are not known, count 0.

    Args:
        batch_size: stands for every dimension that the graph does not tell, as in the profiler after a run.
    """
    filled, total = _Filled(graph, batch_size), 0.0
    for node in nodes:
        try:
            counted = ops.get_stats_for_node_def(filled, node, "flops").value
        except (ValueError, KeyError, TypeError, IndexError):
            continue  # a rank that is not known, or a node that a pass has added
        total += max(0.0, float(counted or 0))  # a sum whose shapes are not told may be counted as less than nothing
    return total


class _Filled:
    """A graph, as far as the profiler's counts ask it, in which every dimension is known."""

    def __init__(self, graph: tf.Graph, batch_size: int) -> None:
        self._graph, self._batch_size = graph, batch_size

    def get_tensor_by_name(self, name: str) -> Any:
        return _Tensor(self._graph.get_tensor_by_name(name).shape, self._batch_size)


class _Tensor:
    def __init__(self, shape: tf.TensorShape, batch_size: int) -> None:
        self._shape, self._batch_size = shape, batch_size

    def get_shape(self) -> tf.TensorShape:
        return tf.TensorShape([self._batch_size if size is None else size for size in self._shape.as_list()])


def is_variable(candidate: Any) -> bool:
    """Whether it can be asked for its slice: collections of a graph hold anything."""
    return hasattr(candidate, "_get_save_slice_info")


def save_slice(variable: Any) -> Any:
    """Of which whole, and which part of it, it is in checkpoints (`tf.Variable.SaveSliceInfo`); None: it is a whole."""
    return variable._get_save_slice_info()


def exchange_input(operation: Any, place: int, tensor: Any) -> None:
    """Of an operation that has run in no session yet."""
    operation._update_input(place, tensor)
