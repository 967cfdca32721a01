"""Everything that was seen, put together as what the arbiter decides from. Pure: the same again leads to the same.

Where only one namespace may be seen, there are no nodes: then its quota is all the room there is, as if it were a node.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from deeprec_ext.arbiter.observed import Cluster, Job, Node, Placed, Quota, Resources, Waiting
from tfjob.arbiting.amounts import added, as_numbers, resources, without
from tfjob.arbiting.bidders import Bidder, Classes, job_of
from tfjob.arbiting.reach import admits
from tfjob.arbiting.seen import PRICE_LABEL, Key, NodeSeen, PodSeen, QuotaSeen, Reach, is_spot, price
from tfjob.arbiting.tally import Pods

WAITING_MAX = 1000
"""Pods that wait, of the highest priority: giving way to the first of them is enough for a while."""

REACHED_MAX = 64
"""Nodes named for such a pod, where it may not go to all: each is written for each pod in the record."""


@dataclass(frozen=True)
class Labels:
    """Of nodes."""

    price: str = PRICE_LABEL
    spot: tuple[tuple[str, str], ...] = ()  # with their values, beside the usual ones


@dataclass(frozen=True)
class Seen:
    """What there is."""

    bidders: Sequence[Bidder]
    pods: Pods
    nodes: Sequence[NodeSeen] | None  # None: they may not be seen
    quotas: Sequence[QuotaSeen]
    classes: Classes
    labels: Labels = field(default_factory=Labels)


def observe(seen: Seen, now: float) -> Cluster:
    """`now`: seconds since the epoch. Jobs, nodes and quotas are in the order of their names."""
    bidders = sorted(seen.bidders, key=lambda one: one.key)
    quotas = quotas_of(seen, bidders)
    limited = {one.name for one in quotas}
    jobs = []
    for one in bidders:
        queue = one.key[0] if one.key[0] in limited else one.queue
        jobs.append(job_of(one, seen.pods.of_jobs.get(one.key, {}).values(), seen.classes, queue, now))
    if seen.nodes is None:
        nodes, jobs = _by_quota(quotas, jobs)
    else:
        nodes = nodes_of(seen, bidders)
    return Cluster(now, tuple(nodes), waiting_of(seen, bidders, nodes), tuple(quotas), tuple(jobs))


def strangers(seen: Seen, bidders: Iterable[Bidder]) -> Iterable[PodSeen]:
    """Pods that say they are of a job, but of none that is decided about."""
    ours = {one.key: one.job.uid for one in bidders}
    for key, pods in seen.pods.of_jobs.items():
        for pod in pods.values():
            if ours.get(key) != pod.owner:
                yield pod


# ---------------------------------------------------------------------------------------------------- room


def nodes_of(seen: Seen, bidders: Sequence[Bidder]) -> list[Node]:
    """What pods of others leave of each. Those to which no pod of ours may go are left out: what ours have there, they have
    elsewhere, where it takes nothing of the room that there is."""
    foreign: dict[str, list[PodSeen]] = {}
    for pod in strangers(seen, bidders):
        foreign.setdefault(pod.node, []).append(pod)
    reaches = {one.reach for one in bidders}
    found = []
    for node in sorted(seen.nodes or ()):
        use, others = seen.pods.on(node.name), foreign.get(node.name, ())
        pods = node.pods - use.pods - len(others)
        if any(admits(reach, node) for reach in reaches) and (pods > 0 or not node.pods):
            free = without(node.allocatable, added([use.resources, *(pod.resources for pod in others)]))
            cost, spot = price(node, seen.labels.price), is_spot(node, seen.labels.spot)
            found.append(Node(node.name, free, cost, spot, max(0, pods)))
    return found


def quotas_of(seen: Seen, bidders: Sequence[Bidder]) -> list[Quota]:
    """One for each namespace with jobs that has any: of several ResourceQuotas the tightest counts, resource by resource."""
    foreign: dict[str, list[Resources]] = {}
    for pod in strangers(seen, bidders):
        foreign.setdefault(pod.namespace, []).append(pod.resources)
    by_namespace: dict[str, list[QuotaSeen]] = {}
    for one in seen.quotas:
        by_namespace.setdefault(one.namespace, []).append(one)
    found = []
    for namespace in sorted({one.key[0] for one in bidders} & set(by_namespace)):
        used = as_numbers(added([seen.pods.within(namespace), *foreign.get(namespace, ())]))
        hard = hard_limits(by_namespace[namespace])
        free = {name: max(0.0, value - used.get(name, 0.0)) for name, value in hard.items()}
        found.append(Quota(namespace, resources(free), tuple(sorted(hard))))
    return found


def hard_limits(quotas: Iterable[QuotaSeen]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in quotas:
        hard = as_numbers(one.hard)
        for name in one.limits:
            found[name] = min(found.get(name, float("inf")), hard.get(name, 0.0))
    return found


def is_room(quotas: Iterable[QuotaSeen]) -> bool:
    """Whether these, of one namespace, say how much there is for its jobs."""
    return {"cpu", "memory"} <= set(hard_limits(quotas))


def _by_quota(quotas: Sequence[Quota], jobs: Sequence[Job]) -> tuple[list[Node], list[Job]]:
    """A node for each namespace with a quota of CPU and memory; jobs elsewhere are left out: nobody knows of their room."""
    rooms = {one.name: f"quota of {one.name}" for one in quotas if {"cpu", "memory"} <= set(one.limits)}
    nodes = [Node(rooms[one.name], one.free) for one in quotas if one.name in rooms]
    kept = [
        _moved(job, rooms[job.queue]) for job in jobs if job.queue in rooms and job.name.startswith(f"{job.queue}/")
    ]
    return nodes, kept


def _moved(job: Job, node: str) -> Job:
    return dataclasses.replace(job, placed=tuple(Placed(one.role, node) for one in job.placed))


# ---------------------------------------------------------------------------------------------------- who waits


def waiting_of(seen: Seen, bidders: Sequence[Bidder], nodes: Sequence[Node]) -> tuple[Waiting, ...]:
    """Pods of others that wait for room, of the highest priority first. Without those that may go to none of these nodes:
    nothing that a job gives back would help them."""
    pods = [*seen.pods.waiting.values(), *(pod for pod in strangers(seen, bidders) if pod.waits_since)]
    pods.sort(key=lambda pod: (-pod.priority, pod.waits_since, pod.key))
    reached: dict[Reach | None, tuple[str, ...] | None] = {None: ()}
    found: list[Waiting] = []
    for pod in pods:
        if len(found) == WAITING_MAX:
            break
        if pod.reach not in reached:
            reached[pod.reach] = _reached(pod.reach, seen, nodes) if pod.reach is not None else ()
        if (may := reached[pod.reach]) is not None:
            found.append(Waiting("/".join(pod.key), pod.priority, pod.resources, pod.waits_since, may))
    return tuple(found)


def _reached(reach: Reach, seen: Seen, nodes: Sequence[Node]) -> tuple[str, ...] | None:
    """Names of those among the nodes to which it may go, the roomiest `REACHED_MAX`; empty: all of them, or none is known;
    None: none of them."""
    if seen.nodes is None:
        return ()
    there = {node.name: node for node in seen.nodes}
    found = [node for node in nodes if admits(reach, there[node.name])]
    if not found:
        return None
    if len(found) == len(nodes):
        return ()
    found.sort(key=lambda node: (-node.free.cpu, -node.free.memory_bytes, node.name))
    return tuple(sorted(node.name for node in found[:REACHED_MAX]))


def key_of(job: str) -> Key:
    """`"ml/ctr"` → `("ml", "ctr")`."""
    namespace, _, name = job.partition("/")
    return namespace, name
