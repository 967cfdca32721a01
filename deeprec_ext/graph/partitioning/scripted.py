"""Which variables a script has partitioned itself, and where each lies once it is one again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from deeprec_ext.graph.index import GraphIndex
from deeprec_ext.graph.partitioning.deciding import APPLIES
from deeprec_ext.graph.partitioning.parts import data_of
from deeprec_ext.graph.spreading import TurnBySize
from deeprec_ext.graph.writes import RESOURCE_VARIABLES, VariableNode, variable_bytes, variables_on_ps


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


def scripted(index: GraphIndex, saved: Mapping[str, tuple[str, str]]) -> list[Scripted]:
    """Those whose parts are ranges of their rows, in the order in which the graph makes them.

    Args:
      saved: shared name -> (name in a checkpoint, slice).
    """
    nodes: dict[str, list[VariableNode]] = defaultdict(list)
    for node in variables_on_ps(index).values():
        nodes[node.name].append(node)
    found: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    whole_rows: dict[str, int] = {}
    for shared, (whole, spec) in saved.items():
        rows = _rows(spec)
        if rows is not None and shared in nodes:
            found[whole].append((*rows[:2], shared))
            whole_rows[whole] = rows[2]
    made = []
    for whole, ranges in found.items():
        ranges.sort()
        ends = [0, *(begin + size for begin, size, _ in ranges)]
        all_rows = [begin for begin, _, _ in ranges] == ends[:-1] and ends[-1] == whole_rows[whole]
        if len(ranges) < 2 or not all_rows or whole in nodes:
            continue
        parts = [nodes[shared] for _, _, shared in ranges]
        if all(len(one) == 1 for one in parts) and _alike([one[0] for one in parts], [size for _, size, _ in ranges]):
            made.append(Scripted(whole, tuple(one[0] for one in parts)))
    place = {node.name: number for number, node in enumerate(index.definition.node)}
    return sorted(made, key=lambda one: place[one.parts[0].node.name])


def _rows(spec: str) -> tuple[int, int, int] | None:
    """(first, how many, of how many) of a slice of rows; None: it is none, or is cut along another dimension too."""
    *sizes, last = spec.split() or [""]
    ranges = last.split(":")
    if not sizes or len(ranges) != len(sizes):
        return None
    if any(one not in ("-", f"0,{size}") for one, size in zip(ranges[1:], sizes[1:])) or "," not in ranges[0]:
        return None
    first, _, many = ranges[0].partition(",")
    return (int(first), int(many), int(sizes[0])) if first.isdigit() and many.isdigit() and int(many) else None


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


def places(groups: Sequence[Sequence[Scripted]], told: Mapping[str, int]) -> list[int]:
    """The slot of each group: what others have told (name -> slot), else one on which the script has a part of it, each size
    in its own turn."""
    turn = TurnBySize(1 + max((slot for one in groups for slot in one[0].slots), default=0))
    dealt = [turn.among(sorted(set(one[0].slots)), sum(map(variable_bytes, one[0].parts))) for one in groups]
    return [told.get(one[0].name, slot) for one, slot in zip(groups, dealt)]
