"""Jobs and their pods on nodes, while it is decided: every pod that comes or goes can be taken back.

A pod that has a node stays there as long as its job keeps that many of its role: the one of the highest index leaves first and
comes back first, to its node. Only what has no node yet is placed, first fit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deeprec_ext.arbiter.curve import Curve, Size, believed, clipped, size_of
from deeprec_ext.arbiter.observed import Cluster, Count, Job, Node
from deeprec_ext.arbiter.room import PODS, UNLIMITED, Room, Scale, Shape, finite, resources_of, together
from deeprec_ext.arbiter.rules import Rules

CHIEF, PS, WORKER, OTHER = "chief", "ps", "worker", "other"
ELSEWHERE = -1
"""The node of a pod that is on none of those observed: it takes no room of theirs."""

Curves = dict[tuple[int, Size, Size], Curve]
"""By index of the job, its least and the most that it may have: made once for a decision."""


class Party:
    """One job while it is decided on."""

    __slots__ = (
        "age", "allowed", "arrived", "blocked", "busy", "costs", "curve", "homes", "horizon_seconds", "index", "job", "lacks",
        "last", "least", "need", "note", "order", "pods", "present", "priority", "quota", "runs", "seats", "shapes",
        "silent", "started", "top", "untaken", "weight",
    )  # fmt: skip

    def __init__(self, index: int, job: Job, now: float, rules: Rules, scale: Scale, nodes: dict[str, int]) -> None:
        self.index, self.job = index, job
        self.priority = job.priority if isinstance(job.priority, int) else 0
        self.weight = min(max(finite(job.weight, 1.0), 1e-3), 1e3)
        arrived = finite(job.arrived, now, 1e12)
        self.arrived = min(arrived, now)
        self.order = (-self.priority, self.arrived, job.name, index)
        self.shapes: dict[str, Shape] = dict(zip((CHIEF, PS, WORKER, OTHER), map(scale.of_pod, resources_of(job.pods))))
        self.seats: dict[str, list[int]] = {CHIEF: [], PS: [], WORKER: [], OTHER: []}
        self.homes: dict[str, list[int]] = {CHIEF: [], PS: [], WORKER: [], OTHER: []}
        for pod in job.placed:
            self.homes[pod.role if pod.role in self.homes else OTHER].append(nodes.get(pod.node, ELSEWHERE))
        del self.homes[CHIEF][1:]
        others = len(self.homes[OTHER]) or (1 if any(self.shapes[OTHER][:PODS] + self.shapes[OTHER][PODS + 1 :]) else 0)
        if others > 1:  # of all of them together is said what they request
            self.shapes[OTHER] = tuple(
                1 if at == PODS else -(-value // others) for at, value in enumerate(self.shapes[OTHER])
            )
        self.pods = {CHIEF: 1, OTHER: others, PS: 0, WORKER: 0}
        self.started = job.started
        quiet = finite(job.silent_seconds, math.inf, math.inf)
        self.silent = job.started and quiet > rules.silent_seconds
        given = job.allowance
        self.age = math.inf if given is None else _age(given.since, now)
        bid = job.bid
        said = finite(bid.time, math.inf, math.inf) if bid is not None else math.inf
        self.busy = bid is not None and bid.busy and abs(now - said) <= rules.busy_seconds
        self.allowed = None if given is None else (given.runs, size_of(Count(given.ps, given.workers)))
        self.runs = runs_before(job)
        self.note = ""
        self.lacks = False  # of its least there is something without room
        self.last = given is not None and now < finite(given.last_until, most=1e12) <= now + rules.last_seconds
        self.untaken: Size | None = None  # what it was allowed, where it has less and is not about to take it
        self.blocked: list[Size] = []
        self.quota = job.queue

    def bound(self, now: float, rules: Rules, price: Sequence[float], curves: Curves) -> None:
        """Sizes between which it may be, and what they are worth."""
        job, bid = self.job, self.job.bid
        least = size_of(job.least)
        most = max(least[0], size_of(job.most)[0]), max(least[1], size_of(job.most)[1])
        wanted = clipped(size_of(bid.wanted if bid is not None else job.written), least, most)
        present = self._present(least, most)
        self.present = None if present is None else clipped(present, least, wanted)
        if job.strict:
            least = wanted if present is None else (min(present[0], wanted[0]), min(present[1], wanted[1]))
        elif self.silent and present is not None:
            wanted = self.present = present
        self.least, self.top = least, wanted
        if not job.strict and self.present is not None and (has := self._taken(rules)) is not None:
            has = clipped(has, least, self.present)
            if has != self.present:
                self.untaken, self.present = self.present, has
        self.last = self.last or self.untaken is not None
        self.costs = tuple(max(_cost(self.shapes[role], price), 1e-9) for role in (PS, WORKER))
        known = self.index, least, wanted
        if known not in curves:
            curves[known] = Curve(believed(bid), least, wanted, (self.costs[0], self.costs[1]), job.strict)
        self.curve = curves[known]
        self.need: Size = least
        self.horizon_seconds = rules.horizon_seconds
        if bid is not None:
            left = finite(bid.left)
            if left > 0 and self.curve.has_model:
                speed = self.curve.speed(present if present is not None else least)
                self.horizon_seconds = min(rules.horizon_seconds, left / max(speed, 1e-12))
                seconds = self._until_deadline(now)
                if seconds > 0 and not job.strict and (need := self.curve.enough(left / seconds)) is not None:
                    self.need = need

    def _until_deadline(self, now: float) -> float:
        """In which what its bid says to be left is to be trained: if it trains, from when it said so. 0: none, or over."""
        bid, deadline = self.job.bid, finite(self.job.deadline)
        trains = bid is not None and bid.training and bool(self.homes[CHIEF])
        since = min(finite(bid.time, now), now) if bid is not None and trains else now
        return max(0.0, deadline - since) if deadline > now else 0.0

    def _present(self, least: Size, most: Size) -> Size | None:
        """What it was allowed, or has if nobody has allowed it anything yet; None: nothing."""
        if not self.runs:
            return None
        if self.allowed is not None:
            return clipped(self.allowed[1], least, most)
        if self.job.bid is not None:
            return clipped(size_of(self.job.bid.size), least, most)
        return clipped((len(self.homes[PS]), len(self.homes[WORKER])), least, most)

    def _taken(self, rules: Rules) -> Size | None:
        """What it has, or is about to have, where it had the time to take all that it is allowed; None: it had not."""
        if not self.runs or self.allowed is None or self.busy or not (self.started and self.homes[CHIEF]):
            return None
        if self.age <= rules.take_seconds and not self.last:
            return None
        ps, workers = size_of(self.job.bid.size) if self.job.bid is not None else (0, 0)
        return max(ps, len(self.homes[PS])), max(workers, len(self.homes[WORKER]))

    @property
    def size(self) -> Size:
        return len(self.seats[PS]), len(self.seats[WORKER])

    @property
    def is_free_to_change(self) -> bool:
        """Nobody trains in it yet."""
        return not self.started and not self.homes[CHIEF]

    def stay_behind(self, role: str, count: int) -> None:
        """Its pods of this role beyond `count` are no longer wanted, and will not go."""
        staying = f"{role} that stays"
        self.homes[role], self.homes[staying] = self.homes[role][:count], self.homes[role][count:]
        self.shapes[staying], self.seats[staying] = self.shapes[role], []

    def staying(self) -> list[str]:
        """Roles of pods that stay although they should not, and have no seat now."""
        return [role for role in self.seats if role not in self.pods for _ in self.homes[role][len(self.seats[role]) :]]

    def missing(self, size: Size) -> list[str]:
        """Roles of the pods that it lacks for this size, the largest pod first."""
        seats = self.seats
        if (
            len(seats[WORKER]) >= size[1]
            and len(seats[PS]) >= size[0]
            and seats[CHIEF]
            and len(seats[OTHER]) >= self.pods[OTHER]
        ):
            return []
        counts = {**self.pods, PS: size[0], WORKER: size[1]}
        lacking = [(self.shapes[role], role, counts[role] - len(seats[role])) for role in counts]
        return [role for shape, role, count in sorted(lacking, reverse=True) for _ in range(count)]


def runs_before(job: Job) -> bool:
    """Whether it runs, or may: as it was allowed, else as it was found."""
    if job.admitted:
        return True
    if job.allowance is not None:
        return job.allowance.runs
    return job.started or any(pod.role == CHIEF for pod in job.placed)


def _preferred(node: Node) -> tuple[float, bool, str]:
    """Where a pod fits, the cheaper node is taken; of equally cheap ones not one that may go. Without a price: last."""
    return finite(node.price) or math.inf, node.spot, node.name


def _age(since: float, now: float) -> float:
    return max(0.0, now - finite(since, -math.inf, 1e12))


def _cost(shape: Shape, price: Sequence[float]) -> float:
    """Its largest share of what there is of a resource (dominant share, Ghodsi et al., 2011)."""
    return max(value * each for value, each in zip(shape, price))


@dataclass(frozen=True)
class Shortage:
    """Why the least of a job finds no room."""

    role: str  # of the first pod without room
    needs: Shape  # of all pods that it lacks
    free: Shape  # on all nodes together
    best: Shape  # the most on one node, of each resource by itself, beside the pods that found room
    quota: Shape  # left of its quota


class Seating:
    """Who sits where. `add` and `drop` are remembered until `mark`s before them are given up."""

    def __init__(self, cluster: Cluster, rules: Rules, curves: Curves) -> None:
        jobs = cluster.jobs
        amounts = [one for job in jobs for one in resources_of(job.pods)] + [one.resources for one in cluster.waiting]
        self.scale = Scale(cluster.nodes, cluster.quotas, amounts)
        self.nodes = nodes = sorted(cluster.nodes, key=_preferred)
        self.where: dict[str, int] = {}
        for at, node in enumerate(nodes):
            self.where.setdefault(node.name, at)
        self.whole = [self.scale.of_node(node) for node in nodes]
        self.room = Room(self.whole)
        self.sums = [sum(one[at] for one in self.whole) for at in range(len(self.scale.names))]
        price = [1.0 / one if one > 0 and at != PODS else 0.0 for at, one in enumerate(self.sums)]
        self.quotas: dict[str, list[int]] = {}
        for quota in cluster.quotas:
            free = self.scale.of_quota(quota)
            known = self.quotas.get(quota.name)
            self.quotas[quota.name] = list(free) if known is None else [min(pair) for pair in zip(free, known)]
        self.limits = {name: tuple(free) for name, free in self.quotas.items()}
        self.parties = [Party(at, job, cluster.time, rules, self.scale, self.where) for at, job in enumerate(jobs)]
        for party in self.parties:
            party.bound(cluster.time, rules, price, curves)
        self._log: list[tuple[Party, str, int, bool]] = []

    # ------------------------------------------------------------------------------------------------------ one pod

    def add(self, party: Party, role: str) -> bool:
        """One pod more; False: no room for it, or no quota."""
        shape, seats, homes = party.shapes[role], party.seats[role], party.homes[role]
        quota = self.quotas.get(party.quota)
        if quota is not None and any(need > have for need, have in zip(shape, quota)):
            return False
        if len(seats) < len(homes):
            node = homes[len(seats)]
            if node != ELSEWHERE and not self.room.fits(node, shape):
                return False
        else:
            node = self.room.first(shape)
            if node < 0:
                return False
        self._sit(party, role, node)
        return True

    def put(self, party: Party, role: str) -> None:
        """The next pod of those that have a node, whether there is room or not: it is there."""
        self._sit(party, role, party.homes[role][len(party.seats[role])])

    def _sit(self, party: Party, role: str, node: int) -> None:
        party.seats[role].append(node)
        self._move(party, role, node, 1)
        self._log.append((party, role, node, True))

    def drop(self, party: Party, role: str) -> int:
        """One pod fewer; the node that it had."""
        node = party.seats[role].pop()
        self._move(party, role, node, -1)
        self._log.append((party, role, node, False))
        return node

    def _move(self, party: Party, role: str, node: int, count: int) -> None:
        shape = party.shapes[role]
        if node != ELSEWHERE:
            (self.room.take if count > 0 else self.room.give)(node, shape)
        if (quota := self.quotas.get(party.quota)) is not None:
            for at, value in enumerate(shape):
                quota[at] -= count * value

    # ----------------------------------------------------------------------------------------------------- taking back

    def mark(self) -> int:
        return len(self._log)

    def undo(self, mark: int) -> None:
        while len(self._log) > mark:
            party, role, node, came = self._log.pop()
            if came:
                party.seats[role].pop()
            else:
                party.seats[role].append(node)
            self._move(party, role, node, -1 if came else 1)

    def dropped(self, mark: int) -> list[tuple[Party, str]]:
        """What went since, the last first."""
        return [(party, role) for party, role, _, came in reversed(self._log[mark:]) if not came]

    # ---------------------------------------------------------------------------------------------------- several pods

    def add_all(self, party: Party, roles: Iterable[str]) -> str | None:
        """All or none; the role of the first that has no room."""
        mark = self.mark()
        for role in roles:
            if not self.add(party, role):
                self.undo(mark)
                return role
        return None

    def leave(self, party: Party) -> None:
        for role, seats in party.seats.items():
            while seats:
                self.drop(party, role)

    def takes_quota(self, party: Party, role: str) -> bool:
        """Whether it is the quota that lacks for one more."""
        quota = self.quotas.get(party.quota)
        return quota is not None and any(need > have for need, have in zip(party.shapes[role], quota))

    def shortage(self, party: Party) -> Shortage | None:
        """Of what it lacks for its least; None: of nothing."""
        mark = self.mark()
        counts = Counter(party.missing(party.least))
        needs = together(((party.shapes[role], count) for role, count in counts.items()), len(self.scale.names))
        free = together((([max(0, value) for value in one], 1) for one in self.room.free), len(needs))
        quota = self.quotas.get(party.quota)
        left = tuple(quota) if quota is not None else (UNLIMITED,) * len(needs)
        found = None
        for role in party.missing(party.least):
            if not self.add(party, role):
                best = tuple(max((one[at] for one in self.room.free), default=0) for at in range(len(needs)))
                found = Shortage(role, tuple(needs), tuple(free), best, left)
                break
        self.undo(mark)
        return found

    def never(self, party: Party) -> str | None:
        """The role of its least that would find no room if nobody else were there; None: all would."""
        empty = Room(self.whole)
        limit = list(self.limits.get(party.quota, (UNLIMITED,) * len(self.scale.names)))
        counts = ((CHIEF, 1), (OTHER, party.pods[OTHER]), (PS, party.least[0]), (WORKER, party.least[1]))
        for shape, role, count in sorted(((party.shapes[role], role, count) for role, count in counts), reverse=True):
            for _ in range(count):
                node = empty.first(shape)
                if node < 0 or any(need > have for need, have in zip(shape, limit)):
                    return role
                empty.take(node, shape)
                for at, value in enumerate(shape):
                    limit[at] -= value
        return None
