"""TensorFlow's graph optimiser, once for each run instead of once for each view.

A run's part of the user's graph is optimised on slots, each of which is a device of its own. What is right on many devices is
right on fewer: a view then only says which PS each slot is on, and its session needs no optimiser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.protobuf.config_pb2 import GraphOptions

from deeprec_ext.graph.attributes import output_type
from deeprec_ext.graph.index import GraphIndex, op_name, output_number
from deeprec_ext.graph.packing.reaching import Run, part_of, reached
from deeprec_ext.graph.packing.shapes import Shape, Told, told_by
from deeprec_ext.graph.packing.staying import tie
from deeprec_ext.graph.placement import physical
from deeprec_ext.graph.seeds import mix
from deeprec_ext.tf_private.c_graph import import_definition
from deeprec_ext.tf_private.grappler import only_processors, optimise, question
from deeprec_ext.tf_private.sessions import add_python_operations

NAME = "optimiser"
"""Of the line in the reports."""

_PROCESSOR = "/device:CPU:0"
_PROCESS = re.compile(r"^/job:([^/]+)(?:/replica:(\d+))?(?:/task:(\d+))?(?=/device:|$)")

Usually = Callable[[Callable[[], Any]], Any]
"""Has something done, and gives its result."""


@dataclass(frozen=True)
class Optimised:
    """A run, on slots."""

    definition: bytes
    """Of a GraphDef: its part of the graph, under the names of the user's graph where nothing was changed."""

    shapes: dict[str, Shape]
    """Of the tensors of ops that the optimiser has changed or added, as far as TensorFlow knows them."""

    before: int
    """Ops of its part of the graph."""

    operations: int
    """That are left."""

    def told(self, told: Told) -> Told:
        """What is known of its tensors.

        Args:
          told: what the user's graph tells.
        """
        return lambda tensor: self.shapes[tensor] if tensor in self.shapes else told(tensor)

    def placed(self, slot_map: tuple[int, ...], swaps: int) -> GraphDef:
        """On the PS of a view, drawing as the session of that number does."""
        definition = GraphDef.FromString(self.definition)
        place(definition, slot_map, swaps)
        return definition


def place(definition: GraphDef, slot_map: tuple[int, ...], swaps: int) -> None:
    """Changes a graph on slots to one on the PS of a view."""
    places: dict[str, str] = {}
    for node in chain(definition.node, *(function.node_def for function in definition.library.function)):
        if node.device not in places:
            places[node.device] = physical(node.device, slot_map)
        node.device = places[node.device]
    if swaps:
        mix(definition, swaps)


def optimise_run(
    index: GraphIndex, run: Run, options: GraphOptions, usually: Usually = lambda work: work()
) -> Optimised | str:
    """
    Args:
      index: of the user's graph with all passes applied, on slots; not changed.
      options: what the session's ConfigProto says of graphs.
      usually: by whom what is done in Python is done: who asks may have a lower priority.

    Returns what became of the run, or why it is left to the optimiser of its session. Raises what TensorFlow raises where its
    optimiser does not take the graph.
    """
    if options.rewrite_options.disable_meta_optimizer:
        return "the script has switched it off"
    if not only_processors():
        return "this process has other devices than processors, and only a session knows what it puts on them"
    found = usually(lambda: _question(index, run))
    if isinstance(found, str):
        return found
    made = optimise(found.asked, found.devices, options)
    return usually(lambda: _answer(made, found.part))


@dataclass(frozen=True)
class _Question:
    part: GraphDef
    asked: Any
    devices: list[str]


def _question(index: GraphIndex, run: Run) -> _Question | str:
    tied = tie(index, reached(index, run))
    if tied:
        return f"a run that is tied to its session by a {tied}"
    part = part_of(index, run)
    for node in part.node:
        node.device = _full(node.device or _device_beside(index, node))
    devices = sorted({node.device for node in part.node})
    if not all(device.endswith(_PROCESSOR) for device in devices):
        return "a run with ops of which nobody has said where they run, or on other devices than processors"
    feeds = {tensor: output_type(index.nodes[op_name(tensor)], output_number(tensor)) for tensor in sorted(run.fed)}
    if not all(feeds.values()) or any(map(output_number, feeds)):
        return "a run that is fed a reference, or another output than the first"  # the optimiser would not know of it
    return _Question(part, question(part, feeds, dict.fromkeys((*run.fetches, *run.targets))), devices)


def _device_beside(index: GraphIndex, node: NodeDef) -> str:
    """Of what TensorFlow keeps an op with that has none: the optimiser does not know, and a session's placer comes later."""
    seen: set[str] = set()
    ways = [node.name]
    while ways:
        node = index.nodes[ways.pop()]
        if node.device:
            return str(node.device)
        if node.name not in seen:
            seen.add(node.name)
            ways += [name for name in _beside(index, node) if name in index.nodes]
    return ""


def _beside(index: GraphIndex, node: NodeDef) -> Iterator[str]:
    """What it is placed with, by the script's word, and whose handle or reference it takes."""
    if "_class" in node.attr:
        yield from (place.decode().partition("loc:@")[2] for place in node.attr["_class"].list.s)
    for tensor in index.inputs(node.name):
        if tensor[0] != "^":
            kind = output_type(index.nodes[op_name(tensor)], output_number(tensor))
            if kind in (types_pb2.DT_INVALID, types_pb2.DT_RESOURCE):
                yield op_name(tensor)


def _answer(made: GraphDef, part: GraphDef) -> Optimised:
    for node in made.node:
        if node.device.startswith("/job:") and "_class" in node.attr:
            del node.attr["_class"]  # where the op is to be is known
    return Optimised(made.SerializeToString(), dict(_changed(made, part)), len(part.node), len(made.node))


def _full(device: str) -> str:
    """As the optimiser wants it: with all of its parts; as it is, where it names no process, or another device."""
    match = _PROCESS.match(device)
    if match is None:
        return device
    job, replica, task = match.groups()
    kind = device[match.end() :] or _PROCESSOR
    return f"/job:{job}/replica:{replica or 0}/task:{task or 0}{kind}"


def _changed(made: GraphDef, part: GraphDef) -> Iterator[tuple[str, Shape]]:
    """The tensors of ops that are not what they were; what a name stood for, it need not stand for any more."""
    before = {node.name: (node.op, list(node.input)) for node in part.node}
    graph = tf.Graph()
    import_definition(graph, made)
    add_python_operations(graph)
    told = told_by(graph)
    for node in made.node:
        if before.get(node.name) != (node.op, list(node.input)):
            for output in graph.get_operation_by_name(node.name).outputs:
                yield output.name, told(output.name)
