"""Which variables a script has partitioned itself, and whether their parts can be one: by what uses them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.types_pb2 import DT_RESOURCE

from deeprec_ext.graph import attributes
from deeprec_ext.graph.dedup_gather import normal
from deeprec_ext.graph.index import GraphIndex, op_name
from deeprec_ext.graph.partitioning.deciding import APPLIES, ASSIGNS, SCATTERS
from deeprec_ext.graph.partitioning.families import Families
from deeprec_ext.graph.partitioning.functions import only_read
from deeprec_ext.graph.partitioning.parts import data_of
from deeprec_ext.graph.spreading import TurnBySize
from deeprec_ext.graph.writes import RESOURCE_VARIABLES, VariableNode, variable_bytes, variables_on_ps

_PART = re.compile(r"part_\d+")
_ALONE = frozenset({"ReadVariableOp", "VarIsInitializedOp", "VariableShape", "ResourceGather", "DisableCopyOnRead"})
"""Of one part as good as of all."""
_STITCHES = frozenset({"ParallelDynamicStitch", "DynamicStitch"})


@dataclass(frozen=True)
class Scripted:
    """A variable that a script has made in parts."""

    name: str
    """What a checkpoint calls it."""
    parts: tuple[VariableNode, ...]
    """In the order of their rows, of which each has some."""

    @cached_property
    def dimensions(self) -> tuple[int, ...]:
        first = self.parts[0].dimensions or ()
        return (sum(self.sizes), *first[1:])

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(part.rows for part in self.parts)

    @cached_property
    def begins(self) -> tuple[int, ...]:
        return tuple(accumulate(self.sizes[:-1], initial=0))

    @cached_property
    def slots(self) -> tuple[int, ...]:
        return tuple(part.slot for part in self.parts)


@dataclass(frozen=True)
class Fused:
    """One op for each part, which one op on all of them stands for."""

    nodes: tuple[NodeDef, ...]
    """In the order of the parts."""


@dataclass
class Use:
    """How the variables that are updated together are used."""

    tables: list[Scripted]
    writes: list[Fused]
    why: str = ""
    """Why they cannot be one; empty: they can."""


def scripted(index: GraphIndex, saved: Mapping[str, tuple[str, str]]) -> list[Scripted]:
    """Those whose parts are ranges of their rows, in the order in which the graph makes them.

    Args:
      saved: shared name -> (name in a checkpoint, slice).
    """
    nodes: dict[str, list[VariableNode]] = defaultdict(list)
    for node in variables_on_ps(index).values():
        nodes[node.name].append(node)
    found: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for shared, (whole, spec) in saved.items():
        rows = _rows(spec)
        if rows is not None and shared in nodes:
            found[whole].append((*rows, shared))
    made = []
    for whole, ranges in found.items():
        ranges.sort()
        ends = [0, *(begin + size for begin, size, _ in ranges)]
        if len(ranges) < 2 or [begin for begin, _, _ in ranges] != ends[:-1] or whole in nodes:
            continue
        parts = [nodes[shared] for _, _, shared in ranges]
        if all(len(one) == 1 for one in parts) and _alike([one[0] for one in parts], [size for _, size, _ in ranges]):
            made.append(Scripted(whole, tuple(one[0] for one in parts)))
    place = {node.name: number for number, node in enumerate(index.definition.node)}
    return sorted(made, key=lambda one: place[one.parts[0].node.name])


def _rows(spec: str) -> tuple[int, int] | None:
    """(first, how many) of a slice of rows; None: it is none, or is cut along another dimension too."""
    *sizes, last = spec.split() or [""]
    ranges = last.split(":")
    if not sizes or len(ranges) != len(sizes):
        return None
    if any(one not in ("-", f"0,{size}") for one, size in zip(ranges[1:], sizes[1:])) or "," not in ranges[0]:
        return None
    first, _, many = ranges[0].partition(",")
    return (int(first), int(many)) if first.isdigit() and many.isdigit() and int(many) else None


def _alike(parts: Sequence[VariableNode], rows: Sequence[int]) -> bool:
    first = parts[0]
    return all(
        part.node.op in RESOURCE_VARIABLES and part.dimensions is not None and variable_bytes(part)
        and part.rows == size and part.dimensions[1:] == (first.dimensions or ())[1:]
        and part.node.attr["dtype"].type == first.node.attr["dtype"].type
        and part.node.attr["container"].s == first.node.attr["container"].s
        for part, size in zip(parts, rows)
    )  # fmt: skip


def together(index: GraphIndex, tables: Iterable[Scripted]) -> list[list[Scripted]]:
    """Those that one op updates, or that lie beside each other, as an optimizer's slots do."""
    tables = list(tables)
    of_part = {part.node.name: table for table in tables for part in table.parts}
    group = {table.name: [table] for table in tables}

    def join(one: Scripted, other: Scripted) -> None:
        if group[one.name] is not group[other.name]:
            both = group[one.name] + group[other.name]
            for table in both:
                group[table.name] = both

    for name, table in of_part.items():
        node = index.nodes[name]
        for place in node.attr["_class"].list.s if "_class" in node.attr else ():
            if (beside := of_part.get(place.decode().removeprefix("loc:@"))) is not None:
                join(table, beside)
        for consumer, _ in index.consumers(name):
            if APPLIES.match(consumer.op):
                for tensor in data_of(index, consumer.name):
                    if (other := of_part.get(tensor)) is not None:
                        join(table, other)
    order = {table.name: number for number, table in enumerate(tables)}
    unique = {id(one): sorted(one, key=lambda table: order[table.name]) for one in group.values()}
    return sorted(unique.values(), key=lambda one: order[one[0].name])


def places(groups: Sequence[Sequence[Scripted]]) -> list[int]:
    """The slot of each group: one on which the script has a part of it, each size in its own turn."""
    turn = TurnBySize(1 + max((slot for one in groups for slot in one[0].slots), default=0))
    return [turn.among(sorted(set(one[0].slots)), variable_bytes_of(one[0])) for one in groups]


def variable_bytes_of(table: Scripted) -> int:
    return sum(variable_bytes(part) for part in table.parts)


def use_of(index: GraphIndex, tables: list[Scripted], families: Families) -> Use:
    """What uses these variables, which are updated together."""
    use = Use(tables, [])
    first = tables[0]
    for table in tables[1:]:
        if table.sizes != first.sizes or table.slots != first.slots:
            use.why = f"'{table.name}', which is updated with it, is cut otherwise"
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
            use.why = use.why or f"'{one.name}' is not done to every part"
            return use
        fused = Fused(tuple(by_part[part][0] for part in parts))
        use.writes.append(fused)
        if attributes.input_of(one, "indices") is not None and families.rows_written(fused.nodes) is None:
            use.why = use.why or f"'{one.name}' writes rows of one part in a way of its own"
    return use


def _strange(
    index: GraphIndex, node: NodeDef, number: int, of_part: Mapping[str, tuple[Scripted, int]]
) -> str:  # fmt: skip
    """Why an op that takes the handle of a part cannot take that of all of them; empty: it can."""
    op = node.op
    if op in _ALONE:
        return f"'{node.name}' looks up rows of several dimensions" if node.attr["batch_dims"].i else ""
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
    node = index.nodes[op_name(value)]
    while node.op == "Identity":
        node = index.nodes[op_name(data_of(index, node.name)[0])]
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
            if consumer.op in _STITCHES:
                if families.stitched(consumer) is None:
                    return False
            elif consumer.op in families.FOLLOWED:
                stack.append(consumer.name)
            elif not (APPLIES.match(consumer.op) or SCATTERS.match(consumer.op)):
                return False
    return True
