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

OWN_MAX = 3
"""Members of a cohort with parts of their own for which all sets are looked at; of others these parts count as lent."""

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
        total = sum(amount for name, kind, amount in self.seen.reserved if (name, kind) == (flavor, resource))
        return max(0.0, total - self.ours.get(flavor, {}).get(resource, 0.0))


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
    lending = [one for one in members if not one.seen.closed]  # what is closed lends nothing
    found = [_closed_queue(one) for one in members if one.seen.closed and one.pods]
    for flavor in dict.fromkeys(
        name for one in lending if one.pods for name in (*one.flavors, ANY) if name in one.pods
    ):
        if flavor == ANY:
            found += [_of_any(one) for one in lending if ANY in one.pods]
            continue
        resources = dict.fromkeys(
            one.resource for member in lending for one in member.seen.quotas if one.flavor == flavor
        )
        pools = {resource: _pool(lending, own, flavor, resource) for resource in resources}
        ours = [one for one in lending if one.pods.get(flavor)]
        found += [_alone(one, flavor, pools) for one in ours]
        for together, keeping in _sets(ours, pools):
            limit = {name: pool.lent + _sum(pool.own, keeping) for name, pool in pools.items()}
            left = {name: pool.free + _sum(pool.left, keeping) for name, pool in pools.items()}
            held = {name: limit[name] - left[name] for name in limit}
            names = ",".join(one.seen.name for one in together)
            said = f"cohort {cohort} of Kueue" + (f", flavor {flavor}" if len(ours[0].flavors) > 1 else "")
            pods = frozenset(pod for one in together for pod in one.pods[flavor])
            found.append(Counted(quota(f"cohort {cohort} {flavor} {names}", limit, held, said), pods))
    return found


def _pool(members: Sequence[_Member], cohort: Sequence[Nominal], flavor: str, resource: str) -> _Pool:
    lent = sum(one.nominal for one in cohort if (one.flavor, one.resource) == (flavor, resource))
    taken, own, left = 0.0, {}, {}
    for member in members:
        if (one := member.nominal(flavor, resource)) is None:
            continue
        kept, held = max(0.0, one.nominal - one.lending), member.others(flavor, resource)
        lent += one.nominal - kept
        taken += max(0.0, held - kept)
        own[member.seen.name], left[member.seen.name] = kept, max(0.0, kept - held)
    return _Pool(lent, taken, own, left)


def _alone(member: _Member, flavor: str, pools: Mapping[str, _Pool]) -> Counted:
    """What the queue itself may have of a flavor."""
    limit, held = {}, {}
    for resource, pool in pools.items():
        one = member.nominal(flavor, resource)
        if one is None:
            continue
        name = member.seen.name
        limit[resource] = min(one.nominal + one.borrowing, pool.lent + pool.own[name])
        left = min(one.nominal + one.borrowing - member.others(flavor, resource), pool.free + pool.left[name])
        held[resource] = limit[resource] - max(0.0, left)
    said = f"ClusterQueue {member.seen.name}" + (f", flavor {flavor}" if len(member.flavors) > 1 else "")
    return Counted(
        quota(f"ClusterQueue {member.seen.name} {flavor}", limit, held, said), frozenset(member.pods[flavor])
    )


def _closed_queue(member: _Member) -> Counted:
    """Nobody of it starts or grows, so there is nothing to add up."""
    said = f"ClusterQueue {member.seen.name}"
    return Counted(quota(said, {}, {}, said, member.seen.closed), _pods(member))


def _of_any(member: _Member) -> Counted:
    """Pods of which the flavor is not known: all flavors together."""
    nominal = summed({one.resource: one.nominal + one.borrowing} for one in member.seen.quotas)
    ours = summed(member.ours.values())
    total = summed({resource: amount} for _, resource, amount in member.seen.reserved)
    held = {name: max(0.0, total.get(name, 0.0) - ours.get(name, 0.0)) for name in nominal}
    said = f"ClusterQueue {member.seen.name}"
    return Counted(quota(f"{said} any flavor", nominal, held, said), _pods(member))


def _pods(member: _Member) -> frozenset[tuple[str, str]]:
    return frozenset(pod for each in member.pods.values() for pod in each)


def _sets(members: Sequence[_Member], pools: Mapping[str, _Pool]) -> list[tuple[list[_Member], list[_Member]]]:
    """Sets of at least two of which the sum is to be looked at, and those in it whose own part is not lent: all that lend
    everything, and any of the others."""

    def kept(member: _Member) -> float:
        return max(pool.left.get(member.seen.name, 0.0) for pool in pools.values())

    some = sorted((one for one in members if kept(one) > 0), key=lambda one: (-kept(one), one.seen.name))[:OWN_MAX]
    rest = [one for one in members if one not in some]
    chosen = [list(one) for count in range(len(some) + 1) for one in itertools.combinations(some, count)]
    return [([*rest, *one], one) for one in chosen if len(rest) + len(one) > 1]


def _sum(amounts: Mapping[str, float], members: Iterable[_Member]) -> float:
    return sum(amounts.get(one.seen.name, 0.0) for one in members)


def _dict(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _dicts(found: Any) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
