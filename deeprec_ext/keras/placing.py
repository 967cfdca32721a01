"""Where the ops of a captured step run: what takes a handle beside its variable, an optimizer's arithmetic too, the rest here.

Keras's optimizers are written value by value (`m.assign_add((g - m) * (1 - beta))`). Done in the worker, moments would travel
to it and back in each step; done on the PS, only the gradient travels, as to a fused op of TensorFlow 1. Two rules, over data:

1. what is computed from an optimizer's state, value by value, and is of no use but for writing to that PS, is computed there;
2. so is what only that needs of a tensor that travels to that PS anyway, or would travel twice (a gradient's square, and the
   gradient times the learning rate); and rows are put into a whole of zeros where that is wanted.

Pure: a GraphDef is changed in place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import GraphIndex
from deeprec_ext.graph.index import op_name

HERE = "/job:worker"
"""Whichever trainer runs it."""

HANDS_ON = frozenset({"Identity", "Enter", "Exit", "Switch", "Merge", "NextIteration"})
"""Ops that give a handle on as it is."""
VALUE_BY_VALUE = frozenset(
    "Abs Add AddN AddV2 Cast DeepCopy Div DivNoNan Exp Identity Log Maximum Minimum Mul MulNoNan Neg OnesLike Pow RealDiv "
    "Reciprocal Rsqrt Select SelectV2 Sigmoid Sign Sqrt Square SquaredDifference StopGradient Sub Tanh ZerosLike".split()
)
_OF_CONSTANTS = frozenset({"Cast", "Identity", "Pack", "StridedSlice"})


_FAR = 24
"""Ops looked at to see that something is one number."""


@dataclass(frozen=True)
class Use:
    """What a step does with one handle."""

    takers: tuple[str, ...]
    """Ops that take the handle itself, sorted."""
    conditional: bool
    """It is handed on into a condition or a loop."""


def uses(index: GraphIndex, placeholder: str) -> Use:
    """Handles are followed through what hands them on."""
    takers, conditional = set(), False
    stack, seen = [placeholder], {placeholder}
    while stack:
        name = stack.pop()
        for consumer, number in index.consumers(name):
            if index.inputs(consumer.name)[number][0] == "^":
                continue
            takers.add(consumer.name)
            if consumer.op in HANDS_ON and consumer.name not in seen:
                conditional = conditional or consumer.op != "Identity"
                seen.add(consumer.name)
                stack.append(consumer.name)
    return Use(tuple(sorted(takers)), conditional)


def place(
    index: GraphIndex, homes: Mapping[str, str], state: Collection[str], numbers: Collection[str], kept: Collection[str]
) -> None:  # fmt: skip
    """Gives every node a device.

    Args:
      homes: placeholder of a handle -> device of its variable.
      state: placeholders of what optimizers keep, but for single numbers.
      numbers: placeholders of variables that are single numbers.
      kept: names of ops whose results leave the step.
    """
    placed: dict[str, str] = {}
    for placeholder, device in homes.items():
        placed.update(dict.fromkeys(uses(index, placeholder).takers, device))
    roots = {name for placeholder in state for name in uses(index, placeholder).takers}
    moved = _of_state(index, placed, roots)
    _keep_useful(index, placed, moved, kept)
    _Gathering(index, placed, moved, numbers, kept).gather()
    moved.update(_constants(index, {**placed, **moved}, kept))
    for node in index.nodes.values():
        node.device = moved.get(node.name) or placed.get(node.name) or HERE + _accelerator(node)
        node.attr.pop("_class", None)  # it may name what is outside of the step


def _accelerator(node: NodeDef) -> str:
    """What the script asked for by itself; what a trace notes by itself names the device of all."""
    spec = tf.DeviceSpec.from_string(node.device)
    return f"/device:{spec.device_type}:{spec.device_index or 0}" if spec.device_type not in (None, "CPU") else ""


def _constants(index: GraphIndex, there: Mapping[str, str], kept: Collection[str]) -> dict[str, str]:
    """Those that one PS alone needs are there."""
    found = {}
    for name, node in index.nodes.items():
        if node.op == "Const" and name not in kept:
            devices = {there.get(user) for user in _users(index, name)}
            device = devices.pop() if len(devices) == 1 else None
            if device is not None:
                found[name] = device
    return found


def _of_state(index: GraphIndex, placed: Mapping[str, str], roots: Collection[str]) -> dict[str, str]:
    """What follows from an optimizer's state of one PS, value by value."""
    found: dict[str, str] = {}
    waiting = [name for name in roots if placed.get(name, "").startswith("/job:ps")]
    while waiting:
        name = waiting.pop()
        device = found.get(name) or placed[name]
        for consumer, number in index.consumers(name):
            if index.inputs(consumer.name)[number][0] == "^" or consumer.name in placed or consumer.name in found:
                continue
            if consumer.op in VALUE_BY_VALUE:
                found[consumer.name] = device
                waiting.append(consumer.name)
    return found


def _keep_useful(index: GraphIndex, placed: Mapping[str, str], found: dict[str, str], kept: Collection[str]) -> None:
    """Drops what somebody else needs, or another PS."""
    while True:
        wrong = [
            name for name, device in found.items()
            if name in kept or not _only_for(index, name, device, placed, found)
        ]  # fmt: skip
        if not wrong:
            return
        for name in wrong:
            del found[name]


def _only_for(index: GraphIndex, name: str, device: str, placed: Mapping[str, str], moved: Mapping[str, str]) -> bool:
    users = _users(index, name)
    return bool(users) and all((moved.get(user) or placed.get(user)) == device for user in users)


def _users(index: GraphIndex, name: str) -> list[str]:
    """Of its values; who only waits for it is none."""
    return [
        consumer.name
        for consumer, number in index.consumers(name)
        if index.inputs(consumer.name)[number][0] != "^"
    ]  # fmt: skip


class _Gathering:
    """The second rule. `moved` grows."""

    def __init__(
        self, index: GraphIndex, placed: Mapping[str, str], moved: dict[str, str], numbers: Collection[str],
        kept: Collection[str],
    ) -> None:  # fmt: skip
        self._index, self._placed, self._moved, self._numbers, self._kept = index, placed, moved, numbers, kept

    def gather(self) -> None:
        grown = True
        while grown:
            grown = False
            by_source: dict[tuple[str, str], set[str]] = {}
            for name, device in self._candidates():
                source = self._source(name, device)
                if source is not None:
                    by_source.setdefault((source, device), set()).add(name)
            for (source, device), names in by_source.items():
                if not source or len(names) > 1 or self._travels(source, device, names):
                    self._moved.update(dict.fromkeys(names, device))
                    grown = True

    def _candidates(self) -> list[tuple[str, str]]:
        """What is computed here value by value, or made of rows, and of which one PS alone has use."""
        there = {**self._placed, **self._moved}
        devices = {name: device for name, device in there.items() if device.startswith("/job:ps")}
        before = {op_name(tensor) for name in devices for tensor in self._index.inputs(name) if tensor[0] != "^"}
        found = []
        for name in before - there.keys() - set(self._kept):
            users = {there.get(user) for user in _users(self._index, name)}
            near = self._index.nodes[name].op in VALUE_BY_VALUE or makes_whole(self._index, name)
            if near and len(users) == 1 and None not in users:
                found.append((name, users.pop() or ""))
        return found

    def _source(self, name: str, device: str) -> str | None:
        """The one tensor that would have to travel instead, empty if there is none; None: several would."""
        if makes_whole(self._index, name):
            return ""  # its rows are fewer
        sources = set()
        for tensor in self._index.inputs(name):
            before = op_name(tensor)
            here = tensor[0] != "^" and (self._moved.get(before) or self._placed.get(before)) != device
            if here and not is_number(self._index, before, self._numbers):
                sources.add(tensor)
        return None if len(sources) > 1 else "".join(sources)

    def _travels(self, source: str, device: str, names: Collection[str]) -> bool:
        return any(
            (self._moved.get(consumer.name) or self._placed.get(consumer.name)) == device
            for consumer, number in self._index.consumers(op_name(source))
            if self._index.inputs(consumer.name)[number] == source and consumer.name not in names
        )


def makes_whole(index: GraphIndex, name: str) -> bool:
    """Whether it puts rows into a whole of zeros, of a size that is known."""
    return index.nodes[name].op == "UnsortedSegmentSum" and _is_constant(index, op_name(index.inputs(name)[2]))


def _is_constant(index: GraphIndex, name: str) -> bool:
    inputs = [op_name(tensor) for tensor in index.inputs(name) if tensor[0] != "^"]
    op = index.nodes[name].op
    return op == "Const" or (op in _OF_CONSTANTS and all(_is_constant(index, one) for one in inputs))


def is_number(index: GraphIndex, name: str, numbers: Collection[str], depth: int = 0) -> bool:
    """Whether it certainly has no dimensions: it follows from constants and variables without.

    Args:
      numbers: placeholders of handles of variables that are single numbers.
    """
    node = index.nodes[name]
    if node.op == "Const":
        shape = node.attr["value"].tensor.tensor_shape
        return not shape.dim and not shape.unknown_rank
    inputs = [tensor for tensor in index.inputs(name) if tensor[0] != "^"]
    if node.op == "ReadVariableOp":
        return handle_of(index, inputs[0]) in numbers
    if depth > _FAR or not inputs or node.op not in VALUE_BY_VALUE:
        return False
    return all(is_number(index, op_name(tensor), numbers, depth + 1) for tensor in inputs)


def handle_of(index: GraphIndex, tensor: str) -> str:
    """Where a handle comes from that was handed on."""
    name = op_name(tensor)
    while index.nodes[name].op in ("Identity", "Switch", "Enter"):
        name = op_name(index.inputs(name)[0])
    return name
