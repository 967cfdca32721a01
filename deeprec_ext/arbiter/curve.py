"""What sizes are worth to a job: the logarithm of its throughput, so that a doubling counts the same for each job and what
is shared by it is proportionally fair (Kelly, 1997). An AIMaster's word is bounded here.

A step goes to the size with the largest gain per cost of all above (the next corner of the concave hull): a gain that comes
only after two workers is seen. Between two sizes of which the AIMaster spoke, workers are added one by one.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deeprec_ext.arbiter.observed import Bid, Count
from deeprec_ext.arbiter.room import finite

Size = tuple[int, int]
"""(PS, workers beside the chief)."""

PODS_MAX = 5_000
"""Of one role; more are no cluster of ours."""
SIZES_MAX = 64
SLACK = 1.25
"""That throughput may grow faster than processes do: measurements scatter, and the first PS is the narrow place."""
UNKNOWN_GROWTH = 0.5
"""Of linear growth: beyond the largest size of which the AIMaster spoke, up to what it wants."""


def size_of(count: Count) -> Size:
    return int(finite(count.ps, most=PODS_MAX)), int(finite(count.workers, most=PODS_MAX))


def clipped(size: Size, least: Size, most: Size) -> Size:
    return min(max(size[0], least[0]), most[0]), min(max(size[1], least[1]), most[1])


@dataclass(frozen=True)
class Step:
    """The next one on the way to `corner`."""

    ps: int  # more, or fewer
    workers: int
    corner: Size
    rate: float  # gain (or loss) per cost on the way there
    gain: float  # of this step


class Curve:
    """Values of sizes between `least` and `top`.

    Args:
        known: throughput by size, bounded; empty: no model, throughput is taken to follow the trainers.
        costs: of a PS and of a worker, any unit, above 0.
        whole: nothing between `least` and `top` is a size.
    """

    def __init__(
        self, known: Mapping[Size, float], least: Size, top: Size, costs: tuple[float, float], whole: bool = False
    ):
        self.least, self.top, self.costs = least, top, costs
        self.has_model = bool(known) and not whole
        speeds = dict(known) if self.has_model else _by_trainers(least, top, whole)
        self._lines: dict[int, tuple[list[int], list[float]]] = {}
        for (ps, workers), speed in sorted(speeds.items()):
            line = self._lines.setdefault(ps, ([], []))
            line[0].append(workers)
            line[1].append(math.log(speed))
        self._numbers = sorted(self._lines)
        self._values: dict[Size, float] = {}
        self._ups: dict[Size, Step | None] = {}
        self._downs: dict[tuple[Size, Size], Step | None] = {}
        self._whole = whole
        found = {
            size: math.log(speed) for size, speed in speeds.items()
            if least[0] <= size[0] <= top[0] and least[1] <= size[1] <= top[1]
        }  # fmt: skip
        for size in (least, top):
            if size not in found:
                found[size] = self.value(size)
        self.sizes = [(size, found[size], self.cost(size)) for size in sorted(found)]
        self.best = max(self.sizes, key=lambda one: one[1])[0]

    def cost(self, size: Size) -> float:
        return size[0] * self.costs[0] + size[1] * self.costs[1]

    def value(self, size: Size) -> float:
        """The logarithm of its throughput. Between known numbers of workers by a straight line, of as many PS or of the next
        fewer that are known."""
        known = self._values.get(size)
        if known is None:
            known = self._values[size] = self._value(size)
        return known

    def _value(self, size: Size) -> float:
        ps, workers = size
        at = max(0, bisect_right(self._numbers, ps) - 1)
        counts, values = self._lines[self._numbers[at]]
        after = bisect_right(counts, workers)
        if after == 0:
            return values[0] + math.log((workers + 1) / (counts[0] + 1))
        if after == len(counts):
            beyond = math.log((workers + 1) / (counts[-1] + 1))
            if self._numbers[at] < ps and at + 1 == len(self._numbers):
                beyond += math.log(ps / max(1, self._numbers[at]))
            return values[-1] + UNKNOWN_GROWTH * beyond
        share = (workers - counts[after - 1]) / (counts[after] - counts[after - 1])
        return values[after - 1] + share * (values[after] - values[after - 1])

    def speed(self, size: Size) -> float:
        return math.exp(self.value(size))

    def up(self, size: Size, blocked: Sequence[Size] = ()) -> Step | None:
        """Towards the largest gain per cost. `blocked`: sizes that have no room, nor has what is larger in both."""
        if not blocked:
            if size not in self._ups:
                self._ups[size] = self._up(size, blocked)
            return self._ups[size]
        return self._up(size, blocked)

    def _up(self, size: Size, blocked: Sequence[Size]) -> Step | None:
        ps, workers = size
        value, cost = self.value(size), self.cost(size)
        corner, best = size, 0.0
        for other, worth, price in self.sizes:
            if other[0] < ps or other[1] < workers or worth <= value or price <= cost:
                continue
            rate = (worth - value) / (price - cost)
            if rate > best * (1 + 1e-9) and not any(other[0] >= no[0] and other[1] >= no[1] for no in blocked):
                corner, best = other, rate
        if corner == size:
            if blocked and not self._whole:
                return self._smaller(size, blocked)
            return None
        return self._towards(size, corner, best, value)

    def _smaller(self, size: Size, blocked: Sequence[Size]) -> Step | None:
        """One worker more where all known sizes are too large for what is left."""
        one = size[0], size[1] + 1
        if one[1] > self.top[1] or any(one[0] >= no[0] and one[1] >= no[1] for no in blocked):
            return None
        gain = self.value(one) - self.value(size)
        return Step(0, 1, one, gain / self.costs[1], gain) if gain > 0 else None

    def _towards(self, size: Size, corner: Size, rate: float, value: float) -> Step:
        ps, workers = corner[0] - size[0], corner[1] - size[1]
        if ps == 0 and workers > 1 and not self._whole and not self._between(corner[0], size[1], corner[1]):
            workers = 1
        gain = self.value((size[0] + ps, size[1] + workers)) - value
        return Step(ps, workers, corner, rate, gain)

    def down(self, size: Size, least: Size) -> Step | None:
        """Towards the smallest loss per cost."""
        if self._whole or size == least:
            return None
        if (size, least) not in self._downs:
            self._downs[size, least] = self._down(size, least)
        return self._downs[size, least]

    def _down(self, size: Size, least: Size) -> Step | None:
        ps, workers = size
        value, cost = self.value(size), self.cost(size)
        corner, best, price_best = size, math.inf, -1.0
        for other in [(one, worth, price) for one, worth, price in self.sizes if one[0] <= ps and one[1] <= workers] + (
            [(least, self.value(least), self.cost(least))]
        ):
            if other[0][0] < least[0] or other[0][1] < least[1] or other[2] >= cost:
                continue
            rate = (value - other[1]) / (cost - other[2])
            if rate < best * (1 - 1e-9) or (rate <= best * (1 + 1e-9) and other[2] > price_best):
                corner, best, price_best = other[0], rate, other[2]
        if corner == size:
            return None
        fewer = ps - corner[0], workers - corner[1]
        if fewer[0] == 0 and fewer[1] > 1 and not self._between(ps, corner[1], workers):
            fewer = 0, 1
        return Step(*fewer, corner, best, value - self.value((ps - fewer[0], workers - fewer[1])))

    def _between(self, ps: int, low: int, high: int) -> bool:
        line = self._lines.get(ps)
        if line is None:
            return False
        at = bisect_right(line[0], low)
        return at < len(line[0]) and line[0][at] < high

    def enough(self, speed: float) -> Size | None:
        """The cheapest size with this throughput; None: no size has it."""
        if speed <= 0 or not math.isfinite(speed):
            return None
        wanted = math.log(speed)
        found = min(((price, size) for size, worth, price in self.sizes if worth >= wanted), default=None)
        return found[1] if found is not None else None


def _by_trainers(least: Size, top: Size, whole: bool) -> dict[Size, float]:
    """PS come with workers, in proportion."""
    if whole:
        return {least: least[1] + 1.0, top: max(top[1], least[1]) + 1.0 + (top[0] > least[0])}
    ps, workers = top[0] - least[0], top[1] - least[1]
    if workers == 0:
        return {(least[0] + one, least[1]): (least[1] + 1.0) * (1 + one / (1 + least[0])) for one in _spread(ps)}
    return {
        (least[0] + math.ceil(ps * one / workers), least[1] + one): least[1] + one + 1.0 for one in _spread(workers)
    }


def _spread(count: int) -> list[int]:
    """0 to `count`, at most SIZES_MAX of them."""
    return (
        list(range(count + 1))
        if count < SIZES_MAX
        else sorted({count * at // SIZES_MAX for at in range(SIZES_MAX + 1)})
    )


def believed(bid: Bid | None) -> dict[Size, float]:
    """The bid's throughput by size: positive numbers, none that grows much faster than the processes that make it."""
    found: dict[Size, float] = {}
    for one in bid.worth[:SIZES_MAX] if bid is not None else ():
        if 1e-12 < one.examples_per_second < 1e15 and 0 <= one.ps <= PODS_MAX and 0 <= one.workers <= PODS_MAX:
            found[one.ps, one.workers] = one.examples_per_second
    if not found:
        return found
    smallest = min((ps + workers, ps, workers) for ps, workers in found)[1:]
    base = found[smallest]
    for (ps, workers), speed in found.items():
        most = base * SLACK * max(1.0, (workers + 1) / (smallest[1] + 1), (ps + 1) / (smallest[0] + 1))
        if speed > most:
            found[ps, workers] = most
    return found
