"""AttrValues in one word, and what the op registry knows about an op."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.tf_private.operations import op_def


def kind(value: Any) -> AttrValue:
    """A dtype."""
    return AttrValue(type=tf.as_dtype(value).as_datatype_enum)


def kinds(values: Sequence[Any]) -> AttrValue:
    """A list of dtypes (may be empty)."""
    result = AttrValue()
    result.list.SetInParent()
    result.list.type.extend(tf.as_dtype(value).as_datatype_enum for value in values)
    return result


def shape(dimensions: Sequence[int | None]) -> AttrValue:
    """Of known dimensions, or None."""
    return AttrValue(shape=tf.TensorShape(dimensions).as_proto())


def copied(value: AttrValue) -> AttrValue:
    """A copy that outlives changes of the node it was taken from."""
    result = AttrValue()
    result.CopyFrom(value)
    return result


def flag(value: bool) -> AttrValue:
    """A boolean."""
    return AttrValue(b=value)


def text(value: str) -> AttrValue:
    """A string."""
    return AttrValue(s=value.encode())


def integer(value: int) -> AttrValue:
    """A single integer."""
    return AttrValue(i=value)


@lru_cache(maxsize=4096)
def integers(value: int | tuple[int, ...], dtype: Any) -> AttrValue:
    """The value of a Const of integers; shared by all who ask for the same, so never to be changed."""
    return tensor(value, dtype)


def tensor(value: Any, dtype: Any = None) -> AttrValue:
    """The value of a Const."""
    return AttrValue(tensor=tf.make_tensor_proto(value, dtype))


def values(const: NodeDef) -> list[Any]:
    """Those of a Const, flat."""
    found: list[Any] = tf.make_ndarray(const.attr["value"].tensor).reshape(-1).tolist()
    return found


def argument(node: NodeDef, number: int) -> Any:
    """The ArgDef that the data input `number` of a node belongs to; None if unknown."""
    definition = op_def(node.op)
    if definition is None:
        return None
    for candidate in definition.input_arg:
        if candidate.number_attr:
            number -= node.attr[candidate.number_attr].i
        elif candidate.type_list_attr:
            number -= len(node.attr[candidate.type_list_attr].list.type)
        else:
            number -= 1
        if number < 0:
            return candidate
    return None


def output_type(node: NodeDef, number: int) -> int:
    """The dtype of an output, as the enum; 0 if unknown, or if it is a reference."""
    definition = op_def(node.op)
    for candidate in definition.output_arg if definition is not None else ():
        if candidate.type_list_attr:
            types = node.attr[candidate.type_list_attr].list.type
            if number < len(types):
                return int(types[number])
            number -= len(types)
            continue
        count = node.attr[candidate.number_attr].i if candidate.number_attr else 1
        if number < count:
            kind = _type_of(node, definition, candidate.type_attr) if candidate.type_attr else candidate.type
            return 0 if candidate.is_ref else int(kind)
        number -= count
    return 0


def _type_of(node: NodeDef, definition: Any, name: str) -> int:
    """A GraphDef may leave out what is the default."""
    if name in node.attr:
        return int(node.attr[name].type)
    return next(int(one.default_value.type) for one in definition.attr if one.name == name)


def input_of(node: NodeDef, wanted: str) -> int | None:
    """The number of the input called `wanted` in the OpDef; None if there is none (or lists stand before it)."""
    definition = op_def(node.op)
    if definition is None:
        return None
    for number, candidate in enumerate(definition.input_arg):
        if candidate.number_attr or candidate.type_list_attr:
            return None
        if candidate.name == wanted:
            return number
    return None
