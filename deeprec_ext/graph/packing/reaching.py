"""What one run reaches: its part of a graph, as TensorFlow cuts it out when the run is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph.index import GraphIndex, op_name

_PLACED_WITH = "loc:@"


@dataclass(frozen=True)
class Run:
    """By names: tensors that are fed, tensors that are fetched, operations that are run."""

    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    targets: tuple[str, ...]

    @cached_property
    def fed(self) -> frozenset[str]:
        """The tensors that are not computed."""
        return frozenset(map(full_name, self.feeds))


def full_name(tensor: str) -> str:
    """`a` and `a:0` are the same tensor; `^a` is none."""
    return tensor if tensor[0] == "^" or ":" in tensor else tensor + ":0"


def reached(index: GraphIndex, run: Run) -> set[str]:
    """Names of the nodes that the run executes, and of those whose outputs it is fed."""
    executed, given = executed_and_given(index, run)
    return executed | given


def executed_and_given(index: GraphIndex, run: Run) -> tuple[set[str], set[str]]:
    """Names of the nodes that the run executes, and of those of which it is fed an output; some may be both."""
    stack = [op_name(tensor) for tensor in (*run.fetches, *run.targets) if full_name(tensor) not in run.fed]
    executed, given = set(stack), set()
    while stack:
        for tensor in index.inputs(stack.pop()):
            name = op_name(tensor)
            if full_name(tensor) in run.fed:
                given.add(name)
            elif name not in executed:
                executed.add(name)
                stack.append(name)
    return executed, given


def part_of(index: GraphIndex, run: Run) -> GraphDef:
    """A copy of what the run needs, with the ops that would make what it is fed (TensorFlow wants their inputs to be there) and
    those that something is to be placed with."""
    definition = index.definition
    needed: set[str] = set()
    more = index.upstream((*run.fetches, *run.targets, *run.feeds))
    while more:
        needed |= more
        more = index.upstream({one for name in more for one in _placed_with(index.nodes[name])} - needed) - needed
    part = GraphDef(versions=definition.versions)
    part.node.extend(node for node in definition.node if node.name in needed)
    part.library.CopyFrom(definition.library)
    return part


def _placed_with(node: NodeDef) -> list[str]:
    """Names of ops."""
    places = node.attr["_class"].list.s if "_class" in node.attr else ()
    return [place.decode()[len(_PLACED_WITH) :] for place in places if place.startswith(_PLACED_WITH.encode())]
