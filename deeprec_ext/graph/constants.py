"""Initial values that are the same everywhere: made when they are needed, not kept for ever.

Accumulators and moments begin with one number. TensorFlow writes that as a constant of the whole shape (or turns a Fill into
one: Grappler's constant folding), and the kernel of a constant keeps its tensor as long as the graph lives on the PS. The
variable shares the buffer until its first sparse update, then there are two of them: a table with an Adagrad accumulator takes
half as much again. With `DeepCopy` in front of the shape, which nobody folds (it is stateful), a Fill makes the values anew
and hands them over.
"""

from __future__ import annotations

import math

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto
from tensorflow.core.framework.types_pb2 import DT_INT32

from deeprec_ext.graph.context import Context
from deeprec_ext.graph.index import GraphIndex, on_ps, op_name
from deeprec_ext.graph.rewriting import Rewriting

VALUES_MIN = 1 << 14
"""Smaller ones are not worth two operations."""

_VALUES = ("half_val", "float_val", "double_val", "int_val", "int64_val", "bool_val")
_ASSIGNS = ("Assign", "AssignVariableOp")
_FOLDABLE = ("Mul", "Add", "AddV2", "Sub", "Cast", "Identity")
"""What may stand between a number and the variable, and would be folded together with it."""


class LeanConstants:
    """Pass after the placement: what it adds stands where the constant stood."""

    name = "constants"

    def applies(self, context: Context) -> bool:
        return True

    def apply(self, rewriting: Rewriting) -> tuple[int, str]:
        index, changed, values = rewriting.index, 0, 0
        for node in list(rewriting.definition.node):
            if node.op not in ("Const", "Fill"):
                continue
            count = _repeated(node) if node.op == "Const" else _filled(index, node)
            device = _assigned_on(index, node.name) if count >= VALUES_MIN else ""
            if on_ps(device):
                _lean(index, node, device)
                changed, values = changed + 1, values + count
        return changed, f"{values} initial values"


def _repeated(node: NodeDef) -> int:
    """How many values a constant has that is one number repeated; 0: it is not."""
    tensor = node.attr["value"].tensor
    if tensor.tensor_content or not any(len(getattr(tensor, name)) == 1 for name in _VALUES):
        return 0
    return math.prod(dimension.size for dimension in tensor.tensor_shape.dim)


def _filled(index: GraphIndex, node: NodeDef) -> int:
    """How many values a Fill of a constant shape makes; 0: the shape is computed."""
    shape = index.nodes.get(op_name(node.input[0]))
    if shape is None or shape.op != "Const":
        return 0
    return int(math.prod(int(size) for size in tf.make_ndarray(shape.attr["value"].tensor).reshape(-1)))


def _assigned_on(index: GraphIndex, name: str) -> str:
    """Where it becomes the initial value of variables; empty if it is used for anything else: that is better kept."""
    device = ""
    for consumer, number in index.consumers(name):
        if consumer.op in _ASSIGNS and number == 1:
            device = consumer.device
        elif consumer.op in _FOLDABLE:
            device = _assigned_on(index, consumer.name)
        else:
            return ""
        if not device:
            return ""
    return device


def _lean(index: GraphIndex, node: NodeDef, device: str) -> None:
    if node.op == "Fill":
        dtype = AttrValue(type=node.attr["index_type"].type if "index_type" in node.attr else DT_INT32)
        copied = index.add(f"{node.name}/shape", "DeepCopy", device, [node.input[0]], T=dtype)
        index.set_input(node, 0, copied.name)
        return
    tensor, number = node.attr["value"].tensor, TensorProto()
    sizes = tf.make_tensor_proto([dimension.size for dimension in tensor.tensor_shape.dim], DT_INT32)
    number.CopyFrom(tensor)
    number.tensor_shape.CopyFrom(TensorShapeProto())
    shape = index.add(f"{node.name}/sizes", "Const", device, **_constant(sizes))
    value = index.add(f"{node.name}/value", "Const", device, **_constant(number))
    int32 = AttrValue(type=DT_INT32)
    copied = index.add(f"{node.name}/shape", "DeepCopy", device, [shape.name], T=int32)
    inputs = [copied.name, value.name, *node.input]  # a constant has none but control inputs
    index.replace(node, "Fill", device, inputs, T=AttrValue(type=tensor.dtype), index_type=int32)


def _constant(tensor: TensorProto) -> dict[str, AttrValue]:
    return {"value": AttrValue(tensor=tensor), "dtype": AttrValue(type=tensor.dtype)}
