"""What bounds the pods of jobs beside room: quotas, of which each counts some jobs' pods, and nodes to which not all may go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from deeprec_ext.arbiter.observed import Bound, Bounds, Job, Node, Quota
from deeprec_ext.arbiter.room import ALL, UNLIMITED, Scale, Shape


class Limit:
    """A quota, and what is left of it while it is decided."""

    __slots__ = ("closed", "left", "limited", "name", "said", "whole")

    def __init__(self, quota: Quota, scale: Scale) -> None:
        self.name, self.closed = quota.name, quota.closed
        self.said = quota.said or f"quota {quota.name}"
        self.left = list(scale.of_quota(quota))
        self.whole = tuple(map(sum, zip(self.left, scale.held(quota))))
        self.limited = [at for at, value in enumerate(self.left) if value < UNLIMITED]

    def tighter(self, other: Limit) -> None:
        """Two of one name."""
        self.left = list(map(min, zip(self.left, other.left)))
        self.whole = tuple(map(min, zip(self.whole, other.whole)))
        self.limited = sorted({*self.limited, *other.limited})
        self.closed = self.closed or other.closed

    def lacks(self, shape: Shape) -> bool:
        """For one pod more."""
        left = self.left
        for at in self.limited:  # noqa: SIM110  (`any` takes twice as long)
            if 0 < shape[at] > left[at]:
                return True
        return False

    def take(self, shape: Shape, count: int) -> None:
        left = self.left
        for at in self.limited:
            left[at] -= count * shape[at]


class Limits:
    """By name."""

    def __init__(self, quotas: Iterable[Quota], scale: Scale) -> None:
        self._all: dict[str, Limit] = {}
        for quota in quotas:
            made = Limit(quota, scale)
            if (known := self._all.setdefault(quota.name, made)) is not made:
                known.tighter(made)
        self._known: dict[tuple[str, ...], tuple[Limit, ...]] = {}

    def of(self, names: tuple[str, ...]) -> tuple[Limit, ...]:
        if names not in self._known:
            self._known[names] = tuple(self._all[name] for name in dict.fromkeys(names) if name in self._all)
        return self._known[names]


class Subsets:
    """Of the nodes: those to which some pods may go, each once."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._groups = frozenset(node.group for node in nodes)
        self._known: dict[frozenset[str], int] = {}
        self.all: list[Sequence[int]] = [range(len(nodes))]

    def of(self, groups: tuple[str, ...] | None) -> int:
        if groups is None or self._groups.issubset(groups):
            return ALL
        wanted = frozenset(groups)
        if wanted not in self._known:
            self._known[wanted] = len(self.all)
            self.all.append([at for at, node in enumerate(self._nodes) if node.group in wanted])
        return self._known[wanted]


class Bounded(NamedTuple):
    """What bounds the pods of a job, by role."""

    subsets: Mapping[str, int]
    limits: Mapping[str, tuple[Limit, ...]]
    groups: frozenset[str] | None  # of nodes to which any of them may go; None: all
    quotas: frozenset[str]
    held: Limit | None  # why it neither starts nor grows
    kind: tuple[object, ...]  # equal where all of this is


class Bounding:
    """Of all jobs, for those that have the same once."""

    def __init__(self, quotas: Iterable[Quota], nodes: Sequence[Node], scale: Scale) -> None:
        self._limits, self.subsets = Limits(quotas, scale), Subsets(nodes)
        self._known: dict[tuple[str, Bounds | None], Bounded] = {}

    def of(self, job: Job) -> Bounded:
        key = job.queue, job.bounds
        if key not in self._known:
            self._known[key] = self._made(job.queue, job.bounds or Bounds())
        return self._known[key]

    def _made(self, queue: str, bounds: Bounds) -> Bounded:
        of_roles: dict[str, Bound] = vars(bounds)
        subsets = {role: self.subsets.of(bound.groups) for role, bound in of_roles.items()}
        limits = {role: self._limits.of((queue, *bound.quotas)) for role, bound in of_roles.items()}
        every = [limit for each in limits.values() for limit in each]
        groups = [bound.groups for bound in of_roles.values()]
        together = None if None in groups else frozenset(name for each in groups for name in each or ())
        kind = *subsets.values(), *map(id, limits.values())
        held = next((limit for limit in every if limit.closed), None)
        return Bounded(subsets, limits, together, frozenset(limit.name for limit in every), held, kind)
