"""The backward half of dedup: duplicate gradients are merged where they are made, before they are sent."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.dedup_gather import Uniques, positions_like, process_of, unique_already
from deeprec_ext.graph.index import GraphIndex, on_ps, op_name
from deeprec_ext.graph.writes import Write

_INT32 = attributes.kind(tf.int32)
# What optimizers put between a gradient and its merge, and the merge itself: pure, and as quick on a worker.
_MOVABLE = frozenset("Unique UnsortedSegmentSum Shape StridedSlice Const Neg Mul RealDiv Cast Reshape Identity".split())
_MOST_MOVED = 32
_SUMS = frozenset({"ResourceScatterAdd", "ResourceScatterSub", "ScatterAdd", "ScatterSub"})
# What makes values and indices of a gradient of lookups (one, or several concatenated): both have a row per id.
_GRADIENTS = frozenset({"Reshape", "ConcatV2"})


@dataclass(frozen=True)
class Merge:
    """One update by rows and what has to be done so that its gradient is merged on the worker."""

    write: Write
    moved: tuple[NodeDef, ...]
    """Ops of the PS that go to the worker."""
    unique: NodeDef | None
    """The optimizer's own `Unique`, one of `moved`; None if it merges nowhere (SGD) and a merge must be inserted."""
    indices: str
    """What is unique'd, or has to be."""
    kind: attributes.AttrValue
    """The dtype of the indices."""
    worker: str


def _upstream_on_ps(index: GraphIndex, roots: list[str]) -> tuple[dict[str, NodeDef], list[NodeDef]] | None:
    """The PS ops upstream of these tensors and the worker ops that feed them; None if a PS op must stay where it is."""
    stack = list(roots)
    moved: dict[str, NodeDef] = {}
    sources = []
    while stack:
        tensor = stack.pop()
        name = op_name(tensor)
        if tensor[0] == "^" or name in moved:
            continue
        node = index.nodes[name]
        if not on_ps(node.device):
            sources.append(node)
            continue
        anchored = any(on_ps(n.device) for n in index.colocated_with(name))
        if node.op not in _MOVABLE or anchored or len(moved) >= _MOST_MOVED:
            return None
        moved[name] = node
        stack.extend(index.inputs(name))
    return moved, sources


def _input(index: GraphIndex, node: NodeDef, *names: str) -> str | None:
    numbers = (attributes.input_of(node, name) for name in names)
    return next((index.inputs(node.name)[n] for n in numbers if n is not None), None)


def find_merge(index: GraphIndex, write: Write, here: str = "") -> Merge | None:
    """The merge of one update; None if its gradient is not made on exactly one worker, or repeats no rows.

    Args:
      here: the device of this process, which is where ops without a device run.
    """
    node = write.node
    values, indices = _input(index, node, "grad", "updates"), _input(index, node, "indices")
    if not write.by_rows or values is None or indices is None:
        return None
    found = _upstream_on_ps(index, [values, indices])
    if found is None:
        return None
    moved, sources = found
    workers = {process_of(n.device or here) for n in sources} - {""}
    if len(workers) != 1:
        return None
    unique = moved.get(op_name(indices))
    if unique is not None and unique.op == "Unique":
        indices = index.inputs(unique.name)[0]
        if unique.attr["out_idx"].type != tf.int32.as_datatype_enum or op_name(indices) in moved:
            return None
    elif (
        unique is not None
        or node.op not in _SUMS
        or index.nodes[op_name(indices)].op not in _GRADIENTS
        or not any(n.op in _GRADIENTS and n.name != op_name(indices) for n in sources)
    ):
        return None
    if unique_already(index, indices):
        return None
    kind = attributes.copied(node.attr["Tindices"])
    return Merge(write, tuple(moved.values()), unique, indices, kind, workers.pop())


def move(index: GraphIndex, merge: Merge) -> None:
    """The optimizer's merge goes to the worker; names stay."""
    for node in merge.moved:
        node.device = merge.worker
        node.attr.pop("_class", None)


def take(index: GraphIndex, unique: NodeDef, uniques: Uniques) -> None:
    """Every consumer of the optimizer's `Unique` takes the one of the lookup instead."""
    for consumer, number in list(index.consumers(unique.name)):
        tensor = index.inputs(consumer.name)[number]
        if tensor[0] != "^":
            index.set_input(consumer, number, uniques.positions if tensor.endswith(":1") else uniques.ids)


def insert(index: GraphIndex, merge: Merge, uniques: Uniques, marks: list[str]) -> None:
    """A merge for an optimizer that has none: the update, and the marks of its rows, get each row once."""
    node, device = merge.write.node, merge.worker
    updates_at, indices_at = attributes.input_of(node, "updates"), attributes.input_of(node, "indices")
    assert updates_at is not None and indices_at is not None  # find_merge looked
    updates = index.inputs(node.name)[updates_at]
    positions = positions_like(index, uniques, merge.indices, merge.kind, device)
    size = index.add(node.name + "__rows", "Size", device, [uniques.ids], T=merge.kind, out_type=_INT32).name
    merged = index.add(
        node.name + "__merged",
        "UnsortedSegmentSum",
        device,
        [updates, positions, size],
        T=attributes.copied(node.attr["dtype" if node.op.startswith("Resource") else "T"]),
        Tindices=_INT32,
        Tnumsegments=_INT32,
    ).name
    index.set_input(node, updates_at, merged)
    for one in [node, *(index.nodes[name] for name in marks)]:
        at = attributes.input_of(one, "indices")
        if at is not None:
            index.set_input(one, at, uniques.ids)
