"""Random values that a variable which is cut begins with: each PS draws those of its own parts, and no other number comes out.

TensorFlow's stateless generators count (Philox: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): the
n-th group of numbers of an output follows from the seed and from how far the counter is by then, whoever has drawn those
before. So a part is drawn with the counter as far as its first row. What makes other numbers of them, value by value (a scale,
a mean), is done in parts as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex, op_name
from deeprec_ext.graph.partitioning.parts import INT64, PartitionedVariable, attrs_of, constant, controls_of, data_of

_RESERVED = 256
"""Numbers of a generator that TensorFlow reserves for each that comes out, where it may have to draw again
(`kReservedSamplesPerOutput` in tensorflow/core/kernels/random_op_cpu.h)."""
_DRAWS = {"StatelessRandomUniformV2": 0, "StatelessRandomNormalV2": 0, "StatelessTruncatedNormalV2": _RESERVED}
_GROUPS = {tf.float16: 4, tf.bfloat16: 4, tf.float32: 4, tf.float64: 2}
"""Numbers that come out of one count."""
_COUNT = 4
"""32-bit numbers that one count makes."""
_VALUE_BY_VALUE = frozenset("Add AddV2 Cast Identity Maximum Minimum Mul Neg RealDiv Sub".split())
_FAR = 24
"""Ops looked at to see what a value is made of."""


@dataclass(frozen=True)
class _Draw:
    node: NodeDef
    """The op that draws."""
    chain: Sequence[tuple[NodeDef, int]]
    """What is done to its numbers, the first to them first; with the number of the input that they come by."""


def drawn_parts(index: GraphIndex, node: NodeDef, value: str, variable: PartitionedVariable) -> list[str] | None:
    """Of an initial value that one op draws. None: it is another."""
    found = _draw_of(index, value, variable.layout.dimensions)
    if found is None:
        return None
    made = []
    for part, device in enumerate(variable.devices):
        tensor = _draw(index, found.node, f"{node.name}__draw_{part}", device, variable, part)
        for step, (one, number) in enumerate(found.chain):
            inputs = data_of(index, one.name)
            inputs[number] = tensor
            tensor = index.add(f"{node.name}__made_{part}_{step}", one.op, device, inputs, **attrs_of(one)).name
        made.append(tensor)
    return made


def _draw_of(index: GraphIndex, value: str, dimensions: Sequence[int]) -> _Draw | None:
    chain: list[tuple[NodeDef, int]] = []
    for _ in range(_FAR):
        node = index.nodes[op_name(value)]
        if node.op in _DRAWS:
            return _Draw(node, chain[::-1]) if _is_known(index, node, dimensions) else None
        if node.op not in _VALUE_BY_VALUE:
            return None
        inputs = data_of(index, node.name)
        many = [number for number, tensor in enumerate(inputs) if not _is_number(index, tensor)]
        if len(many) != 1:
            return None
        chain.append((node, many[0]))
        value = inputs[many[0]]
    return None


def _is_known(index: GraphIndex, node: NodeDef, dimensions: Sequence[int]) -> bool:
    """Whether it gives the whole, and counts from 0 in the half of its counter that is moved; of no loop or condition."""
    shape_at, _, counter_at, _ = data_of(index, node.name)
    shape, counter = index.nodes[op_name(shape_at)], index.nodes[op_name(counter_at)]
    if controls_of(index, shape.name):
        return False
    while counter.op == "Identity":
        counter = index.nodes[op_name(data_of(index, counter.name)[0])]
    return (
        shape.op == "Const" and tuple(attributes.values(shape)) == tuple(dimensions)
        and counter.op == "StatelessRandomGetKeyCounter" and tf.as_dtype(node.attr["dtype"].type) in _GROUPS
    )  # fmt: skip


def _is_number(index: GraphIndex, tensor: str, depth: int = 0) -> bool:
    """Whether it certainly has no dimensions."""
    node = index.nodes[op_name(tensor)]
    if node.op == "Const":
        shape = node.attr["value"].tensor.tensor_shape
        return not shape.dim and not shape.unknown_rank
    inputs = data_of(index, node.name)
    if depth > _FAR or not inputs or node.op not in _VALUE_BY_VALUE:
        return False
    return all(_is_number(index, one, depth + 1) for one in inputs)


def _draw(
    index: GraphIndex, node: NodeDef, name: str, device: str, variable: PartitionedVariable, part: int
) -> str:  # fmt: skip
    """A part of what the op draws. Where it begins within a group, the numbers before it are drawn too, and left out."""
    layout, dtype = variable.layout, tf.as_dtype(node.attr["dtype"].type)
    row, group = math.prod(layout.dimensions[1:]), _GROUPS[dtype]
    counts, before = divmod(layout.begin(part) * row, group)
    _, key, counter, algorithm = data_of(index, node.name)
    kind = attributes.kind(tf.uint64)
    by = counts * max(1, group * _DRAWS[node.op] // _COUNT)
    moved = np.array([by, 0], np.uint64)
    further = index.add(f"{name}_by", "Const", device, dtype=kind, value=attributes.tensor(moved)).name
    counter = index.add(f"{name}_counter", "AddV2", device, [counter, further], T=kind).name
    shape, drawn = layout.shape(part), {**attrs_of(node), "Tshape": INT64}
    count = math.prod(shape)
    size = constant(index, f"{name}_size", device, (before + count,) if before else shape, tf.int64)
    made = index.add(name, node.op, device, [size, key, counter, algorithm], **drawn).name
    if not before:
        return made
    kinds = {"T": attributes.kind(dtype), "Index": INT64}
    begin = constant(index, f"{name}_at", device, (before,), tf.int64)
    many = constant(index, f"{name}_of", device, (count,), tf.int64)
    made = index.add(f"{name}_own", "Slice", device, [made, begin, many], **kinds).name
    rows = constant(index, f"{name}_rows", device, shape, tf.int64)
    return index.add(f"{name}_shaped", "Reshape", device, [made, rows], T=kinds["T"], Tshape=INT64).name
