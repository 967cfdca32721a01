"""Pods that wait for room, by priority, then age.

Those of one priority and one request are of a kind: where one of them finds no room, and nobody's going would make any, those
behind it need not be asked. So a pass over thousands that wait takes as long as there are kinds.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable

from deeprec_ext.arbiter.observed import Resources
from deeprec_ext.simulator.cluster.machines import Pod


class Kind:
    """Pods of one priority and one request."""

    __slots__ = ("numbers", "pods")

    def __init__(self) -> None:
        self.numbers: list[int] = []  # of those, the oldest first
        self.pods: dict[int, Pod] = {}


class Line:
    def __init__(self) -> None:
        self._kinds: dict[int, dict[Resources, Kind]] = {}  # by priority

    def add(self, pod: Pod) -> None:
        kind = self._kinds.setdefault(pod.priority, {}).setdefault(pod.request, Kind())
        bisect.insort(kind.numbers, pod.number)
        kind.pods[pod.number] = pod

    def drop(self, pod: Pod) -> None:
        """Where it is in it."""
        level = self._kinds.get(pod.priority, {})
        kind = level.get(pod.request)
        if kind is None or kind.pods.pop(pod.number, None) is None:
            return
        del kind.numbers[bisect.bisect_left(kind.numbers, pod.number)]
        if not kind.pods:
            del level[pod.request]

    def look(self, newest: int, tries: Callable[[Pod], bool]) -> None:
        """Each of those up to the number `newest` tries, in order.

        Args:
            tries: whether those behind it of its kind are to try as well; it may have dropped this pod, and added others.
        """
        for priority in sorted(self._kinds, reverse=True):
            heads = [(kind.numbers[0], at, 0, kind) for at, kind in enumerate(self._kinds[priority].values())]
            heapq.heapify(heads)
            while heads:
                number, at, place, kind = heads[0]
                if number <= newest and tries(kind.pods[number]):
                    place += place < len(kind.numbers) and kind.numbers[place] == number
                    if place < len(kind.numbers):
                        heapq.heapreplace(heads, (kind.numbers[place], at, place, kind))
                        continue
                heapq.heappop(heads)


class Refused:
    """For whom there was nothing: whoever is no more important and wants no less need not ask."""

    def __init__(self) -> None:
        self._least: list[tuple[int, float, int]] = []

    def add(self, priority: int, request: Resources) -> None:
        cores, memory = request.cpu, request.memory_bytes
        self._least = [
            one for one in self._least if one[0] > priority or one[1] < cores or one[2] < memory
        ] + [(priority, cores, memory)]  # fmt: skip

    def has(self, priority: int, request: Resources) -> bool:
        cores, memory = request.cpu, request.memory_bytes
        for important, fewer, less in self._least:  # noqa: SIM110  (a generator takes twice as long, millions of times)
            if priority <= important and cores >= fewer and memory >= less:
                return True
        return False
