"""Whether the parts of variables that a script has partitioned can be one: by what uses them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.types_pb2 import DT_RESOURCE

from deeprec_ext.graph import attributes
from deeprec_ext.graph.dedup_gather import normal
from deeprec_ext.graph.index import GraphIndex, op_name
from deeprec_ext.graph.partitioning.deciding import APPLIES, ASSIGNS, SCATTERS
from deeprec_ext.graph.partitioning.families import Families
from deeprec_ext.graph.partitioning.functions import only_read
from deeprec_ext.graph.partitioning.parts import data_of, handed_on, is_batched
from deeprec_ext.graph.partitioning.scripted import Scripted
from deeprec_ext.graph.partitioning.values import VALUE_BY_VALUE
from deeprec_ext.graph.writes import RESOURCE_VARIABLES

_PART = re.compile(r"part_\d+")
_ALONE = frozenset({"ReadVariableOp", "VarIsInitializedOp", "VariableShape", "ResourceGather", "DisableCopyOnRead"})
"""Of one part as good as of all."""
STITCHES = frozenset({"ParallelDynamicStitch", "DynamicStitch"})


@dataclass
class Use:
    """How the variables that are updated together are used."""

    tables: list[Scripted]
    writes: list[tuple[NodeDef, ...]]
    """Ops, one for each part in order, which one op on all of them stands for."""
    why: str = ""
    """Why they cannot be one; empty: they can."""


def use_of(index: GraphIndex, tables: list[Scripted], families: Families) -> Use:
    """What uses these variables, which are updated together."""
    use = Use(tables, [])
    first = tables[0]
    for table in tables[1:]:
        if table.sizes != first.sizes or table.slots != first.slots:
            use.why = f"'{table.name}', which is updated with it, is cut otherwise, or lies on other slots"
            return use
    of_part = {part.node.name: (table, number) for table in tables for number, part in enumerate(table.parts)}
    for name in of_part:
        for node in index.colocated_with(name):
            if node.op in RESOURCE_VARIABLES and node.name not in of_part and node.attr["shape"].shape.dim:
                use.why = f"'{node.name}', which lies beside a part of it, is saved as a variable of its own"
                return use
    written: dict[tuple[object, ...], dict[int, list[NodeDef]]] = defaultdict(lambda: defaultdict(list))
    seen: set[str] = set()
    for name, (_, part) in of_part.items():
        for consumer, number in index.consumers(name):
            if index.inputs(consumer.name)[number][0] == "^" or consumer.name in seen:
                continue
            use.why = use.why or _strange(index, consumer, number, of_part)
            if use.why:
                return use
            if consumer.op == "ResourceGather":
                if not _is_put_together(index, consumer, families):
                    use.why = f"'{consumer.name}' looks up one part"
            elif consumer.op in ASSIGNS or APPLIES.match(consumer.op) or SCATTERS.match(consumer.op):
                seen.add(consumer.name)
                written[_key(index, consumer, of_part, families)][part].append(consumer)
    parts = range(len(first.parts))
    for by_part in written.values():
        one = next(iter(by_part.values()))[0]
        if any(len(by_part[part]) != 1 for part in parts):
            use.why = use.why or f"what '{one.name}' does to the other parts cannot be told from the graph"
            return use
        use.writes.append(tuple(by_part[part][0] for part in parts))
        if attributes.input_of(one, "indices") is not None and families.rows_written(use.writes[-1]) is None:
            use.why = use.why or f"'{one.name}' writes rows of one part in a way of its own"
    return use


def _strange(
    index: GraphIndex, node: NodeDef, number: int, of_part: Mapping[str, tuple[Scripted, int]]
) -> str:  # fmt: skip
    """Why an op that takes the handle of a part cannot take that of all of them; empty: it can."""
    op = node.op
    if op in _ALONE:
        return f"'{node.name}' looks up rows of several dimensions" if is_batched(node) else ""
    if only_read(index, node, number):
        return ""
    if (op in ASSIGNS and number == 0) or SCATTERS.match(op):
        return ""
    if not APPLIES.match(op) or all(attributes.input_of(node, name) is None for name in ("grad", "delta")):
        return f"{op} '{node.name}' uses it in a way that is not known here"
    parts = set()
    for at, tensor in enumerate(data_of(index, node.name)):
        argument = attributes.argument(node, at)
        if argument is not None and argument.type == DT_RESOURCE:
            if tensor not in of_part:
                return f"'{tensor}', which is updated with it, is not cut as it is"
            parts.add(of_part[tensor][1])
    return "" if len(parts) == 1 else f"'{node.name}' updates several parts"


def _key(
    index: GraphIndex, node: NodeDef, of_part: Mapping[str, tuple[Scripted, int]], families: Families
) -> tuple[object, ...]:
    """Equal for the ops of all parts of which one can be made."""
    given = {attributes.input_of(node, name) for name in ("grad", "delta", "updates", "indices")}
    inputs = data_of(index, node.name)
    if node.op in ASSIGNS:
        prefix = _prefix(index, inputs[1])
        called = prefix or _PART.sub("part", node.name)
        return node.op, called, of_part[inputs[0]][0].name
    others = tuple(
        of_part[tensor][0].name if tensor in of_part else "" if number in given else families.scalar(tensor)
        for number, tensor in enumerate(inputs)
    )
    attrs = tuple(sorted((k, v.SerializeToString(deterministic=True)) for k, v in node.attr.items() if k != "_class"))
    return node.op, _PART.sub("part", node.name), others, attrs


def _prefix(index: GraphIndex, value: str) -> str:
    """Of what is restored from a checkpoint: the tensor that says which; empty: it is something else."""
    node = index.nodes[op_name(handed_on(index, value))]
    return f"restored:{normal(index.inputs(node.name)[0])}" if node.op == "RestoreV2" else ""


def _is_put_together(index: GraphIndex, gather: NodeDef, families: Families) -> bool:
    """Whether all that becomes of the rows of a part is that they are put together with those of all others, or what is
    updated with them."""
    stack, seen = [gather.name], {gather.name}
    while stack:
        for consumer, number in index.consumers(stack.pop()):
            if index.inputs(consumer.name)[number][0] == "^" or consumer.name in seen:
                continue
            seen.add(consumer.name)
            if consumer.op in STITCHES:
                if families.stitched(consumer) is None:
                    return False
            elif consumer.op in VALUE_BY_VALUE:
                stack.append(consumer.name)
            elif not ((APPLIES.match(consumer.op) or SCATTERS.match(consumer.op)) and families.updates(consumer)):
                return False
    return True
