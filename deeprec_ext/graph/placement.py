"""Slot placement: `/job:ps/task:<slot>` becomes `/job:ps/task:<PS that owns the slot>`.

The user's graph is built for S slots and never changed; which PS serves a slot is decided when a session is prepared.
Whole slots move, so colocation constraints (`_class`) stay valid. Device strings are few and nodes are many:
each distinct string is rewritten once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain

from tensorflow.core.framework import types_pb2
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext import errors
from deeprec_ext.graph.attributes import output_type
from deeprec_ext.graph.context import Context
from deeprec_ext.graph.dedup_gather import process_of
from deeprec_ext.graph.index import GraphIndex, on_ps, op_name, output_number, task_of, with_task
from deeprec_ext.graph.rewriting import Rewriting
from deeprec_ext.tf_private.operations import op_def

_CALLS = frozenset(
    {
        "PartitionedCall",
        "StatefulPartitionedCall",
        "While",
        "StatelessWhile",
        "If",
        "StatelessIf",
        "Case",
        "StatelessCase",
    }
)
"""These take handles of any process: ops of their functions are placed one by one. (A dataset whose functions read what is in
another process is one that TensorFlow cannot run.)"""

_PLACE = re.compile(r"/(?:job|replica|task):[^/]*")


def physical(device: str, slot_map: tuple[int, ...] | None) -> str:
    """The device string of a user's graph in the cluster of `slot_map`."""
    if slot_map is None:
        return _PLACE.sub("", device)
    if not on_ps(device):
        return device
    slot = task_of(device)
    if slot >= len(slot_map):
        raise errors.RefusedError(
            f"the script places ops on {device}, but the job has {len(slot_map)} slots; "
            "take the number of parameter servers from TF_CONFIG, or run with more --slots"
        )
    return with_task(device, slot_map[slot])


class SlotPlacement:
    """Pass 1; also inside library functions. Without a cluster it takes job, replica and task away."""

    name = "placement"

    def applies(self, context: Context) -> bool:
        return True

    def apply(self, rewriting: Rewriting) -> tuple[int, str]:
        slot_map = rewriting.context.slot_map
        places: dict[str, str] = {"": ""}
        changed = 0
        definition = rewriting.definition
        for node in chain(definition.node, *(function.node_def for function in definition.library.function)):
            device = node.device
            place = places.get(device)
            if place is None:
                place = places[device] = physical(device, slot_map)
            if place != device:
                node.device = place
                changed += 1
        return changed, f"{len(places) - 1} device strings, {target_of(slot_map)}"


def target_of(slot_map: tuple[int, ...] | None) -> str:
    """In words."""
    return "no cluster" if slot_map is None else f"{len(slot_map)} slots on {len(set(slot_map))} PS"


class Home:
    """Pass 2: ops for which nobody has said a device run in this process, as with TensorFlow's own servers.

    A session that is told its cluster takes the first process by name: the chief comes before the PS, a worker behind them. So
    the input of a worker, made outside of the script's device block, would be read on a PS, and its Python functions looked for
    there. What TensorFlow keeps together (by constraint, or because it passes on a handle or a reference) stays where one of it
    has been placed.
    """

    name = "home"

    def applies(self, context: Context) -> bool:
        return context.slot_map is not None and bool(context.worker_device)

    def apply(self, rewriting: Rewriting) -> tuple[int, str]:
        index, here = rewriting.index, rewriting.context.worker_device
        seen: set[str] = set()
        moved = 0
        for node in rewriting.definition.node:
            if node.name in seen or _is_placed(node):
                continue
            group, elsewhere = _kept_together(index, node.name, here)
            seen |= group
            for one in [] if elsewhere else [index.nodes[name] for name in group]:
                if not _is_placed(one):
                    one.device = here + _PLACE.sub("", one.device)
                    moved += 1
        return moved, f"{moved} ops without a device run here"


def _is_placed(node: NodeDef) -> bool:
    return "/job:" in node.device


def _kept_together(index: GraphIndex, name: str, here: str) -> tuple[set[str], bool]:
    """The ops that TensorFlow keeps in one place with this one, and whether that is elsewhere; then as far as is known."""
    stack, found = [name], {name}
    while stack:
        node = index.nodes[stack.pop()]
        if _is_placed(node) and process_of(node.device) != here:
            return found, True
        if node.op in _CALLS and next(_takers(index, node), None) is not None:
            return found, True  # what a function makes may be anywhere
        for other in _beside(index, node):
            if other not in found:
                found.add(other)
                stack.append(other)
    return found, False


def _beside(index: GraphIndex, node: NodeDef) -> Iterable[str]:
    if "_class" in node.attr:
        for group in (place.decode()[len("loc:@") :] for place in node.attr["_class"].list.s):
            yield from (other.name for other in index.colocated_with(group))
            if group in index.nodes:
                yield group
    yield from (other.name for other in index.colocated_with(node.name))
    for tensor in index.inputs(node.name) if node.op not in _CALLS else ():
        if tensor[0] != "^" and _is_handle(index, tensor):
            yield op_name(tensor)
    yield from _takers(index, node)


def _takers(index: GraphIndex, node: NodeDef) -> Iterator[str]:
    """Of a handle that it gives, but for `_CALLS`."""
    for consumer, number in index.consumers(node.name) if _may_give(node.op) else ():
        tensor = index.inputs(consumer.name)[number]
        if tensor[0] != "^" and consumer.op not in _CALLS and _is_handle(index, tensor):
            yield consumer.name


def _is_handle(index: GraphIndex, tensor: str) -> bool:
    """Or a reference, or nobody knows."""
    node = index.nodes.get(op_name(tensor))
    if node is None or not _may_give(node.op):
        return False
    return output_type(node, output_number(tensor)) in (types_pb2.DT_INVALID, types_pb2.DT_RESOURCE)


@lru_cache(maxsize=4096)
def _may_give(op: str) -> bool:
    """Whether an op of this kind may have a handle or a reference among its outputs; of unknown ones, too."""
    definition = op_def(op)
    return definition is None or any(
        one.is_ref or one.type == types_pb2.DT_RESOURCE or one.type_attr or one.type_list_attr
        for one in definition.output_arg
    )
