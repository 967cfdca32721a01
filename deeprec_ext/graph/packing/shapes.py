"""Types and shapes of tensors, as far as they are known before a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Optional

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex, op_name, output_number
from deeprec_ext.graph.marks import BATCH_ROWS, RIDES
from deeprec_ext.graph.packing.reaching import full_name
from deeprec_ext.graph.writes import REFERENCE_VARIABLES, RESOURCE_VARIABLES

Shape = Optional[tuple[Optional[int], ...]]
"""None: not even the rank is known; None in it: not this dimension."""

Told = Callable[[str], Shape]
"""Of a tensor of the user's graph; None for what it does not have."""


def told_by(graph: tf.Graph) -> Told:
    """What the user's graph tells."""

    def told(tensor: str) -> Shape:
        try:
            shape = graph.get_tensor_by_name(tensor).shape
        except (KeyError, ValueError):
            return None
        return None if shape.rank is None else tuple(shape.as_list())

    return told


_SAME = frozenset({"Identity", "Cast", "StopGradient", "Neg", "CheckNumerics", "EnsureShape"})
_OF_TWO = frozenset({"Add", "AddV2", "Sub", "Mul", "RealDiv", "FloorDiv", "Maximum", "Minimum"})
_FAR = 24


class Shapes:
    """The user's graph tells them; of what passes have added they follow from a few ops, or are not known.

    A pass leaves what a name stands for as it was, whatever op makes it: whoever fetches it must get it. What lazy updates make
    rows of, where it was a whole table, is marked.
    """

    def __init__(self, index: GraphIndex, told: Told) -> None:
        self._index, self._told = index, told
        self._known: dict[str, Shape] = {}

    def dtype(self, tensor: str) -> tf.DType | None:
        """None: nobody knows, or it is a reference."""
        kind = attributes.output_type(self._index.nodes[op_name(tensor)], output_number(tensor))
        return tf.as_dtype(kind) if kind else None

    def is_variable(self, tensor: str) -> bool:
        """Whether it is what a variable holds."""
        return _read(self._index, op_name(tensor)) is not None

    def of(self, tensor: str, depth: int = 0) -> Shape:
        tensor = full_name(tensor)
        if tensor not in self._known:
            self._known[tensor] = None  # a loop leads nowhere
            node = self._index.nodes[op_name(tensor)]
            read = _read(self._index, node.name)
            told = _dimensions(self._index.nodes[read].attr["shape"].shape) if read is not None else None
            if told is None and BATCH_ROWS not in node.attr:
                told = self._told(tensor)
            self._known[tensor] = told if told is not None else self._derived(tensor, depth)
        return self._known[tensor]

    def _derived(self, tensor: str, depth: int) -> Shape:
        if depth > _FAR:
            return None
        node, number = self._index.nodes[op_name(tensor)], output_number(tensor)
        inputs = [one for one in self._index.inputs(node.name) if one[0] != "^"]

        def given(which: int) -> Shape:
            return self.of(inputs[which], depth + 1)

        if node.op in _SAME:
            return given(0)
        if node.op in _OF_TWO:
            one, other = given(0), given(1)
            return one if other in ((), one) else other if one == () else None
        if node.op == "Const":
            return tuple(tf.TensorShape(node.attr["value"].tensor.tensor_shape).as_list())
        if node.op == "Placeholder" and RIDES in node.attr:
            return ()
        if node.op in ("Unique", "Range"):
            return given(0) if number == 1 else (None,)
        if node.op == "ResourceGather":
            return _rows(given(1), self._row_of(inputs[0]))
        if node.op in ("GatherV2", "Gather") and not _batch_dims(node) and self._first_axis(inputs):
            table = given(0)
            return _rows(given(1), table[1:] if table else None)
        if node.op == "DynamicPartition":
            data, parts = given(0), given(1)
            return None if data is None or parts is None else (None, *data[len(parts) :])
        if node.op == "UnsortedSegmentSum":
            data, segments = given(0), given(1)
            return None if data is None or segments is None else (None, *data[len(segments) :])
        if node.op == "Reshape":
            return self._reshaped(inputs[1])
        return None

    def looked_up(self, tensor: str) -> tuple[str, tuple[int, ...]] | None:
        """The ids whose rows a tensor is, and the shape of a row; None: it is no look-up, or the shape is not known."""
        node = self._index.nodes[op_name(tensor)]
        for _ in range(_FAR):
            inputs = self._index.inputs(node.name)
            if node.op == "ResourceGather":
                row = self._row_of(inputs[0])
            elif node.op in ("GatherV2", "Gather") and self._first_axis(inputs):
                table = self.of(inputs[0])
                row = table[1:] if table else None
            elif node.op == "Identity":
                node = self._index.nodes[op_name(inputs[0])]
                continue
            else:
                return None
            known = row is not None and None not in row and not _batch_dims(node)
            return (full_name(inputs[1]), tuple(size or 0 for size in row)) if known and row is not None else None
        return None

    def _row_of(self, handle: str) -> Shape:
        """Of a variable; None: unknown."""
        node = self._index.nodes[op_name(handle)]
        for _ in range(_FAR):
            if node.op in RESOURCE_VARIABLES:
                shape = _dimensions(node.attr["shape"].shape)
                return shape[1:] if shape else None
            if node.op not in ("Identity", "Enter", "Switch"):
                return None
            node = self._index.nodes[op_name(self._index.inputs(node.name)[0])]
        return None

    def _first_axis(self, inputs: Sequence[str]) -> bool:
        if len(inputs) < 3:
            return True
        axis = self._index.nodes[op_name(inputs[2])]
        return axis.op == "Const" and attributes.values(axis) == [0]

    def _reshaped(self, wanted: str) -> Shape:
        node = self._index.nodes[op_name(wanted)]
        if node.op == "Shape":
            return self.of(self._index.inputs(node.name)[0])
        if node.op != "Const":
            return None
        return tuple(None if size < 0 else size for size in attributes.values(node))


def _read(index: GraphIndex, name: str) -> str | None:
    """The variable that an op reads as a whole."""
    node = index.nodes[name]
    if node.op not in ("ReadVariableOp", "Identity"):
        return None
    variable = op_name(index.inputs(name)[0])
    return variable if index.nodes[variable].op in RESOURCE_VARIABLES | REFERENCE_VARIABLES and (
        (node.op == "Identity") == (index.nodes[variable].op in REFERENCE_VARIABLES)
    ) else None  # fmt: skip


def _batch_dims(node: NodeDef) -> int:
    """To look an attribute up in a node that has it not would add it."""
    return int(node.attr["batch_dims"].i) if "batch_dims" in node.attr else 0


def _dimensions(proto: object) -> Shape:
    shape = tf.TensorShape(proto)
    return None if shape.rank is None else tuple(shape.as_list())


def _rows(ids: Shape, row: Shape) -> Shape:
    return None if ids is None or row is None else (*ids, *row)


def elements(shape: tuple[int | None, ...], unknown: int) -> int:
    """How many there are if the unknown dimension has so many."""
    return math.prod(unknown if size is None else size for size in shape)
