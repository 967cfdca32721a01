"""Room on nodes, in whole numbers: thousandths of cores and of extended resources, bytes, pods. So nothing drifts when it is
taken and given back a thousand times."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from deeprec_ext.arbiter.observed import Node, Pods, Quota, Resources

Shape = tuple[int, ...]
"""(thousandths of cores, bytes, pods, thousandths of each extended resource)."""

UNLIMITED = 1 << 62
CPU, MEMORY, PODS = 0, 1, 2
ALL = 0
"""The subset of all nodes."""
WITHOUT_A_LIMIT = 1_000
"""Pods on a node that does not say how many it may hold: pods that request nothing are no reason for endless ones."""


def finite(value: float, otherwise: float = 0.0, most: float = 1e15) -> float:
    """A number that can be reckoned with: not negative."""
    return min(max(value, 0.0), most) if isinstance(value, (int, float)) and not math.isnan(value) else otherwise


class Scale:
    """Which resources there are, and amounts of them as shapes."""

    def __init__(self, nodes: Iterable[Node], quotas: Iterable[Quota], pods: Iterable[Resources]) -> None:
        amounts = [one.free for one in nodes] + [one.free for one in quotas] + list(pods)
        self.others = sorted({other.name for one in amounts for other in one.others})
        self.names = ("cpu", "memory", "pods", *self.others)
        self._pods: dict[Resources, Shape] = {}

    def of_pod(self, amount: Resources) -> Shape:
        if amount not in self._pods:
            self._pods[amount] = self._shape(amount, 1, math.ceil)
        return self._pods[amount]

    def of_node(self, node: Node) -> Shape:
        return self._shape(node.free, int(finite(node.pods, most=1e6)) or WITHOUT_A_LIMIT, math.floor)

    def of_quota(self, quota: Quota) -> Shape:
        free = self._shape(quota.free, int(finite(quota.pods, most=1e9)), math.floor)
        return tuple(value if name in quota.limits else UNLIMITED for name, value in zip(self.names, free))

    def held(self, quota: Quota) -> Shape:
        """By others, of what is limited."""
        held = self._shape(quota.held, 0, math.floor)
        return tuple(value if name in quota.limits else 0 for name, value in zip(self.names, held))

    def _shape(self, amount: Resources, pods: int, rounded: Callable[[float], int]) -> Shape:
        found = [
            rounded(round(1000 * finite(amount.cpu, most=1e9), 3)),
            int(finite(amount.memory_bytes, most=1e18)),
            pods,
        ]
        if self.others:
            have: dict[str, float] = {}
            for one in amount.others:
                have[one.name] = have.get(one.name, 0.0) + finite(one.count, most=1e9)
            found += [rounded(round(1000 * have.get(name, 0.0), 3)) for name in self.others]
        return tuple(found)


def resources_of(pods: Pods) -> tuple[Resources, ...]:
    return pods.chief, pods.ps, pods.worker, pods.other


def together(shapes: Iterable[tuple[Sequence[int], int]], dimensions: int) -> list[int]:
    """Of so many of each."""
    found = [0] * dimensions
    for shape, count in shapes:
        for at, value in enumerate(shape):
            found[at] += count * value
    return found


class Room:
    """What is free on each node. The first node where a pod fits is found from where the last of its shape was: nodes before it
    are looked at again only when something was given back there.

    Args:
        subsets: places of nodes, in their order: those to which some pods may go. The one at `ALL` is not looked at.
    """

    def __init__(self, nodes: Sequence[Shape], subsets: Sequence[Sequence[int]] = ((),)) -> None:
        self.free = [list(one) for one in nodes]
        self._subsets: list[Sequence[int]] = [range(len(nodes)), *subsets[1:]]
        self._first: list[dict[Shape, list[int]]] = [{} for _ in self._subsets]
        """By subset, then shape → [no earlier place in it has room, given back until then]."""

        self._given: list[int] = []

    def fits(self, node: int, shape: Shape) -> bool:
        free = self.free[node]
        if free[0] < shape[0] or free[1] < shape[1] or free[2] < shape[2]:
            return False
        return len(shape) == 3 or all(have >= need for have, need in zip(free[3:], shape[3:]))

    def first(self, shape: Shape, subset: int = ALL) -> int:
        """The first node with room for it, of those of the subset; -1: none."""
        nodes, known = self._subsets[subset], self._first[subset].get(shape)
        if known is None:
            known = self._first[subset][shape] = [0, len(self._given)]
        at = known[0]
        if known[1] < len(self._given):
            given = min(self._given[known[1] :])
            at = min(at, given if subset == ALL else bisect_left(nodes, given))
        free, cpu, memory, pods, more = self.free, shape[0], shape[1], shape[2], len(shape) > 3
        count = len(nodes)
        while at < count:
            have = free[nodes[at]]
            if have[0] >= cpu and have[1] >= memory and have[2] >= pods and (not more or self.fits(nodes[at], shape)):
                break
            at += 1
        known[:] = at, len(self._given)
        return nodes[at] if at < count else -1

    def among(self, shape: Shape, nodes: Iterable[int]) -> int:
        """The first of these nodes with room for it; -1: none."""
        return next((node for node in nodes if self.fits(node, shape)), -1)

    def take(self, node: int, shape: Shape) -> None:
        """May take more than there is: who is there is there."""
        have = self.free[node]
        for at, value in enumerate(shape):
            have[at] -= value

    def give(self, node: int, shape: Shape) -> None:
        have = self.free[node]
        for at, value in enumerate(shape):
            have[at] += value
        self._given.append(node)

    def short(self) -> list[int]:
        """Nodes on which more is taken than there is."""
        return [node for node, have in enumerate(self.free) if min(have) < 0]
