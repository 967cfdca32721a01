"""Kueue's queues as limits: what a ClusterQueue admits of a flavor, alone and together with the others of its cohort.

Of each flavor a queue has its nominal quota. Of that, what is above its lending limit is its own, and the rest is lent to its
cohort, from which it may borrow up to its borrowing limit. So what all members take beyond their own parts is at most what all
of them lend. For a set of members that is a sum, and a sum is a quota: one for each set that could be the tightest.

What others hold is what Kueue has reserved for others than the jobs that are decided about.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tfjob.arbiting.amounts import Numbers, counts, number
from tfjob.arbiting.bidders import Bidder, View
from tfjob.arbiting.foreign import COUNTED_PODS, Counted, placed, quota, roles, summed, written
from tfjob.arbiting.seen import Key
from tfjob.model.kinds import Manifest

OWN_MAX = 5
"""Members of a cohort with parts of their own of which all sets are looked at; others are in each of them, with their parts."""

ANY = ""
"""The flavor of pods of which it cannot be told."""


class LocalQueueSeen(NamedTuple):
    namespace: str
    name: str
    queue: str  # its ClusterQueue
    closed: str  # why it starts nobody; empty: it is open

    @property
    def key(self) -> Key:
        return self.namespace, self.name


class Nominal(NamedTuple):
    flavor: str
    resource: str
    nominal: float
    borrowing: float  # infinite: no limit
    lending: float


class ClusterQueueSeen(NamedTuple):
    name: str
    cohort: str
    closed: str
    quotas: tuple[Nominal, ...]
    reserved: tuple[tuple[str, str, float], ...]  # flavor, resource, how much

    @property
    def key(self) -> Key:
        return "", self.name


class CohortSeen(NamedTuple):
    name: str
    quotas: tuple[Nominal, ...]  # beside those of its members

    @property
    def key(self) -> Key:
        return "", self.name


class FlavorSeen(NamedTuple):
    name: str
    labels: tuple[tuple[str, str], ...]  # of its nodes, which Kueue writes into the selectors of what it has admitted

    @property
    def key(self) -> Key:
        return "", self.name


class KueueSeen(NamedTuple):
    local_queues: Sequence[LocalQueueSeen] = ()
    cluster_queues: Sequence[ClusterQueueSeen] = ()
    flavors: Sequence[FlavorSeen] = ()
    cohorts: Sequence[CohortSeen] = ()


# ---------------------------------------------------------------------------------------------------- from manifests


def local_queue_seen(found: Manifest) -> LocalQueueSeen:
    metadata, spec = found["metadata"], _dict(found.get("spec"))
    name, queue = str(metadata["name"]), str(spec.get("clusterQueue") or "")
    return LocalQueueSeen(str(metadata.get("namespace") or ""), name, queue, _closed(found))


def cluster_queue_seen(found: Manifest) -> ClusterQueueSeen:
    spec, status = _dict(found.get("spec")), _dict(found.get("status"))
    cohort = str(spec.get("cohortName") or spec.get("cohort") or "")  # v1beta2, v1beta1
    used = status.get("flavorsReservation") or status.get("flavorsUsage")
    reserved = [
        (str(flavor.get("name")), str(one.get("name")), number(one.get("total") or 0))
        for flavor in _dicts(used) for one in _dicts(flavor.get("resources"))
    ]  # fmt: skip
    return ClusterQueueSeen(
        str(found["metadata"]["name"]), cohort, _closed(found), _nominals(spec, bool(cohort)), tuple(reserved)
    )


def cohort_seen(found: Manifest) -> CohortSeen:
    return CohortSeen(str(found["metadata"]["name"]), _nominals(_dict(found.get("spec")), True))


def flavor_seen(found: Manifest) -> FlavorSeen:
    labels = _dict(_dict(found.get("spec")).get("nodeLabels"))
    return FlavorSeen(
        str(found["metadata"]["name"]), tuple(sorted((str(key), str(value)) for key, value in labels.items()))
    )


def _nominals(spec: Manifest, borrows: bool) -> tuple[Nominal, ...]:
    return tuple(
        Nominal(
            str(flavor.get("name")), str(one.get("name")), number(one.get("nominalQuota") or 0),
            _limit(one.get("borrowingLimit")) if borrows else 0.0, _limit(one.get("lendingLimit")),
        )
        for group in _dicts(spec.get("resourceGroups")) for flavor in _dicts(group.get("flavors"))
        for one in _dicts(flavor.get("resources"))
        if counts(str(one.get("name"))) or one.get("name") == COUNTED_PODS
    )  # fmt: skip


def _limit(found: Any) -> float:
    return math.inf if found is None else number(found)


def _closed(found: Manifest) -> str:
    policy = str(_dict(found.get("spec")).get("stopPolicy") or "None")
    if policy != "None":
        return f"its stopPolicy is {policy}"
    if found["metadata"].get("deletionTimestamp"):
        return "it is being deleted"
    for one in _dicts(_dict(found.get("status")).get("conditions")):
        if one.get("type") == "Active" and one.get("status") == "False":
            return f"it is not active: {one.get('reason') or 'for no reason'!s}"
    return ""


# ---------------------------------------------------------------------------------------------------- as limits


class _Member:
    """A ClusterQueue, and the jobs that are decided about which are in it."""

    def __init__(self, seen: ClusterQueueSeen, labels: Mapping[str, Mapping[str, str]]) -> None:
        self.seen, self._labels = seen, labels
        self.flavors = list(dict.fromkeys(one.flavor for one in seen.quotas))
        self.pods: dict[str, set[tuple[str, str]]] = {}  # by flavor
        self.ours: dict[str, Numbers] = {}  # by flavor: what Kueue has reserved for these jobs

    def put(self, bidder: Bidder, views: Iterable[View]) -> None:
        of_roles = {role: self._flavors(bidder, role) for role in roles(bidder)}
        for role, flavors in of_roles.items():
            for flavor in flavors:
                self.pods.setdefault(flavor, set()).add((bidder.name, role))
        for role, amount in placed(views) if bidder.kueue_by_pods else written(bidder):
            for flavor in of_roles.get(role, ()):
                self.ours[flavor] = summed([self.ours.get(flavor, {}), amount])

    def _flavors(self, bidder: Bidder, role: str) -> list[str]:
        """One for each group of resources; `ANY` where their selector does not tell."""
        selector = dict(bidder.reaches[role].selector)
        groups: dict[str, list[str]] = {}
        for one in self.seen.quotas:
            groups.setdefault(one.resource, []).append(one.flavor)
        found = []
        for flavors in groups.values():
            fit = [one for one in flavors if self._labels.get(one, {}).items() <= selector.items()]
            likely = max(fit, key=lambda one: len(self._labels.get(one, {})), default=ANY)
            found.append(flavors[0] if len(flavors) == 1 else likely)
        return list(dict.fromkeys(found))

    def nominal(self, flavor: str, resource: str) -> Nominal | None:
        return next((one for one in self.seen.quotas if (one.flavor, one.resource) == (flavor, resource)), None)

    def others(self, flavor: str, resource: str) -> float:
        return max(0.0, self.reserved(flavor, resource) - self.ours.get(flavor, {}).get(resource, 0.0))

    def reserved(self, flavor: str, resource: str) -> float:
        return sum(amount for name, kind, amount in self.seen.reserved if (name, kind) == (flavor, resource))

    def borrowed(self, flavor: str, resource: str) -> float:
        one = self.nominal(flavor, resource)
        return max(0.0, self.reserved(flavor, resource) - (one.nominal if one is not None else 0.0))


class _Pool(NamedTuple):
    """Of a flavor's resource in a cohort, or in a queue that has none."""

    lent: float  # by all members, and of the cohort's own
    taken: float  # of that by others
    own: Mapping[str, float]  # by member: what it does not lend
    left: Mapping[str, float]  # of its own, beside what others hold in it

    @property
    def free(self) -> float:
        return max(0.0, self.lent - self.taken)


def limits(seen: KueueSeen, jobs: Iterable[tuple[Bidder, Sequence[View]]]) -> list[Counted]:
    """Of the queues in which these jobs are."""
    labels = {one.name: dict(one.labels) for one in seen.flavors}
    members = {one.name: _Member(one, labels) for one in seen.cluster_queues}
    local = {one.key: one for one in seen.local_queues}
    shut: dict[Key, set[tuple[str, str]]] = {}
    for bidder, views in jobs:
        queue = local.get((bidder.key[0], bidder.kueue)) if bidder.kueue else None
        if queue is None:
            continue
        if queue.queue in members:
            members[queue.queue].put(bidder, views)
        if queue.closed or queue.queue not in members:
            shut.setdefault(queue.key, set()).update((bidder.name, role) for role in roles(bidder))
    found = [_shut(local[key], pods) for key, pods in sorted(shut.items())]
    cohorts: dict[str, list[_Member]] = {}
    for name in sorted(members):
        cohort = members[name].seen.cohort
        cohorts.setdefault(cohort if cohort else f"queue {name}", []).append(members[name])
    own = {one.name: one.quotas for one in seen.cohorts}
    for cohort, together in sorted(cohorts.items()):
        if any(one.pods for one in together):
            found += _of_cohort(cohort, together, own.get(cohort, ()))
    return found


def _shut(queue: LocalQueueSeen, pods: set[tuple[str, str]]) -> Counted:
    said = f"LocalQueue {queue.namespace}/{queue.name}"
    closed = queue.closed or f"there is no ClusterQueue {queue.queue}"
    return Counted(quota(said, {}, {}, said, closed), frozenset(pods))


def _of_cohort(cohort: str, members: Sequence[_Member], own: Sequence[Nominal]) -> list[Counted]:
    lending = [one for one in members if not one.seen.closed]
    found = [_closed_queue(one) for one in members if one.seen.closed and one.pods]
    pools = {
        name: _pools(members, own, name)
        for name in dict.fromkeys(name for one in lending if one.pods for name in one.flavors)
    }
    found += [_of_any(one, pools) for one in lending if ANY in one.pods]
    for flavor, of_flavor in pools.items():
        ours = [one for one in lending if one.pods.get(flavor)]
        found += [_alone(one, flavor, of_flavor) for one in ours]
        for together in _sets(ours, flavor, of_flavor):
            limit = {name: pool.lent + _sum(pool.own, together) for name, pool in of_flavor.items()}
            left = {name: pool.free + _sum(pool.left, together) for name, pool in of_flavor.items()}
            held = {name: limit[name] - left[name] for name in limit}
            names = ",".join(one.seen.name for one in together)
            said = f"cohort {cohort} of Kueue" + (f", flavor {flavor}" if len(ours[0].flavors) > 1 else "")
            pods = frozenset(pod for one in together for pod in one.pods[flavor])
            found.append(Counted(quota(f"cohort {cohort} {flavor} {names}", limit, held, said), pods))
    return found


def _pools(members: Sequence[_Member], cohort: Sequence[Nominal], flavor: str) -> dict[str, _Pool]:
    """By resource."""
    resources = dict.fromkeys(
        one.resource
        for member in members
        if not member.seen.closed
        for one in member.seen.quotas
        if one.flavor == flavor
    )
    return {resource: _pool(members, cohort, flavor, resource) for resource in resources}


def _pool(members: Sequence[_Member], cohort: Sequence[Nominal], flavor: str, resource: str) -> _Pool:
    lent = sum(one.nominal for one in cohort if (one.flavor, one.resource) == (flavor, resource))
    taken, own, left = 0.0, {}, {}
    for member in members:
        if member.seen.closed:  # it lends nothing, and has what it has borrowed
            taken += member.borrowed(flavor, resource)
            continue
        if (one := member.nominal(flavor, resource)) is None:
            continue
        kept, held = max(0.0, one.nominal - one.lending), member.others(flavor, resource)
        lent += one.nominal - kept
        taken += max(0.0, held - kept)
        own[member.seen.name], left[member.seen.name] = kept, max(0.0, kept - held)
    return _Pool(lent, taken, own, left)


def _most(member: _Member, flavor: str, pools: Mapping[str, _Pool]) -> dict[str, tuple[float, float]]:
    """By resource, what the queue itself may have of a flavor, and what others leave of that; below 0: they have more."""
    found = {}
    for resource, pool in pools.items():
        if (one := member.nominal(flavor, resource)) is not None:
            most, name = one.nominal + one.borrowing, member.seen.name
            left = min(most - member.others(flavor, resource), pool.free + pool.left[name])
            found[resource] = min(most, pool.lent + pool.own[name]), left
    return found


def _alone(member: _Member, flavor: str, pools: Mapping[str, _Pool]) -> Counted:
    most = _most(member, flavor, pools)
    limit = {name: amount for name, (amount, _) in most.items()}
    held = {name: amount - max(0.0, left) for name, (amount, left) in most.items()}
    said = f"ClusterQueue {member.seen.name}" + (f", flavor {flavor}" if len(member.flavors) > 1 else "")
    return Counted(
        quota(f"ClusterQueue {member.seen.name} {flavor}", limit, held, said), frozenset(member.pods[flavor])
    )


def _closed_queue(member: _Member) -> Counted:
    """Nobody of it starts or grows, so there is nothing to add up."""
    said = f"ClusterQueue {member.seen.name}"
    return Counted(quota(said, {}, {}, said, member.seen.closed), _pods(member))


def _of_any(member: _Member, pools: Mapping[str, Mapping[str, _Pool]]) -> Counted:
    """Pods of which the flavor is not known: all flavors together."""
    every = [_most(member, flavor, pools[flavor]) for flavor in member.flavors]
    limit = summed({name: amount for name, (amount, _) in one.items()} for one in every)
    left = summed({name: some for name, (_, some) in one.items()} for one in every)
    held = {}
    for name, amount in limit.items():
        reserved = sum(member.reserved(flavor, name) for flavor in member.flavors)
        ours = min(reserved, member.ours.get(ANY, {}).get(name, 0.0))  # counted among what others have
        held[name] = amount - max(0.0, min(amount, left[name] + ours))
    said = f"ClusterQueue {member.seen.name}"
    return Counted(quota(f"{said} any flavor", limit, held, said), _pods(member))


def _pods(member: _Member) -> frozenset[tuple[str, str]]:
    return frozenset(pod for each in member.pods.values() for pod in each)


def _sets(members: Sequence[_Member], flavor: str, pools: Mapping[str, _Pool]) -> list[list[_Member]]:
    """Those of at least two of which the sum is to be looked at: all that lend everything, and any of the others; but not
    where the members' own limits say as much."""

    def kept(member: _Member) -> float:
        return max(pool.left.get(member.seen.name, 0.0) for pool in pools.values())

    some = sorted((one for one in members if kept(one) > 0), key=lambda one: (-kept(one), one.seen.name))[:OWN_MAX]
    rest = [one for one in members if one not in some]
    chosen = [[*rest, *one] for count in range(len(some) + 1) for one in itertools.combinations(some, count)]
    alone = {one.seen.name: _most(one, flavor, pools) for one in members}

    def bind(together: Sequence[_Member]) -> bool:
        most = summed({name: max(0.0, left) for name, (_, left) in alone[one.seen.name].items()} for one in together)
        return any(most.get(name, 0.0) > pool.free + _sum(pool.left, together) for name, pool in pools.items())

    return [one for one in chosen if len(one) > 1 and bind(one)]


def _sum(amounts: Mapping[str, float], members: Iterable[_Member]) -> float:
    return sum(amounts.get(one.seen.name, 0.0) for one in members)


def _dict(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _dicts(found: Any) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
