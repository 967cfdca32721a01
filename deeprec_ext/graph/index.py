"""Who feeds whom in a GraphDef: the maps that the passes and the catalogue share.

Graphs have up to 18 000 nodes and the passes run in a thread that competes with training for the interpreter, so a
graph is walked once to build the maps, and everything else is a lookup.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Any

from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

_TASK = re.compile(r"/task:(\d+)")


def op_name(tensor: str) -> str:
    """`^a`, `a`, `a:1` -> `a`."""
    if tensor[0] == "^":
        return tensor[1:]
    head, colon, _ = tensor.rpartition(":")
    return head if colon else tensor


def output_number(tensor: str) -> int:
    """`a` -> 0, `a:1` -> 1."""
    _, colon, number = tensor.rpartition(":")
    return int(number) if colon else 0


def on_ps(device: str) -> bool:
    """Whether a device string names a parameter server (in a user's graph: a slot)."""
    return device.startswith("/job:ps/") or device == "/job:ps"


def task_of(device: str) -> int:
    """The task number in a device string; a device without one is placed on task 0 by TensorFlow."""
    match = _TASK.search(device)
    return int(match[1]) if match else 0


def with_task(device: str, task: int) -> str:
    """A device of a parameter server on another task."""
    if "/task:" not in device:
        return device.replace("/job:ps", f"/job:ps/task:{task}", 1)
    return _TASK.sub(f"/task:{task}", device)


class GraphIndex:
    """Nodes by name and their consumers. Nodes added through `add` are indexed as well."""

    def __init__(self, definition: GraphDef) -> None:
        self.definition = definition
        self.nodes: dict[str, NodeDef] = {}
        self._inputs: dict[str, list[str]] = {}
        self._consumers: dict[str, list[tuple[NodeDef, int]]] | None = None
        self._functions: dict[str, Any] | None = None
        self._colocated: dict[str, list[NodeDef]] | None = None
        nodes, inputs = self.nodes, self._inputs
        for node in definition.node:
            name = node.name
            nodes[name] = node
            inputs[name] = list(node.input)

    @property
    def functions(self) -> dict[str, Any]:
        """Library functions by name."""
        if self._functions is None:
            self._functions = {function.signature.name: function for function in self.definition.library.function}
        return self._functions

    @cached_property
    def has_frames(self) -> bool:
        """Whether there is a while loop of TensorFlow 1 in the main graph."""
        return any(node.op in ("Enter", "RefEnter") for node in self.nodes.values())

    def inputs(self, name: str) -> list[str]:
        """The inputs of a node as strings, control inputs (`^op`) last."""
        return self._inputs[name]

    def consumers(self, name: str) -> list[tuple[NodeDef, int]]:
        """(node, number of the input) for every use of any output of a node, control inputs included."""
        if self._consumers is None:
            found: dict[str, list[tuple[NodeDef, int]]] = {}
            nodes = self.nodes
            for consumer, tensors in self._inputs.items():
                for number, tensor in enumerate(tensors):
                    found.setdefault(op_name(tensor), []).append((nodes[consumer], number))
            self._consumers = found
        return self._consumers.get(name, [])

    def colocated_with(self, name: str) -> list[NodeDef]:
        """Nodes with a colocation constraint that names this one."""
        if self._colocated is None:
            found: dict[str, list[NodeDef]] = {}
            for node in self.nodes.values():
                if "_class" in node.attr:
                    for constraint in node.attr["_class"].list.s:
                        found.setdefault(constraint.decode()[5:], []).append(node)  # loc:@name
            self._colocated = found
        return self._colocated.get(name, [])

    def upstream(self, names: Iterable[str]) -> set[str]:
        """All nodes that these ops or tensors depend on, themselves included; unknown ones are ignored."""
        inputs = self._inputs
        stack = [name for name in map(op_name, names) if name in inputs]
        seen = set(stack)
        while stack:
            for tensor in inputs[stack.pop()]:
                name = op_name(tensor)
                if name not in seen and name in inputs:
                    seen.add(name)
                    stack.append(name)
        return seen

    def unique_name(self, wanted: str) -> str:
        """`wanted`, or `wanted_1`, ... if the graph has a node of that name."""
        name, number = wanted, 0
        while name in self.nodes:
            number += 1
            name = f"{wanted}_{number}"
        return name

    def add(self, wanted: str, op: str, device: str, inputs: Collection[str] = (), **attributes: Any) -> NodeDef:
        """Appends a node (its name made unique); attributes are AttrValues."""
        node = self.definition.node.add(name=self.unique_name(wanted), op=op, device=device, input=inputs)
        for key, value in attributes.items():
            node.attr[key].CopyFrom(value)
        self.nodes[node.name] = node
        self._inputs[node.name] = list(inputs)
        for number, tensor in enumerate(inputs):
            self._note(node, number, tensor)
        return node

    def add_control(self, node: NodeDef, before: str) -> None:
        """Makes `node` wait for the op `before`."""
        self._append(node, "^" + before)

    def set_input(self, node: NodeDef, number: int, tensor: str) -> None:
        """Exchanges one input; the consumers of the old one are corrected."""
        self._forget(node, number)
        node.input[number] = tensor
        self._inputs[node.name][number] = tensor
        self._note(node, number, tensor)

    def keep_controls(self, node: NodeDef, kept: Collection[str]) -> None:
        """Drops all control inputs but these (`^op`)."""
        inputs = [tensor for tensor in self._inputs[node.name] if tensor[0] != "^" or tensor in kept]
        for number in range(len(node.input)):
            self._forget(node, number)
        del node.input[:]
        node.input.extend(inputs)
        self._inputs[node.name] = inputs
        for number, tensor in enumerate(inputs):
            self._note(node, number, tensor)

    def replace(self, node: NodeDef, op: str, device: str, inputs: Collection[str], **attributes: Any) -> None:
        """Makes another op of a node; name and consumers stay."""
        for number in range(len(node.input)):
            self._forget(node, number)
        del node.input[:]
        node.op, node.device = op, device
        node.attr.clear()
        for key, value in attributes.items():
            node.attr[key].CopyFrom(value)
        self._inputs[node.name] = []
        for tensor in inputs:
            self._append(node, tensor)

    def _append(self, node: NodeDef, tensor: str) -> None:
        tensors = self._inputs[node.name]
        if tensor[0] != "^" or tensor not in tensors:
            node.input.append(tensor)
            tensors.append(tensor)
            self._note(node, len(tensors) - 1, tensor)

    def _forget(self, node: NodeDef, number: int) -> None:
        if self._consumers is not None:
            users = self._consumers[op_name(node.input[number])]
            users[:] = [(n, i) for n, i in users if not (i == number and n.name == node.name)]

    def _note(self, node: NodeDef, number: int, tensor: str) -> None:
        if self._consumers is not None:
            self._consumers.setdefault(op_name(tensor), []).append((node, number))
