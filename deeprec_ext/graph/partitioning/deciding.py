"""Which variables of a graph are cut: the large ones, as far as every op that takes their handle is known here."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.types_pb2 import DT_RESOURCE

from deeprec_ext.errors import RefusedError
from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex
from deeprec_ext.graph.partitioning.functions import only_read
from deeprec_ext.graph.partitioning.layout import Layout, Partitioning, in_parts, layout_of, size_of
from deeprec_ext.graph.partitioning.parts import is_batched
from deeprec_ext.graph.writes import RESOURCE_VARIABLES, VariableNode, variable_bytes, variables_on_ps

APPLIES = re.compile(r"Resource(Sparse)?Apply\w+$")
SCATTERS = re.compile(r"ResourceScatter(Add|Sub|Mul|Div|Min|Max|Update)$")
ASSIGNS = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
OTHERS = frozenset({
    "ReadVariableOp", "VariableShape", "VarIsInitializedOp", "DestroyResourceOp", "DisableCopyOnRead",
})  # fmt: skip


@dataclass(frozen=True)
class Decision:
    nodes: Mapping[str, tuple[VariableNode, Layout]]
    """Name of a node that makes a variable that is cut -> into what."""
    kept: Mapping[str, str]
    """Shared name of a variable that is large and stays whole -> why."""
    counts: Mapping[str, int]
    """Shared name -> the number of its parts, of all but those that are kept."""


def _primary(node: VariableNode, nodes: Mapping[str, VariableNode]) -> str:
    """Shared name of the variable of this shape that it was placed beside, as an optimizer's slot is; its own if there is none.

    A slot of a part is cut as the part is, also where no name in a checkpoint says that it belongs to one (Keras's).
    """
    for place in node.node.attr["_class"].list.s if "_class" in node.node.attr else ():
        other = nodes.get(place.decode().removeprefix("loc:@"))
        if other is not None and other.dimensions == node.dimensions:
            return other.name
    return node.name


def _unknown(index: GraphIndex, consumer: NodeDef, number: int) -> bool:
    """Whether an op uses a handle in a way that cannot be cut."""
    tensor, op = index.inputs(consumer.name)[number], consumer.op
    if tensor[0] == "^" or op in OTHERS or (op in ASSIGNS and number == 0) or SCATTERS.match(op):
        return False
    if op == "ResourceGather":
        return is_batched(consumer)
    if only_read(index, consumer, number):
        return False
    return not (
        APPLIES.match(op) and any(attributes.input_of(consumer, name) is not None for name in ("grad", "delta"))
    )


def decide(index: GraphIndex, partitioning: Partitioning) -> Decision:
    """Raises RefusedError where the chief has cut what cannot be cut here."""
    every = variables_on_ps(index)
    total = sum({node.name: size_of(node.dimensions or ()) for node in every.values() if variable_bytes(node)}.values())
    nodes = {name: node for name, node in every.items() if node.node.op in RESOURCE_VARIABLES}
    wanted: dict[str, Layout] = {}
    of_name: dict[str, list[str]] = defaultdict(list)
    for name, node in nodes.items():
        primary = _primary(node, nodes)
        divided = node.name in partitioning.divided or primary in partitioning.divided
        layout = _layout(node, primary, partitioning, divided, total) if variable_bytes(node) else None
        if layout is not None:
            of_name[node.name].append(name)
            wanted[node.name] = layout
    if not wanted:
        return Decision({}, {}, {node.name: 1 for node in nodes.values()})
    together: dict[str, set[str]] = {name: {name} for name in wanted}  # written by one op, so cut alike or not at all
    kept: dict[str, str] = {}
    for shared, members in of_name.items():
        if any(nodes[name].dimensions != wanted[shared].dimensions for name in members):
            kept[shared] = "it is declared with several shapes"
        for name in members:
            for consumer, number in index.consumers(name):
                if _unknown(index, consumer, number):
                    kept.setdefault(shared, f"{consumer.op} '{consumer.name}' uses it in a way that cannot be cut")
                elif APPLIES.match(consumer.op):
                    _join(index, consumer, shared, nodes, wanted, together, kept)
    if partitioning.known is not None:
        for shared in wanted.keys() - partitioning.known.keys():
            kept.setdefault(shared, "the chief has it whole")
    for shared in list(kept):
        for other in together[shared]:
            kept.setdefault(other, f"it is updated together with {shared}")
    for shared in sorted(kept.keys() & (partitioning.known or {}).keys()):
        raise RefusedError(
            f"the chief has cut the variable '{shared}' over slots, and this process cannot: {kept[shared]}; "
            "run with --setting cut=off, or build that op in every role"
        )
    cut = {
        name: (nodes[name], wanted[shared])
        for shared, members in of_name.items()
        if shared not in kept
        for name in members
    }
    counts = {node.name: 1 for node in nodes.values() if node.name not in kept}
    counts.update({node.name: layout.count for node, layout in cut.values()})
    return Decision(cut, kept, counts)


def _layout(node: VariableNode, primary: str, partitioning: Partitioning, divided: bool, total: int) -> Layout | None:
    """As the chief has it, or as it was decided before (of an optimizer's slot: of what it lies beside); else by its size."""
    known, before, dimensions = partitioning.known or {}, partitioning.before, node.dimensions or ()
    count = known.get(node.name, 0)
    if partitioning.known is None:
        count = before.get(node.name) or before.get(primary, 0)
    if count:
        return in_parts(dimensions, count)
    return layout_of(dimensions, partitioning, divided, 0 if node.name in known else total)


def _join(
    index: GraphIndex, consumer: NodeDef, shared: str, nodes: Mapping[str, VariableNode], wanted: Mapping[str, Layout],
    together: dict[str, set[str]], kept: dict[str, str],
) -> None:  # fmt: skip
    for number, tensor in enumerate(index.inputs(consumer.name)):
        argument = attributes.argument(consumer, number) if tensor[0] != "^" else None
        if argument is None or argument.type != DT_RESOURCE:
            continue
        other = nodes.get(tensor)
        if other is None:
            kept.setdefault(shared, f"'{tensor}', which is updated with it, is no variable on a PS")
            continue
        if other.name == shared:
            continue
        alike = other.name in wanted and wanted[other.name] == wanted[shared]
        if not alike or other.slot != next(n for n in nodes.values() if n.name == shared).slot:
            kept.setdefault(shared, f"'{other.name}', which is updated with it, is of another shape or on another slot")
            continue
        group = together[shared] | together[other.name]
        for name in group:
            together[name] = group
