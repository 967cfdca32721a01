"""Volcano's queues as limits: what a queue may hold by its capability, and beside what is guaranteed to others.

Beyond what it deserves (as it is written, else by its weight) Volcano takes from a queue for those that have less than they
deserve. So while a group of such a one waits, that is the limit, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tfjob.arbiting.amounts import Numbers
from tfjob.arbiting.bidders import Bidder, View
from tfjob.arbiting.foreign import Counted, amounts, placed, quota, roles, summed
from tfjob.arbiting.seen import Key
from tfjob.model.kinds import Manifest

ROOT = "root"
"""Above all queues, where they have parents; it limits nothing."""

Amounts = tuple[tuple[str, float], ...]


class VolcanoQueueSeen(NamedTuple):
    name: str
    parent: str
    closed: str  # why it starts nobody; empty: it is open
    capability: Amounts
    guarantee: Amounts
    deserved: Amounts
    allocated: Amounts
    weight: int
    reclaimable: bool
    waits: bool  # groups of it wait

    @property
    def key(self) -> Key:
        return "", self.name


def volcano_queue_seen(found: Manifest) -> VolcanoQueueSeen:
    spec, status = _dict(found.get("spec")), _dict(found.get("status"))
    state, weight = str(status.get("state") or "Open"), spec.get("weight")
    return VolcanoQueueSeen(
        str(found["metadata"]["name"]), str(spec.get("parent") or ""),
        f"it is {state}" if state in ("Closed", "Closing") else "",
        _kept(_capability(spec.get("capability"))), _kept(amounts(_dict(spec.get("guarantee")).get("resource"))),
        _kept(amounts(spec.get("deserved"))), _kept(amounts(status.get("allocated"))),
        weight if isinstance(weight, int) and weight > 0 else 1, spec.get("reclaimable") is not False,
        any(isinstance(status.get(name), int) and status[name] > 0 for name in ("pending", "inqueue")),
    )  # fmt: skip


def _capability(found: Any) -> Numbers:
    """None of cores or memory is no limit."""
    return {name: value for name, value in amounts(found).items() if value > 0 or name not in ("cpu", "memory")}


def _kept(found: Mapping[str, float]) -> Amounts:
    return tuple(sorted(found.items()))


# ---------------------------------------------------------------------------------------------------- as limits


def limits(
    queues: Iterable[VolcanoQueueSeen], jobs: Iterable[tuple[Bidder, Sequence[View]]], total: Mapping[str, float] | None
) -> list[Counted]:
    """Of the queues in which these jobs are, and of those above them.

    Args:
        total: what all nodes have; None: nobody knows.
    """
    there = {one.name: one for one in queues}
    pods: dict[str, set[tuple[str, str]]] = {}
    ours: dict[str, Numbers] = {}
    for bidder, views in jobs:
        lineage = _lineage(bidder.volcano, there) if bidder.volcano else []
        held = summed(amount for role, amount in placed(views) if role in roles(bidder))
        for name in lineage:
            pods.setdefault(name, set()).update((bidder.name, role) for role in roles(bidder))
            ours[name] = summed([ours.get(name, {}), held])
    below: dict[str, list[VolcanoQueueSeen]] = {}
    members: dict[str, list[VolcanoQueueSeen]] = {}
    for one in there.values():
        for above in _lineage(one.name, there)[1:]:
            below.setdefault(above, []).append(one)
        if one.name != ROOT:
            members.setdefault(_parent(one), []).append(one)
    siblings = {parent: _Siblings(parent, together, total) for parent, together in members.items()}
    allocated = {name: _allocated(there[name], below.get(name, ())) for name in pods}
    found = []
    for name in sorted(pods):
        one = there[name]
        limit, now = siblings[_parent(one)].limit(one), siblings[_parent(one)].now(one)
        limit.update({each: (total or {})[each] for each in now if each not in limit})
        others = {each: max(0.0, amount - ours[name].get(each, 0.0)) for each, amount in allocated[name].items()}
        left = {each: min(amount, now.get(each, math.inf)) - others.get(each, 0.0) for each, amount in limit.items()}
        held = {each: limit[each] - max(0.0, amount) for each, amount in left.items()}
        found.append(Counted(quota(f"queue {name} of Volcano", limit, held, f"queue {name} of Volcano", one.closed),
                             frozenset(pods[name])))  # fmt: skip
    return found


def _lineage(name: str, there: Mapping[str, VolcanoQueueSeen]) -> list[str]:
    """The queue and those above it, of those that there are."""
    found: list[str] = []
    while name in there and name != ROOT and name not in found:
        found.append(name)
        name = there[name].parent
    return found


def _parent(queue: VolcanoQueueSeen) -> str:
    return queue.parent or ROOT


def _allocated(queue: VolcanoQueueSeen, under: Iterable[VolcanoQueueSeen]) -> Numbers:
    """In it and below it: what it says itself, or those below it say, whichever is more."""
    own, below = dict(queue.allocated), summed(dict(one.allocated) for one in under)
    return {each: max(own.get(each, 0.0), below.get(each, 0.0)) for each in {**own, **below}}


class _Siblings:
    """All queues with the same parent, and what follows from all of them once."""

    def __init__(self, parent: str, members: Sequence[VolcanoQueueSeen], total: Mapping[str, float] | None) -> None:
        self._parent, self._total = parent, total
        self._guaranteed = [one for one in members if one.guarantee]
        self._written = any(one.deserved for one in members)
        self._weights = sum(one.weight for one in members if _counts(one))
        self._lacking = {one.name for one in members if self._lacks(one)}

    def limit(self, queue: VolcanoQueueSeen) -> Numbers:
        limit = dict(queue.capability)
        if self._total is not None:
            guaranteed = summed(dict(one.guarantee) for one in self._guaranteed if one.name != queue.name)
            for name, amount in guaranteed.items():
                if amount > 0 and name in self._total:
                    limit[name] = min(limit.get(name, math.inf), max(0.0, self._total[name] - amount))
        return limit

    def now(self, queue: VolcanoQueueSeen) -> Numbers:
        """What it would keep while others want what they deserve; nothing: they do not."""
        total = self._total
        if total is None or not queue.reclaimable or not self._lacking - {queue.name}:
            return {}
        guarantee = dict(queue.guarantee)
        share = self._deserved(queue, total)
        return {name: max(amount, guarantee.get(name, 0.0)) for name, amount in share.items() if name in total}

    def _deserved(self, queue: VolcanoQueueSeen, total: Mapping[str, float]) -> Numbers:
        """As it is written; where no queue has that, by its weight among those that hold or want something."""
        if self._written:
            return dict(queue.deserved)
        if self._parent != ROOT:  # a share of what its parent has, which nobody says
            return {}
        weights = self._weights + (0 if _counts(queue) else queue.weight)
        return {name: total[name] * queue.weight / weights for name in ("cpu", "memory") if name in total}

    def _lacks(self, queue: VolcanoQueueSeen) -> bool:
        """Groups of it wait, it has less than it deserves, and may have more."""
        if self._total is None or not queue.waits or queue.closed:
            return False
        has, most = dict(queue.allocated), dict(queue.capability)
        share = self._deserved(queue, self._total)
        return any(has.get(name, 0.0) < min(amount, most.get(name, math.inf)) for name, amount in share.items())


def _counts(queue: VolcanoQueueSeen) -> bool:
    return queue.waits or any(value for _, value in queue.allocated)


def _dict(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
