"""Slot placement: `/job:ps/task:<slot>` becomes `/job:ps/task:<PS that owns the slot>`.

The user's graph is built for S slots and never changed; which PS serves a slot is decided when a session is prepared.
Whole slots move, so colocation constraints (`_class`) stay valid. Device strings are few and nodes are many:
each distinct string is rewritten once.
"""

from __future__ import annotations

import re
from itertools import chain

from deeprec_ext import errors
from deeprec_ext.graph.context import Context
from deeprec_ext.graph.index import on_ps, task_of, with_task
from deeprec_ext.graph.rewriting import Rewriting

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
        target = "no cluster" if slot_map is None else f"{len(slot_map)} slots on {len(set(slot_map))} PS"
        return changed, f"{len(places) - 1} device strings, {target}"
