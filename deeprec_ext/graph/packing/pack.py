"""The pass: one run of a placed graph → the same run with fewer messages."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

from tensorflow.core.framework.graph_pb2 import GraphDef

from deeprec_ext.graph.batch import batch_size
from deeprec_ext.graph.context import Report
from deeprec_ext.graph.index import GraphIndex, on_ps, op_name
from deeprec_ext.graph.packing.apart import name_apart
from deeprec_ext.graph.packing.conditions import Conditions, Units
from deeprec_ext.graph.packing.crossings import Crossing, certain, find_crossings
from deeprec_ext.graph.packing.messages import TYPES, Constants, Member, send
from deeprec_ext.graph.packing.processes import Processes
from deeprec_ext.graph.packing.reaching import Run, executed_and_given, part_of
from deeprec_ext.graph.packing.readiness import Readiness, answered, unfused
from deeprec_ext.graph.packing.riding import ride
from deeprec_ext.graph.packing.shapes import Shape, Shapes, Told, elements
from deeprec_ext.graph.packing.sparing import Aliases, copy_constants
from deeprec_ext.graph.packing.staying import tie
from deeprec_ext.graph.packing.waits import straighten
from deeprec_ext.graph.training import updates
from deeprec_ext.graph.writes import variables_on_ps
from deeprec_ext.tf_private.c_graph import PIECE_NODES

NAME = "packing"

LEAST_SAVED = 8
"""So many messages fewer a run must have, or it is left alone: about a millisecond of a core."""

TENSOR_BYTES_MAX = 256 * 1024
"""Larger ones travel alone: to copy one twice more takes as long as the message that is saved."""

PATIENT_BYTES_MAX = 16 * 1024
"""Gradients of at most this size wait for one another: their updates take no time, and nothing waits for these."""

HEAVY_FLOPS = 5e6
"""A quarter of a millisecond of a core."""

NAMED_APART_NODES = 2 * PIECE_NODES
"""A run of fewer ops is imported at once."""

_PRODUCTS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "SparseMatMul"})
_TYPICAL_ROWS = 512
"""Taken for an unknown dimension, where the graph does not tell how large a batch is."""


@dataclass(frozen=True)
class Packed:
    """What became of a run."""

    definition: GraphDef | None
    """The run alone, packed, under its own names; None: it is left as it is."""
    report: Report


def pack(definition: GraphDef, run: Run, here: str, mode: str = "auto", told: Told = lambda tensor: None) -> Packed:
    """
    Args:
      definition: the placed graph, which is not changed.
      run: what is fed and wanted of it.
      here: the device of this process.
      mode: auto (runs that train, where it pays), on (whatever saves a message), off.
      told: shapes of tensors of the user's graph.
    """
    began = time.perf_counter()
    if mode == "off":
        return Packed(None, Report(NAME, 0, "off", 0.0))
    whole = GraphIndex(definition)
    part = part_of(whole, run)
    packing = _Packing(part, run, here, told, batch_size(whole) or _TYPICAL_ROWS)
    why = packing.left_alone(mode)
    if why:
        return Packed(None, Report(NAME, 0, why, time.perf_counter() - began))
    before = packing.messages()
    text = packing.pack()
    after = packing.messages()
    if len(part.node) > NAMED_APART_NODES:
        name_apart(part, run)
    pays = before - after >= (1 if mode == "on" else LEAST_SAVED)
    detail = (
        f"{before} tensors a step between processes in {after} messages: {text}"
        if pays
        else f"{before} tensors a step between processes"
    )
    report = Report(NAME, before - after if pays else 0, detail, time.perf_counter() - began)
    return Packed(part if pays else None, report)


class _Look:
    """The run as it is at one moment."""

    def __init__(self, index: GraphIndex, run: Run, here: str) -> None:
        executed, given = executed_and_given(index, run)
        self.names = executed | given
        self.processes = Processes(index, self.names, here, run.fed)
        self.crossings = find_crossings(index, self.names, self.processes, run, executed)
        self._index, self._run, self._executed = index, run, executed

    @cached_property
    def units(self) -> Units:
        return Units(self._index, self.names, self._executed, self._run)

    @cached_property
    def conditions(self) -> Conditions:
        return Conditions(self._index, self.units, self._run)


class _Packing:
    def __init__(self, part: GraphDef, run: Run, here: str, told: Told, rows: int) -> None:
        self._index, self._run, self._here = GraphIndex(part), run, here
        self._shapes = Shapes(self._index, told)
        self._rows = rows  # of an unknown dimension
        self._answered: set[str] = set()
        self._now = _Look(self._index, run, here)

    def _look_again(self) -> None:
        """After a change of the graph."""
        self._now = _Look(self._index, self._run, self._here)

    def left_alone(self, mode: str) -> str:
        """Why; empty: it is packed."""
        names = self._now.names
        if mode != "on" and not any(name in names for name in updates(self._index, variables_on_ps(self._index))):
            return "a run that trains nothing"
        tied = tie(self._index, names)
        if tied:
            return f"a run that is tied to its session by a {tied}"
        return "" if self._now.units.ordered else "a run of which it is not known what follows what"

    def messages(self) -> int:
        return certain(self._now.crossings)

    def pack(self) -> str:
        """What was done, in words."""
        index, now = self._index, self._now
        targets = {op_name(one) for one in (*self._run.targets, *self._run.fetches)}
        straight = straighten(index, now.names, now.processes, now.units.loops, targets)
        self._look_again()
        now = self._now
        copied = copy_constants(index, now.crossings, self._run)
        spared = Aliases(index, now.processes, self._shapes, now.conditions, self._run).send_once(now.crossings)
        self._look_again()
        now = self._now
        self._answered = answered(index, now.units, now.processes)
        if ride(index, now.crossings, self._kind, self._patient, self._is_gradient):
            self._look_again()
            now = self._now
        readiness = Readiness(index, now.units, now.processes, now.crossings, self._heavy)
        self._answered = answered(index, now.units, now.processes)
        groups = [group for group in readiness.together(self._kind, self._patient) if len(group) > 1]
        tensors, messages = sum(map(len, groups)), len(groups)
        constants = Constants(index)
        for members in [list(map(self._member, group)) for group in groups]:  # all of them as the graph is now
            send(index, members, self._shapes, constants)
        self._look_again()
        return (
            f"{tensors} tensors in {messages}, {copied} constants not sent, {spared} sent once instead of twice, "
            f"{straight} waits told directly"
        )

    def _member(self, one: Crossing) -> Member:
        ids, row = self._shapes.looked_up(one.way.tensor) or ("", ())
        there = bool(ids) and op_name(ids) in self._now.names and self._now.processes.source(ids) == one.way.target
        return Member(one, self._sure(one), ids if there else "", row)

    def _sure(self, one: Crossing) -> tuple[int | None, ...]:
        """The shape as far as it is certain. With `set_shape` a script may say what only most batches have, of records above
        all: so the first dimension travels with the message, but of a variable's value."""
        shape = self._shape(one) or ()
        known = not shape or None in shape or self._shapes.is_variable(one.way.tensor)
        return shape if known else (None, *shape[1:])

    def _shape(self, one: Crossing) -> Shape:
        return self._shapes.of(one.way.tensor)

    def _kind(self, one: Crossing) -> Hashable | None:
        """Its type and the cases in which it is there; None: it travels alone."""
        if not one.known or one.way.tensor[0] == "^":
            return None
        loops, tensor = self._now.units.loops, one.way.tensor
        if one.op in loops or any(name in loops for name, _ in one.uses):
            return None
        cases, dtype, shape = self._now.conditions.of(tensor), self._shapes.dtype(tensor), self._shape(one)
        if cases is None or dtype is None or dtype not in TYPES or shape is None:
            return None
        if 0 in shape or shape.count(None) > 1:
            return None
        if None in shape[1:] and not self._shapes.is_variable(tensor):
            return None  # a size that is known may be that of most batches alone, and the other cannot be told then
        if dtype.size * elements(shape, self._rows) > TENSOR_BYTES_MAX:
            return None
        return dtype, cases

    def _patient(self, one: Crossing) -> bool:
        """Whether it is a small gradient: nothing comes back for it."""
        if any(name in self._answered for name, _ in one.uses):
            return False
        shape = self._shape(one) if on_ps(one.way.target) and not on_ps(one.source) else None
        dtype = self._shapes.dtype(one.way.tensor) if shape is not None and None not in shape else None
        return dtype is not None and shape is not None and dtype.size * elements(shape, 0) <= PATIENT_BYTES_MAX

    def _is_gradient(self, one: Crossing) -> bool:
        """Whether nothing comes back for it, and it may travel with others."""
        return not any(name in self._answered for name, _ in one.uses) and self._kind(one) is not None

    def _heavy(self, name: str) -> bool:
        node = self._index.nodes[name]
        if unfused(node.op) not in _PRODUCTS:
            return False
        left, right = (self._shapes.of(tensor) for tensor in self._index.inputs(name)[:2])
        if left is None or right is None or len(left) < 2 or len(right) < 2:
            return False
        turned = any(node.attr[flag].b for flag in ("transpose_b", "adj_y") if flag in node.attr)
        columns = right[-2] if turned else right[-1]
        return 2.0 * elements(left, self._rows) * (columns or self._rows) >= HEAVY_FLOPS
