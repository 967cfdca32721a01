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
    every = list(there.values())
    allocated = {name: _allocated(name, there) for name in pods}
    found = []
    for name in sorted(pods):
        one = there[name]
        limit, now = _limit(one, every, total), _now(one, every, total)
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


def _allocated(name: str, there: Mapping[str, VolcanoQueueSeen]) -> Numbers:
    """In it and below it: what it says itself, or those below it say, whichever is more."""
    below = summed(dict(one.allocated) for one in there.values() if name in _lineage(one.name, there)[1:])
    own = dict(there[name].allocated)
    return {each: max(own.get(each, 0.0), below.get(each, 0.0)) for each in {**own, **below}}


def _limit(queue: VolcanoQueueSeen, every: Sequence[VolcanoQueueSeen], total: Mapping[str, float] | None) -> Numbers:
    limit = dict(queue.capability)
    beside = _beside(queue, every)
    if total is not None:
        for name, amount in summed(dict(one.guarantee) for one in beside).items():
            if amount > 0 and name in total:
                limit[name] = min(limit.get(name, math.inf), max(0.0, total[name] - amount))
    return limit


def _now(queue: VolcanoQueueSeen, every: Sequence[VolcanoQueueSeen], total: Mapping[str, float] | None) -> Numbers:
    """What it would keep while others want what they deserve; nothing: they do not."""
    beside = _beside(queue, every)
    if total is None or not queue.reclaimable or not any(_lacks(one, every, total) for one in beside):
        return {}
    guarantee = dict(queue.guarantee)
    share = _deserved(queue, beside, total)
    return {name: max(amount, guarantee.get(name, 0.0)) for name, amount in share.items() if name in total}


def _beside(queue: VolcanoQueueSeen, every: Iterable[VolcanoQueueSeen]) -> list[VolcanoQueueSeen]:
    """Those with the same parent."""
    above = queue.parent or ROOT
    return [one for one in every if one.name not in (queue.name, ROOT) and (one.parent or ROOT) == above]


def _deserved(queue: VolcanoQueueSeen, beside: Iterable[VolcanoQueueSeen], total: Mapping[str, float]) -> Numbers:
    """As it is written; where no queue has that, by its weight among those that hold or want something."""
    others = list(beside)
    if any(one.deserved for one in (queue, *others)):
        return dict(queue.deserved)
    if (queue.parent or ROOT) != ROOT:  # a share of what its parent has, which nobody says
        return {}
    weights = queue.weight + sum(one.weight for one in others if one.waits or any(value for _, value in one.allocated))
    return {name: total[name] * queue.weight / weights for name in ("cpu", "memory") if name in total}


def _lacks(queue: VolcanoQueueSeen, every: Sequence[VolcanoQueueSeen], total: Mapping[str, float]) -> bool:
    """Groups of it wait, it has less than it deserves, and may have more."""
    beside = _beside(queue, every)
    share, has, most = _deserved(queue, beside, total), dict(queue.allocated), dict(queue.capability)
    return queue.waits and not queue.closed and any(
        has.get(name, 0.0) < min(amount, most.get(name, math.inf)) for name, amount in share.items()
    )  # fmt: skip


def _dict(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
