"""Named iterators: a dataset iterator that outlives the session in which it was made.

An `IteratorV2` without a shared name belongs to one session; with one, the next session finds it where it stands.
`OneShotIterator` (the usual input of MonitoredTrainingSession scripts) rejects a shared name and would silently
restart at record 0, so it becomes a named iterator of the same node name plus a `MakeIterator` over its dataset
function, to be run once per process. Each named iterator gets a `__drop` op: destroyed before its session is closed,
else the process crashes later.

To destroy it is to take its name away: it ends with the last kernel that holds it. Its threads (`prefetch`, parallel maps) use
devices of the session that started it and of the session that first read it. Where these are two (a packed run has a session
of its own) neither may end before the iterator: so with packing a `__stop` op comes first, which starts it on no records.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.tensor_pb2 import TensorProto

from deeprec_ext.graph.attributes import copied, kind, kinds, text
from deeprec_ext.graph.context import Context
from deeprec_ext.graph.index import GraphIndex
from deeprec_ext.graph.rewriting import Rewriting

_NAMED = {"IteratorV2", "Iterator"}


def _convert(index: GraphIndex, name: str) -> str:
    """Turns a OneShotIterator into an IteratorV2 in place; returns the name of the op that starts it."""
    node = index.nodes[name]
    factory = node.attr["dataset_factory"]
    dataset = index.add(
        name + "__dataset", "StatefulPartitionedCall", node.device, f=factory, Tin=kinds([]), Tout=kinds([tf.variant])
    )
    node.op = "IteratorV2"
    del node.attr["dataset_factory"]
    return index.add(name + "__make", "MakeIterator", node.device, [dataset.name, name]).name


def _stop(index: GraphIndex, node: NodeDef) -> str | None:
    """Adds what ends the threads of an iterator; None: of its records no empty dataset can be made."""
    types, shapes = node.attr["output_types"].list.type, node.attr["output_shapes"].list.shape
    if len(types) != len(shapes) or any(tf.as_dtype(dtype) == tf.resource for dtype in types):
        return None
    parts = []
    for number, (dtype, shape) in enumerate(zip(types, shapes)):
        sizes = [] if shape.unknown_rank else [max(one.size, 0) for one in shape.dim]
        none = AttrValue(tensor=TensorProto(dtype=dtype, tensor_shape=tf.TensorShape([0, *sizes]).as_proto()))
        part = index.add(f"{node.name}__none{number}", "Const", node.device, dtype=kind(dtype), value=none)
        parts.append(part.name)
    empty = index.add(
        node.name + "__empty", "TensorSliceDataset", node.device, parts,
        Toutput_types=copied(node.attr["output_types"]), output_shapes=copied(node.attr["output_shapes"]),
    )  # fmt: skip
    return index.add(node.name + "__stop", "MakeIterator", node.device, [empty.name, node.name]).name


class NamedIterators:
    """Pass 2. A session on the spot is never swapped and keeps its iterators as they are."""

    name = "iterators"

    def applies(self, context: Context) -> bool:
        return context.slot_map is not None

    def apply(self, rewriting: Rewriting) -> tuple[int, str]:
        found = []
        one_shot = []
        for node in rewriting.definition.node:
            op = node.op
            if op in _NAMED:
                found.append(node.name)
            elif op == "OneShotIterator":
                one_shot.append(node.name)
        if not found and not one_shot:
            return 0, "none"
        index = rewriting.index
        for name in one_shot:
            rewriting.initializers.append(_convert(index, name))
        for name in [*found, *one_shot]:
            node = index.nodes[name]
            if not node.attr["shared_name"].s:
                node.attr["shared_name"].CopyFrom(text(rewriting.context.resource_scope + name))
            if "container" not in node.attr:
                node.attr["container"].CopyFrom(text(""))
            apart = (rewriting.context.pack, rewriting.context.optimise) != (
                "off",
                "off",
            )  # runs in sessions of their own
            stop = _stop(index, node) if apart else None
            before = ["^" + stop] if stop is not None else []
            rewriting.drops.append(index.add(name + "__drop", "DestroyResourceOp", node.device, [name, *before]).name)
        return len(found) + len(one_shot), f"{len(found)} named, {len(one_shot)} one-shot converted"
