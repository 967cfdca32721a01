"""Tables that a script has partitioned become one again, where no PS needs them in parts.

`fixed_size_partitioner(8)` around 26 embeddings makes 208 tables, each with look-ups and updates of its own, whichever PS they
lie on. That is a decision on the size of a cluster, written into a model, and slots do better what it is for: what is too large
for one PS is cut over slots (`partition.py`), and everything else is moved as a whole. So parts which together would not be cut
become one variable, of the name that checkpoints have for it, on the slot of one of them; it is looked up and updated at once
(`families.py`). A checkpoint has the same slices as before.

A variable whose parts are used in a way that is not known here stays as it is, with all that are updated together with it, and
the report names it. All roles join the same, as the chief says.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.errors import RefusedError
from deeprec_ext.graph import attributes
from deeprec_ext.graph.context import Report
from deeprec_ext.graph.index import GraphIndex, on_ps, op_name, task_of, with_task
from deeprec_ext.graph.partitioning import functions, saving
from deeprec_ext.graph.partitioning.deciding import ASSIGNS
from deeprec_ext.graph.partitioning.families import Families
from deeprec_ext.graph.partitioning.layout import Partitioning, layout_of, size_of
from deeprec_ext.graph.partitioning.parts import INT64, attrs_of, constant, controls_of, data_of, whole_from
from deeprec_ext.graph.partitioning.restoring import one_number
from deeprec_ext.graph.partitioning.rownumbers import RowNumbers
from deeprec_ext.graph.partitioning.scripted import Scripted, places, scripted, together
from deeprec_ext.graph.partitioning.uses import STITCHES, Use, use_of
from deeprec_ext.graph.partitioning.values import VALUE_BY_VALUE
from deeprec_ext.graph.writes import RESOURCE_VARIABLES, variable_bytes, variables_on_ps
from deeprec_ext.units import counted

WHOLE = 1
"""How many parts a variable has that is one again, where roles tell each other."""

SLOT = "@slot"
"""Behind its name: the slot on which it is. No variable is called so."""


@dataclass(frozen=True)
class Joined:
    """What was joined."""

    tables: Mapping[str, Scripted] = field(default_factory=dict)
    """By the shared name that they have now."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """The same name -> where it is."""
    writes: Sequence[tuple[str, ...]] = ()
    """Ops of the user's, one for each part, of which each writes all parts now."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Name in a checkpoint of all that the script has partitioned -> of how many variables it is made."""
    report: Report | None = None
    """None: there was nothing to decide."""
    left_out: int = 0
    """Ops of the user's that nothing in the graph needs any more."""

    def saved(self, names: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
        """Shared name -> (name in a checkpoint, slice), with the whole in place of its parts."""
        whole = {part.name: name for name, table in self.tables.items() for part in table.parts}
        found = {}
        for name, (saved_as, part) in names.items():
            found[whole.get(name, name)] = saved_as, "" if name in whole else part
        return found


def join(
    index: GraphIndex, saved: Mapping[str, tuple[str, str]], partitioning: Partitioning, keep_all: bool = False
) -> tuple[GraphIndex, Joined]:
    """Joins what a script has partitioned, in place; the index to go on with.

    Args:
      saved: shared name -> (name in a checkpoint, slice).
      keep_all: also ops that nothing else needs any more, as look-ups of one part, which somebody may fetch by name.

    Raises RefusedError where the chief has joined what cannot be joined here.
    """
    tables = scripted(index, saved) if partitioning.mode != "off" else []
    if not tables:
        return index, Joined()
    began = time.perf_counter()
    kept: dict[str, str] = {}
    chosen = _chosen(index, tables, partitioning, kept)
    _refuse(kept, partitioning)
    detail, left_out = "", 0
    if chosen:
        before = GraphDef()
        before.CopyFrom(index.definition)
        sinks = [name for name in index.nodes if not index.consumers(name)]
        joiner = _Joiner(index)
        for one in chosen:
            joiner.join(one)
        joiner.close()
        detail = f", {joiner.lookups} look-ups, {joiner.updates} updates"
        if not _is_ordered(index):
            why = "a part, of this or another variable, is updated after another part"
            kept.update({table.name: why for one in chosen for table in one.use.tables})
            _refuse(kept, partitioning)
            index.definition.CopyFrom(before)
            index, chosen, detail = GraphIndex(index.definition), [], ""
        elif not keep_all:
            index, left_out = _needed(index, sinks)
    joined = {table.name: table for one in chosen for table in one.use.tables}
    slots = {table.name: task_of(one.device) for one in chosen for table in one.use.tables}
    writes = [tuple(node.name for node in nodes) for one in chosen for nodes in one.use.writes]
    counts = {table.name: WHOLE if table.name in joined else len(table.parts) for table in tables}
    if not joined and not kept:
        return index, Joined(counts=counts)
    parts = sum(len(table.parts) for table in joined.values())
    detail = f"{counted(len(joined), 'variable')} of {counted(parts, 'part')} by the script{detail}"
    if kept:
        name, why = next(iter(kept.items()))
        more = f" and {len(kept) - 1} more" if len(kept) > 1 else ""
        detail += f"; in parts: {name}{more}, {why}"
    report = Report("join", len(joined), detail, time.perf_counter() - began)
    return index, Joined(joined, slots, writes, counts, report, left_out)


@dataclass(frozen=True)
class _Chosen:
    use: Use
    families: Families
    device: str
    """Where the variables will be."""


def _chosen(
    index: GraphIndex, tables: Sequence[Scripted], partitioning: Partitioning, kept: dict[str, str]
) -> list[_Chosen]:
    """What can be joined, of what shall be; `kept` is told of the others why not."""
    groups = together(index, tables)
    sizes = {one.name: size_of(one.dimensions or ()) for one in variables_on_ps(index).values() if variable_bytes(one)}
    numbers, total, found = RowNumbers(index), sum(sizes.values()), []
    wanted = [group for group in groups if _is_wanted(group, partitioning, total)]
    told = {name.removesuffix(SLOT): slot for name, slot in (partitioning.known or {}).items() if name.endswith(SLOT)}
    for group, slot in zip(wanted, places(wanted, told)):
        device = with_task(group[0].parts[0].device, slot)
        families = Families(index, group, device, numbers)
        use = use_of(index, group, families)
        if use.why:
            kept.update({table.name: use.why for table in group})
        else:
            found.append(_Chosen(use, families, device))
    return found


def _needed(index: GraphIndex, sinks: Iterable[str]) -> tuple[GraphIndex, int]:
    """The graph without ops that led to something and now lead to nothing; how many they were. Handles stay, as names."""
    needed = index.upstream(sinks)
    kept = [node for node in index.definition.node if node.name in needed or node.op in RESOURCE_VARIABLES]
    gone = len(index.definition.node) - len(kept)
    smaller = GraphDef()
    smaller.node.extend(kept)
    del index.definition.node[:]
    index.definition.node.extend(smaller.node)
    return GraphIndex(index.definition), gone


def _is_wanted(group: Sequence[Scripted], partitioning: Partitioning, total: int) -> bool:
    """As the chief has it, or as it was decided before; else where together it would not be cut."""
    for told in (partitioning.known, partitioning.before):
        said = [(told or {}).get(table.name) for table in group]
        if WHOLE in said:
            return True
        if any(said) or (told is not None and told is partitioning.known):
            return False
        if any(part.name in (told or {}) for table in group for part in table.parts):
            return False
    return all(layout_of(table.dimensions, partitioning, False, total) is None for table in group)


def _refuse(kept: Mapping[str, str], partitioning: Partitioning) -> None:
    for told, joined in (
        (partitioning.known, "the chief has made one variable of the parts of '"),
        (partitioning.before, "an earlier session has made one variable of the parts of '"),
    ):
        for name, why in kept.items():
            if (told or {}).get(name) == WHOLE:
                raise RefusedError(
                    f"{joined}{name}', and this process cannot: {why}; run with --setting cut=off, or build that op in every "
                    "role and before the first session"
                )


def _is_ordered(index: GraphIndex) -> bool:
    """Whether no op waits for itself."""
    left = {
        name: sum(index.nodes[op_name(one)].op != "NextIteration" for one in index.inputs(name)) for name in index.nodes
    }
    ready = [name for name, count in left.items() if not count]
    done = 0
    while ready:
        name = ready.pop()
        done += 1
        if index.nodes[name].op == "NextIteration":
            continue
        for consumer, _ in index.consumers(name):
            left[consumer.name] -= 1
            if not left[consumer.name]:
                ready.append(consumer.name)
    return done == len(index.nodes)


class _Joiner:
    def __init__(self, index: GraphIndex) -> None:
        self._index = index
        self._devices: dict[str, str] = {}
        """Node of a part -> device of the whole."""
        self._slices: dict[str, str] = {}
        """Op that gives the rows of a part -> its device."""
        self._reads: dict[tuple[str, tuple[str, ...]], str] = {}
        self._constants: dict[tuple[tuple[int, ...], str], str] = {}
        self.lookups = self.updates = 0
        self._tables: dict[str, tuple[Scripted, int]] = {}

    def join(self, one: _Chosen) -> None:
        index, use, families, device = self._index, one.use, one.families, one.device
        handles = [part.node.name for table in use.tables for part in table.parts]
        functions.hand_in(index, handles)
        users: dict[str, NodeDef] = {}
        for table in use.tables:
            for number, part in enumerate(table.parts):
                self._tables[part.node.name] = table, number
                for consumer, at in index.consumers(part.node.name):
                    if index.inputs(consumer.name)[at][0] != "^":
                        users[consumer.name] = consumer
        self._put_together(users.values(), families)
        updates = [(nodes, self._update(nodes, families, device)) for nodes in use.writes]
        for nodes, name in updates:
            for node in nodes:
                users.pop(node.name, None)
                index.replace(node, "NoOp", device, [f"^{name}"])
        for node in users.values():
            self._alone(node, device)
        for table in use.tables:
            self._rename(table, device)
        self.updates += len(updates)

    def _put_together(self, users: Iterable[NodeDef], families: Families) -> None:
        """Rows of all parts that were looked up, and values of all rows, become what the whole gives."""
        index, seen = self._index, {node.name for node in users}
        stack = list(seen)
        while stack:
            for consumer, number in list(index.consumers(stack.pop())):
                if consumer.name in seen or index.inputs(consumer.name)[number][0] == "^":
                    continue
                seen.add(consumer.name)
                whole = None
                if consumer.op in STITCHES:
                    whole = families.stitched(consumer)
                    self.lookups += whole is not None
                elif consumer.op == "ConcatV2":
                    whole = families.concatenated(consumer)
                elif consumer.op in VALUE_BY_VALUE:
                    stack.append(consumer.name)
                if whole is not None:
                    kind = attributes.copied(consumer.attr["T"])
                    index.replace(
                        consumer,
                        "Identity",
                        consumer.device,
                        [whole.make(), *controls_of(index, consumer.name)],
                        T=kind,
                    )

    def _update(self, nodes: Sequence[NodeDef], families: Families, device: str) -> str:
        """Adds the one op that writes all parts; its name."""
        index, first = self._index, nodes[0]
        own = {f"^{node.name}" for node in nodes}
        controls = dict.fromkeys(one for node in nodes for one in controls_of(index, node.name) if one not in own)
        inputs = [data_of(index, node.name) for node in nodes]
        found = families.rows_written(nodes) if attributes.input_of(first, "indices") is not None else None
        made: list[str] = []
        for number, tensors in enumerate(zip(*inputs)):
            if tensors[0] in self._tables:
                made.append(tensors[0])  # of the first part: its node gives the whole
            elif found is not None and number == attributes.input_of(first, "indices"):
                made.append(found[0].make())
            elif found is not None and number in self._dense(first):
                made.append(found[1] if isinstance(found[1], str) else found[1].make())
            elif number in self._dense(first):
                made.append(self._all_rows(first, tensors, families, device))
            else:
                made.append(families.at_home(tensors))
        return index.add(f"{first.name}__whole", first.op, device, [*made, *controls], **attrs_of(first)).name

    def _dense(self, node: NodeDef) -> set[int]:
        if node.op in ASSIGNS:
            return {1}
        return {at for name in ("grad", "delta", "updates") if (at := attributes.input_of(node, name)) is not None}

    def _all_rows(self, written: NodeDef, tensors: tuple[str, ...], families: Families, device: str) -> str:
        """Of values for each part those for the whole."""
        found = families.blocks(tensors)
        if found is not None:
            return found.make()
        if written.op == "AssignVariableOp" and (filled := self._filled(written, tensors, device)) is not None:
            return filled
        index, node = self._index, self._index.nodes[op_name(tensors[0])]
        where = node.device if node.device and not on_ps(node.device) and node.op != "Const" else device
        kind = attributes.copied(written.attr["dtype" if "dtype" in written.attr else "T"])
        made = index.add(f"{written.name}__rows", "NoOp", where)
        whole_from(index, made, where, tensors, kind)
        return made.name

    def _filled(self, written: NodeDef, tensors: tuple[str, ...], device: str) -> str | None:
        """Of parts that begin with the same number each: as much of it as the whole has. None: they begin otherwise."""
        numbers = [one_number(self._index, tensor) for tensor in tensors]
        first = numbers[0]
        if first is None or any(one != first for one in numbers[1:]):
            return None
        index, name = self._index, f"{written.name}__filled"
        table, _ = self._tables[data_of(index, written.name)[0]]
        number, dtype = first
        one = index.add(f"{name}_number", "Const", device, dtype=dtype)
        one.attr["value"].tensor.CopyFrom(number)
        sizes = constant(index, f"{name}_sizes", device, table.dimensions, tf.int32)
        return index.add(name, "Fill", device, [sizes, one.name], T=dtype, index_type=attributes.kind(tf.int32)).name

    def _alone(self, node: NodeDef, device: str) -> None:
        """What is done to one part goes on giving what it gave."""
        index, (handle, *others) = self._index, data_of(self._index, node.name)
        table, number = self._tables[handle]
        whole, begin, rows = table.parts[0].node.name, table.begins[number], table.sizes[number]
        if node.op == "VariableShape":
            dtype = tf.as_dtype(node.attr["out_type"].type or tf.int32.as_datatype_enum)
            value = attributes.integers((rows, *table.dimensions[1:]), dtype)
            index.replace(
                node, "Const", device, controls_of(index, node.name), dtype=attributes.kind(dtype), value=value
            )
        elif node.op == "ReadVariableOp":
            dtype = attributes.copied(node.attr["dtype"])
            rest = len(table.dimensions) - 1
            read = self._read(node, table, device)
            at, size = (self._constant(one, device) for one in ((begin, *[0] * rest), (rows, *[-1] * rest)))
            index.replace(node, "Slice", device, [read, at, size], T=dtype, Index=INT64)
            self._slices[node.name] = device
        else:
            if node.op == "ResourceGather":
                node.device = device
                if begin:
                    kind, ids = attributes.copied(node.attr["Tindices"]), others[0]
                    where = index.nodes[op_name(ids)].device
                    by = constant(index, f"{node.name}__begin", where, begin, tf.as_dtype(kind.type))
                    index.set_input(node, 1, index.add(f"{node.name}__row", "AddV2", where, [ids, by], T=kind).name)
            index.set_input(node, 0, whole)

    def _constant(self, values: tuple[int, ...], device: str) -> str:
        """One for all that are cut alike there."""
        key = values, device
        if key not in self._constants:
            name = f"join__{task_of(device)}_{'_'.join(str(one).replace('-', 'm') for one in values)}"
            self._constants[key] = constant(self._index, name, device, values, tf.int64)
        return self._constants[key]

    def _read(self, node: NodeDef, table: Scripted, device: str) -> str:
        """The whole, read under the same conditions."""
        controls = controls_of(self._index, node.name)
        key = table.name, tuple(controls)
        if key not in self._reads:
            inputs = [table.parts[0].node.name, *controls]
            made = self._index.add(f"{node.name}__whole", node.op, device, inputs, **attrs_of(node))
            self._reads[key] = made.name
        return self._reads[key]

    def _rename(self, table: Scripted, device: str) -> None:
        for part in table.parts:
            node = part.node
            self._devices[node.name] = device
            node.device = device
            node.attr["shared_name"].CopyFrom(attributes.text(table.name))
            node.attr["shape"].CopyFrom(attributes.shape(table.dimensions))

    def close(self) -> None:
        """What lay beside a part lies beside the whole, which its name says no more; and so does what is saved of it."""
        for node in self._index.definition.node:
            if "_class" not in node.attr:
                continue
            places = node.attr["_class"].list.s
            kept = [place for place in places if place.decode().removeprefix("loc:@") not in self._devices]
            if len(kept) == len(places):
                continue
            beside = next(
                one for one in (place.decode().removeprefix("loc:@") for place in places) if one in self._devices
            )
            if on_ps(node.device):
                node.device = self._devices[beside]
            del node.attr["_class"]
            if kept:
                node.attr["_class"].list.s.extend(kept)
        saving.save_beside(self._index, self._slices)
