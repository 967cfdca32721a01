"""What each op of a training step is for: which slot it works on, whether it looks up or updates, how many rows.

Known before any step is traced, from the user's graph (devices are slots) and from its placed copy (what really runs).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex, on_ps, op_name, output_number, task_of
from deeprec_ext.graph.marks import PACKING
from deeprec_ext.graph.writes import REFERENCE_VARIABLES, RESOURCE_VARIABLES, writes_rows

LOOKUP, UPDATE, INPUT = "lookup", "update", "input"

_GATHERS = frozenset({"ResourceGather", "ResourceGatherNd", "Gather", "GatherV2", "GatherNd"})
_READS = frozenset({"ReadVariableOp", "_ReadVariablesOp"})
_HANDS_ON = frozenset({"Identity", "ReadVariableOp", "Enter", "Switch", "RefEnter", "RefSwitch", "RefIdentity"})
_WAITS = frozenset({
    "IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional", "QueueDequeue", "QueueDequeueV2",
    "QueueDequeueMany", "QueueDequeueManyV2", "QueueDequeueUpTo", "QueueDequeueUpToV2", "ReaderRead", "ReaderReadV2",
    "ReaderReadUpTo", "ReaderReadUpToV2", "Unstage", "GeneratorDatasetGetNext",
})  # fmt: skip
_FREE = frozenset({"Const", "NoOp", "Placeholder", *RESOURCE_VARIABLES, *REFERENCE_VARIABLES})
"""Make handles or constants: they work on nothing."""

_SAME_SIZE = frozenset({"Identity", "Reshape", "Cast", "ExpandDims", "Squeeze"})

_INSTEAD = re.compile(r"-(unpacked|copy)(_\d+)?$")  # `packing.sparing.instead`

_FAR = 16
"""Nodes looked at in the search for the slot of an op that a pass has added."""


@dataclass(frozen=True)
class Site:
    """One op of the placed graph."""

    name: str
    """Of the op of the user's graph that it stands for."""
    slot: int = -1
    """Whose variables it works on, on the PS; -1: none, it runs on the trainer."""
    kind: str = ""
    """LOOKUP, UPDATE (also what is computed on the PS for an update), INPUT, or empty."""
    row_elements: int = 0
    """A gather: elements of one row; so many of its output are one row. 0: it reads no rows."""
    indices: tuple[tuple[str, int], ...] = ()
    """A write by rows: op and output number of tensors with an element for each row; one of them will be in the trace."""
    row_bytes: int = 0
    """A write by rows: bytes of one row, over all variables it writes."""
    bytes: int | None = None
    """What it moves, where that is known beforehand; None: what it gives is what it moves."""


def sites(user: GraphIndex, placed: GraphIndex, names: Iterable[str]) -> dict[str, Site]:
    """Every op that running `names` needs and about which there is something to know, by its name in the placed graph.

    Args:
      user: the user's graph, on slots.
      placed: the same graph as the passes left it, on PS.
    """
    found = {}
    needed = placed.upstream(names)
    finder = _Finder(user, placed, needed)
    for name in needed:
        node = placed.nodes[name]
        if PACKING in node.attr:
            found[name] = Site(finder.shown(name))
        elif finder.runs_on_ps(node):
            if node.op not in _FREE and (slot := finder.slot(name)) >= 0:
                found[name] = finder.on_slot(node, slot)
        elif node.op in _WAITS:
            found[name] = Site(finder.shown(name), kind=INPUT)
        elif name not in user.nodes:
            found[name] = Site(finder.shown(name))
    return found


class _Finder:
    def __init__(self, user: GraphIndex, placed: GraphIndex, needed: Iterable[str]) -> None:
        self._user, self._placed = user, placed
        self._variables: dict[str, NodeDef | None] = {}
        handles = [n for n in map(placed.nodes.__getitem__, needed) if n.op in RESOURCE_VARIABLES and on_ps(n.device)]
        # TensorFlow runs what takes a handle where the variable is, whatever device the op asks for.
        self._held = {consumer.name: handle.name for handle in handles for consumer, _ in placed.consumers(handle.name)}

    def runs_on_ps(self, node: NodeDef) -> bool:
        return on_ps(node.device) or node.name in self._held

    def shown(self, name: str) -> str:
        """Passes name what they add after the op they add it for, with two underscores or a dash between."""
        base = name if name in self._user.nodes else _INSTEAD.sub("", name)
        while base not in self._user.nodes and "__" in base:
            base = base.rpartition("__")[0]
        return base if base in self._user.nodes else name

    def slot(self, name: str) -> int:
        """Of the op in the user's graph; of one that a pass added, that of the nearest op it depends on. -1: unknown."""
        stack, seen = [self._held.get(name, name), name], {name}
        while stack and len(seen) <= _FAR:
            current = stack.pop(0)
            known = self._user.nodes.get(current)
            if known is not None and on_ps(known.device):
                return task_of(known.device)
            for tensor in self._placed.inputs(current):
                before = op_name(tensor)
                node = self._placed.nodes.get(before)
                if node is not None and on_ps(node.device) and before not in seen:
                    seen.add(before)
                    stack.append(before)
        return -1

    def on_slot(self, node: NodeDef, slot: int) -> Site:
        shown = self.shown(node.name)
        if node.op in _GATHERS:
            variable = self._variable(self._placed.inputs(node.name)[0])
            return Site(shown, slot, LOOKUP, row_elements=_row_elements(variable) if variable is not None else 0)
        if self._reads_whole(node):
            followers = [consumer for consumer, _ in self._placed.consumers(node.name)]
            stays = bool(followers) and all(map(self.runs_on_ps, followers))
            return Site(shown, slot, LOOKUP, bytes=0 if stays else None)  # a read is no copy
        written = self._written(node)
        at = attributes.input_of(node, "indices") if writes_rows(node.op) else None
        if at is not None and written:
            indices = self._of_same_size(self._placed.inputs(node.name)[at])
            row_bytes = sum(_row_elements(one) * _element_bytes(one) for one in written)
            return Site(shown, slot, UPDATE, indices=indices, row_bytes=row_bytes)
        return Site(shown, slot, UPDATE, bytes=sum(_elements(one) * _element_bytes(one) for one in written))

    def _reads_whole(self, node: NodeDef) -> bool:
        if node.op in _READS:
            return True
        inputs = self._placed.inputs(node.name)
        return node.op == "Identity" and self._placed.nodes[op_name(inputs[0])].op in REFERENCE_VARIABLES

    def _of_same_size(self, tensor: str) -> tuple[tuple[str, int], ...]:
        """The tensor, and those it was made of without a change of size: TensorFlow optimises such ops away."""
        found = []
        while True:
            name = op_name(tensor)
            found.append((name, output_number(tensor)))
            if self._placed.nodes[name].op not in _SAME_SIZE or len(found) >= _FAR:
                return tuple(found)
            tensor = self._placed.inputs(name)[0]

    def _written(self, node: NodeDef) -> list[NodeDef]:
        """The variables of the user's graph whose handle or reference an op takes; it is no read, so it writes them."""
        found = {}
        for number, tensor in enumerate(self._placed.inputs(node.name)):
            variable = self._variable(tensor) if tensor[0] != "^" else None
            if variable is None or variable.name not in self._user.nodes:
                continue
            argument = attributes.argument(node, number)
            if variable.op in RESOURCE_VARIABLES or (argument is not None and argument.is_ref):
                found[variable.name] = variable
        return list(found.values())

    def _variable(self, tensor: str) -> NodeDef | None:
        """The variable that a tensor is the handle, the reference or the value of."""
        name = op_name(tensor)
        if name not in self._variables:
            self._variables[name] = None  # a loop in the graph leads nowhere
            node = self._placed.nodes[name]
            if node.op in RESOURCE_VARIABLES or node.op in REFERENCE_VARIABLES:
                self._variables[name] = node
            elif node.op in _HANDS_ON:
                self._variables[name] = self._variable(self._placed.inputs(name)[0])
        return self._variables[name]


def _dimensions(variable: NodeDef) -> list[int]:
    """Empty for a scalar; unknown ones are 0."""
    return [max(0, dimension.size) for dimension in variable.attr["shape"].shape.dim]


def _elements(variable: NodeDef) -> int:
    return math.prod(_dimensions(variable))


def _row_elements(variable: NodeDef) -> int:
    return math.prod(_dimensions(variable)[1:])


def _element_bytes(variable: NodeDef) -> int:
    dtype = tf.as_dtype(variable.attr["dtype"].type).base_dtype
    return 0 if dtype in (tf.string, tf.variant, tf.resource) else dtype.size
