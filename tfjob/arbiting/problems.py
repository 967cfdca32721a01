"""What is wrong with a job in this cluster, said with its figures: a class that there is not, a least size that never fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from deeprec_ext.arbiter.observed import Job, Resources
from deeprec_ext.units import counted, few, sized
from tfjob.arbiting.amounts import added, as_numbers, lacking, resources, shown, times
from tfjob.arbiting.bidders import CHIEF, Bidder, Classes
from tfjob.arbiting.observing import Seen, hard_limits, key_of
from tfjob.arbiting.reach import admits
from tfjob.arbiting.seen import Reach
from tfjob.model.events import Event

NO_CLASS, NEVER_FITS, UNREAD, NO_RIGHTS = "NoPriorityClass", "NeverFits", "NotReadable", "ArbiterConfined"
"""Reasons of the Events."""


class Room(NamedTuple):
    """Of the nodes to which a job may go, if they were empty."""

    nodes: int
    kinds: Sequence[Resources]  # what a node may have, each once
    together: Resources


class Capacities:
    """Of the nodes to which a job may go, once for all jobs that may go to the same ones."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._known: dict[Reach, Room] = {}

    def of(self, reach: Reach) -> Room:
        if reach not in self._known:
            nodes = [node.allocatable for node in self._seen.nodes or () if admits(reach, node)]
            self._known[reach] = Room(len(nodes), list(dict.fromkeys(nodes)), added(nodes))
        return self._known[reach]


def problems(bidder: Bidder, job: Job | None, seen: Seen, capacities: Capacities) -> tuple[Event, ...]:
    """What its user has to know of a job. `job`: None where nothing is decided for it, because nobody knows of its room."""
    found = list(_missing_classes(bidder, seen.classes))
    found += [Event("Warning", UNREAD, f"annotation {one}; it counts as if it were not there") for one in bidder.unread]
    if job is None:
        text = (
            "the arbiter may see no nodes, and this namespace has no ResourceQuota of CPU and memory that would be its room: "
            "it decides nothing here, and jobs have what they want; make such a quota, or give the operator the rights of "
            "tfjob/manifests/components/arbiter"
        )
        return (*found, Event("Warning", NO_RIGHTS, text))
    if seen.nodes is None:
        text = (
            f"the arbiter may see no nodes: the ResourceQuota of namespace {bidder.key[0]} is all the room that it knows; what "
            "nodes cost, and which of them are about to go, it does not see"
        )
        found.append(Event("Normal", NO_RIGHTS, text))
    if any(one.role == CHIEF for one in job.placed):  # it has fitted
        return tuple(found)
    why = never_fits(job, seen, capacities.of(bidder.reach))
    return (*found, Event("Warning", NEVER_FITS, why)) if why else tuple(found)


def _missing_classes(bidder: Bidder, classes: Classes) -> Iterable[Event]:
    in_templates = {spec.template["spec"].get("priorityClassName") for spec in bidder.job.specs.values()}
    for name in classes.missing(bidder):
        text = f"PriorityClass {name} does not exist (there are: {few(classes.names()) or 'none'})"
        if name in in_templates:
            text += ", and the server refuses pods that name it: create it, or name another in the job's templates"
        else:
            text += ", so the job goes with the cluster's default: create it, or name another in schedulingPolicy.priorityClass"
        yield Event("Warning", NO_CLASS, text)


def never_fits(job: Job, seen: Seen, room: Room) -> str:
    """Why its least size would not fit even if nobody else were there; empty: it would, as far as sums say."""
    least = least_of(job)
    words = f"the least of {job.name} is a chief, {sized(job.least.ps, job.least.workers)}"
    if seen.nodes is not None:
        for what, pod in (("chief", job.pods.chief), ("PS", job.pods.ps), ("worker", job.pods.worker)):
            wanted = {"PS": job.least.ps, "worker": job.least.workers}.get(what, 1)
            if why := _no_node(what, pod, room) if wanted else "":
                return why
        if over := lacking(least, room.together):
            return (
                f"{words}: {shown(least, over)}; all {counted(room.nodes, 'node')} to which its pods may go have "
                f"{shown(room.together, over)} together: lower min-ps, min-workers or what the pods request, or add nodes"
            )
    namespace = key_of(job.name)[0]
    hard = hard_limits(one for one in seen.quotas if one.namespace == namespace)
    request = as_numbers(least)
    over = [name for name, most in hard.items() if request.get(name, 0.0) > most]
    if over:
        have = shown(resources(hard), over)
        return f"{words}: {shown(least, over)}; the ResourceQuota of namespace {namespace} has {have}: raise it, or want less"
    return ""


def _no_node(what: str, pod: Resources, room: Room) -> str:
    if not room.nodes:
        return f"there is no node to which its pods may go (selectors, tolerations, cordons): its {what} waits for one"
    short = [lacking(pod, one) for one in room.kinds]
    if not all(short):
        return ""
    over = min(short, key=len)
    largest = resources({name: max(as_numbers(one).get(name, 0.0) for one in room.kinds) for name in over})
    return (
        f"a {what} of it requests {shown(pod, over)}, and the largest of the {counted(room.nodes, 'node')} to which it may go "
        f"has {shown(largest, over)}: lower its request, or add a larger node"
    )


def least_of(job: Job) -> Resources:
    """What it takes to begin."""
    pods = job.pods
    return added([pods.chief, pods.other, times(pods.ps, job.least.ps), times(pods.worker, job.least.workers)])
