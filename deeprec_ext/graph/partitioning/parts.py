"""The variables of a graph that are cut, their parts, and small ops beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex, op_name, with_task
from deeprec_ext.graph.partitioning.layout import Layout, part_name
from deeprec_ext.graph.writes import VariableNode

INT32, INT64 = attributes.kind(tf.int32), attributes.kind(tf.int64)


@dataclass(frozen=True)
class PartitionedVariable:
    """One node of a variable that is cut."""

    whole: VariableNode
    layout: Layout
    devices: tuple[str, ...]
    """Of the parts."""
    handles: tuple[str, ...]
    """Names of the nodes that make the handles of the parts."""

    @property
    def alike(self) -> tuple[Layout, int]:
        """Equal for variables whose parts have the same rows on the same slots."""
        return self.layout, self.whole.slot

    @property
    def count(self) -> int:
        return self.layout.count


def make_parts(index: GraphIndex, variable: VariableNode, layout: Layout, slots: int) -> PartitionedVariable:
    """Adds the handles of the parts; part 0 lies where the whole did, the others on the slots after it."""
    devices = tuple(with_task(variable.device, (variable.slot + part) % slots) for part in range(layout.count))
    handles = []
    for part, device in enumerate(devices):
        kept = {
            key: attributes.copied(variable.node.attr[key])
            for key in ("dtype", "container")
            if key in variable.node.attr
        }
        handles.append(
            index.add(
                f"{variable.node.name}__part_{part}", "VarHandleOp", device,
                shared_name=attributes.text(part_name(variable.name, part, layout.count)),
                shape=attributes.shape(layout.shape(part)), **kept,
            ).name
        )  # fmt: skip
    return PartitionedVariable(variable, layout, devices, tuple(handles))


def attrs_of(node: NodeDef) -> dict[str, AttrValue]:
    """Copies of its attributes, without the colocation."""
    return {key: attributes.copied(value) for key, value in node.attr.items() if key != "_class"}


def controls_of(index: GraphIndex, name: str) -> list[str]:
    return [tensor for tensor in index.inputs(name) if tensor[0] == "^"]


def data_of(index: GraphIndex, name: str) -> list[str]:
    return [tensor for tensor in index.inputs(name) if tensor[0] != "^"]


def is_batched(gather: NodeDef) -> bool:
    """Whether a look-up has ids of its own for each row of other dimensions. (An attribute that is asked for is made.)"""
    return "batch_dims" in gather.attr and bool(gather.attr["batch_dims"].i)


def handed_on(index: GraphIndex, tensor: str) -> str:
    """The tensor that identities hand on as this one."""
    while index.nodes[op_name(tensor)].op == "Identity":
        tensor = data_of(index, op_name(tensor))[0]
    return tensor


def constant(index: GraphIndex, name: str, device: str, value: Any, dtype: Any) -> str:
    """A Const of integers."""
    made = tuple(value) if isinstance(value, Sequence) else value
    return index.add(name, "Const", device, dtype=attributes.kind(dtype), value=attributes.integers(made, dtype)).name


def strings(index: GraphIndex, name: str, device: str, values: bytes | Sequence[bytes]) -> str:
    """A Const of one string, or of a list."""
    value = attributes.tensor(values if isinstance(values, bytes) else list(values), tf.string)
    return index.add(name, "Const", device, dtype=attributes.kind(tf.string), value=value).name


def texts_of(index: GraphIndex, tensor: str) -> list[bytes] | None:
    """The values of a constant list of strings; None if it is computed."""
    node = index.nodes[op_name(tensor)]
    return list(tf.make_ndarray(node.attr["value"].tensor).reshape(-1)) if node.op == "Const" else None


def rows_of(index: GraphIndex, name: str, device: str, value: str, layout: Layout, dtype: AttrValue) -> list[str]:
    """Adds the slices of a dense value that belong to the parts."""
    rest = len(layout.dimensions) - 1
    sliced = []
    for part in range(layout.count):
        begin = constant(index, f"{name}__from_{part}", device, (layout.begin(part), *[0] * rest), tf.int64)
        size = constant(index, f"{name}__size_{part}", device, (layout.size(part), *[-1] * rest), tf.int64)
        sliced.append(
            index.add(f"{name}__rows_{part}", "Slice", device, [value, begin, size], T=dtype, Index=INT64).name
        )
    return sliced


def whole_from(index: GraphIndex, node: NodeDef, device: str, parts: Sequence[str], dtype: AttrValue) -> None:
    """Makes of a node, which keeps its name, the whole of its parts."""
    axis = constant(index, f"{node.name}__axis", device, 0, tf.int32)
    index.replace(
        node, "ConcatV2", device, [*parts, axis], T=dtype, N=attributes.integer(len(parts)), Tidx=INT32
    )  # fmt: skip


def join(index: GraphIndex, node: NodeDef, parts: Sequence[str]) -> None:
    """Makes of a node, which keeps its name, one that has run when these have."""
    index.replace(node, "NoOp", node.device, ["^" + part for part in parts])
