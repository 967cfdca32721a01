"""The pass itself: finds what is cut and exchanges every op that takes its handle."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.context import Report
from deeprec_ext.graph.index import GraphIndex, op_name
from deeprec_ext.graph.partitioning import drawing, functions, parts, restoring, saving
from deeprec_ext.graph.partitioning.deciding import APPLIES, ASSIGNS, SCATTERS, decide
from deeprec_ext.graph.partitioning.joining import SLOT, WHOLE, Joined
from deeprec_ext.graph.partitioning.layout import Partitioning, part_name, sub_slice
from deeprec_ext.graph.partitioning.parts import PartitionedVariable, attrs_of, controls_of
from deeprec_ext.graph.partitioning.routing import Router
from deeprec_ext.graph.partitioning.values import Values
from deeprec_ext.units import counted


@dataclass(frozen=True)
class Part:
    """One part of a variable that was cut."""

    name: str
    """The shared name."""
    slice: str
    """Saver's `shape_and_slice` within what its whole is saved as."""


@dataclass(frozen=True)
class Partitions:
    """What was done to a graph."""

    variables: Mapping[str, PartitionedVariable] = field(default_factory=dict)
    """Shared name of the whole -> how it was cut."""
    reports: tuple[Report, ...] = ()
    """Of joining and of cutting, where there was something to decide."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """As in `Decision`, and in `Joined`."""
    joined: Joined = field(default_factory=Joined)
    """What the script had partitioned, and is one before it is cut."""

    def saved(self, names: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
        """Shared name -> (name in a checkpoint, slice), with the parts in place of the wholes."""
        found = {}
        for name, (saved_as, part) in self.joined.saved(names).items():
            cut_ = self.variables.get(name)
            if cut_ is None:
                found[name] = saved_as, part
                continue
            for number in range(cut_.count):
                found[part_name(name, number, cut_.count)] = saved_as, sub_slice(part, cut_.layout, number)
        return found


def tell_cuts(cuts: Partitions) -> list[str]:
    """What is cut, and what of the script's parts is one, for other roles: `told_cuts` reads it."""
    whole = [f"{name}@{WHOLE}/{cuts.joined.slots[name]}" for name in cuts.joined.tables]
    return [*whole, *(f"{name}@{one.count}" for name, one in cuts.variables.items())]


def told_cuts(told: Iterable[str] | None) -> dict[str, int] | None:
    """Shared names with the number of parts, and with their slot (`joining.SLOT`) where a script's parts are one; 0: it is not
    told, as by a job that began before it was. None: nobody has told."""
    if told is None:
        return None
    found = {}
    for one in told:
        name, _, said = one.rpartition("@")
        count, _, slot = said.partition("/")
        found.update({name: int(count)} if name and count.isdigit() else {one: 0})
        if slot.isdigit():
            found[name + SLOT] = int(slot)
    return found


def agree(known: Mapping[str, int] | None, cuts: Partitions) -> bool:
    """Whether a graph is cut as the chief says, as far as it says anything (`told_cuts`)."""
    if known is None:
        return True
    alike = all(known.get(name) in (0, one.count) for name, one in cuts.variables.items())
    alike = alike and all(
        known.get(name) == WHOLE and known.get(name + SLOT) == cuts.joined.slots[name] for name in cuts.joined.tables
    )
    return alike and all(cuts.counts.get(name, count) == count for name, count in known.items() if count)


def partition(index: GraphIndex, partitioning: Partitioning, joined: Joined | None = None) -> Partitions:
    """Partitions the large variables of a user's graph, in place; the index stays true.

    Args:
      joined: what was joined before.

    Raises RefusedError where the chief has cut what cannot be cut here.
    """
    joined = joined or Joined()
    told = (joined.report,) if joined.report is not None else ()
    if partitioning.mode == "off" or partitioning.slots < 2:
        return Partitions({}, told, joined.counts, joined)
    began = time.perf_counter()
    decision = decide(index, partitioning)
    if not decision.nodes and not decision.kept:
        return Partitions({}, told, {**decision.counts, **joined.counts}, joined)
    functions.hand_in(index, decision.nodes)
    partitioner = _Partitioner(index)
    for node, (variable, layout) in decision.nodes.items():
        partitioner.variables[node] = parts.make_parts(index, variable, layout, partitioning.slots)
    partitioner.run()
    by_name = {one.whole.name: one for one in partitioner.variables.values()}
    count = sum(one.count for one in by_name.values())
    detail = f"{counted(len(by_name), 'variable')} in {counted(count, 'part')}"
    detail += f", {partitioner.lookups} look-ups, {partitioner.updates} updates"
    if decision.kept:
        name, why = next(iter(decision.kept.items()))
        more = f" and {len(decision.kept) - 1} more" if len(decision.kept) > 1 else ""
        detail += f"; whole: {name}{more}, {why}"
    report = Report("cut", len(by_name), detail, time.perf_counter() - began)
    return Partitions(by_name, (*told, report), {**decision.counts, **joined.counts}, joined)


class _Partitioner:
    def __init__(self, index: GraphIndex) -> None:
        self._index = index
        self._router, self._values = Router(index), Values(index)
        self.variables: dict[str, PartitionedVariable] = {}
        """By the name of the node that made the handle."""
        self.lookups = self.updates = 0
        self._changed: set[str] = set()

    def run(self) -> None:
        index = self._index
        users: dict[str, NodeDef] = {}
        for name in self.variables:
            for consumer, number in index.consumers(name):
                if index.inputs(consumer.name)[number][0] != "^":
                    users[consumer.name] = consumer
        for name in list(users):
            if users[name].op == "ReadVariableOp":
                node = users.pop(name)
                self._values.read(node, self._variable(node))
        self._values.follow()
        saving.save_parts(index, self._values)
        self._changed.update(users)
        for node in users.values():
            self._exchange(node)
        self._changed |= self._values.close()
        self._forget_wholes()

    def _variable(self, node: NodeDef) -> PartitionedVariable:
        return self.variables[op_name(self._index.inputs(node.name)[0])]

    def _exchange(self, node: NodeDef) -> None:
        variable, op = self._variable(node), node.op
        if op == "ResourceGather":
            self._router.look_up(node, variable)
            self.lookups += 1
        elif op == "VariableShape":
            dtype = tf.as_dtype(node.attr["out_type"].type or tf.int32.as_datatype_enum)
            value = attributes.integers(variable.layout.dimensions, dtype)
            controls = controls_of(self._index, node.name)
            self._index.replace(node, "Const", node.device, controls, dtype=attributes.kind(dtype), value=value)
        elif op == "VarIsInitializedOp":
            self._all_initialized(node, variable)
        elif op in ASSIGNS:
            self._assign(node, variable)
        elif SCATTERS.match(op) or APPLIES.match(op):
            self._update(node, variable)
        else:
            self._per_part(node, variable, {})

    def _per_part(self, node: NodeDef, variable: PartitionedVariable, given: Mapping[int, list[str]]) -> list[str]:
        """The same op once per part; `given`: number of an input -> its value for each part. The node waits for them all."""
        index, made = self._index, []
        for part, device in enumerate(variable.devices):
            inputs = []
            for number, tensor in enumerate(index.inputs(node.name)):
                whole = self.variables.get(tensor)
                inputs.append(given[number][part] if number in given else whole.handles[part] if whole else tensor)
            made.append(index.add(f"{node.name}__cut_{part}", node.op, device, inputs, **attrs_of(node)).name)
        parts.join(index, node, made)
        return made

    def _all_initialized(self, node: NodeDef, variable: PartitionedVariable) -> None:
        index, name = self._index, node.name
        made = [
            index.add(f"{name}__cut_{part}", node.op, device, [handle, *controls_of(index, name)]).name
            for part, (handle, device) in enumerate(zip(variable.handles, variable.devices))
        ]
        kind, many = attributes.kind(tf.bool), attributes.integer(variable.count)
        packed = index.add(
            f"{name}__packed", "Pack", node.device, made, T=kind, N=many, axis=attributes.integer(0)
        ).name
        axis = parts.constant(index, f"{name}__axis", node.device, (0,), tf.int32)
        index.replace(
            node, "All", node.device, [packed, axis], Tidx=parts.INT32, keep_dims=attributes.flag(False)
        )  # fmt: skip

    def _assign(self, node: NodeDef, variable: PartitionedVariable) -> None:
        value, dtype = self._index.inputs(node.name)[1], attributes.copied(node.attr["dtype"])
        rows = self._values.parts_of(value, variable) or restoring.restored_parts(self._index, node, value, variable)
        rows = rows or restoring.filled_parts(self._index, node, value, variable)
        rows = rows or restoring.given_parts(self._index, node, value, variable)
        rows = rows or drawing.drawn_parts(self._index, node, value, variable)
        if rows is None:
            device = self._index.nodes[op_name(value)].device
            rows = parts.rows_of(self._index, node.name, device, value, variable.layout, dtype)
        restoring.one_after_the_other(self._index, rows, self._per_part(node, variable, {1: rows}))

    def _update(self, node: NodeDef, variable: PartitionedVariable) -> None:
        index, inputs, given = self._index, self._index.inputs(node.name), {}
        self.updates += 1
        at = attributes.input_of(node, "indices")
        dense = next(n for name in ("grad", "delta", "updates") if (n := attributes.input_of(node, name)) is not None)
        kind = attributes.copied(node.attr["T" if "T" in node.attr else "dtype"])
        if at is None:
            rows = self._values.parts_of(inputs[dense], variable)
            if rows is None:
                device = self._router.worker_of([inputs[dense]])
                rows = parts.rows_of(index, node.name, device, inputs[dense], variable.layout, kind)
            given[dense] = rows
        else:
            device = self._router.worker_of([inputs[dense], inputs[at]])
            route = self._router.route(inputs[at], variable.layout, attributes.copied(node.attr["Tindices"]))
            given[at] = list(route.ids)
            value = index.nodes[op_name(inputs[dense])]
            if not (
                value.op == "Const" and not value.attr["value"].tensor.tensor_shape.dim
            ):  # one number is for every row
                flatten = variable.layout if SCATTERS.match(node.op) else None
                given[dense] = self._router.values(node.name, route, inputs[dense], kind, flatten)
        self._per_part(node, variable, given)

    def _forget_wholes(self) -> None:
        """Nothing makes a whole any more; colocation with one, or with what may have gone elsewhere, has no meaning (TensorFlow
        has given all that is colocated the device of what it is colocated with)."""
        changed = self._changed | self.variables.keys() | self._router.moved
        gone = {f"loc:@{name}".encode() for name in changed}
        for node in self._index.definition.node:
            if "_class" in node.attr:
                places = node.attr["_class"].list.s
                kept = [place for place in places if place not in gone]
                if node.name in self._router.moved or not kept:
                    del node.attr["_class"]
                elif len(kept) != len(places):
                    del places[:]
                    places.extend(kept)
        for name, variable in self.variables.items():  # who fetches a handle by its name gets one that there is
            first = self._index.nodes[variable.handles[0]]
            self._index.replace(self._index.nodes[name], first.op, first.device, [], **attrs_of(first))
