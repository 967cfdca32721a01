"""Like is compared with like: a rate that was measured under other conditions is brought to the present ones, or left out.

Another program takes a core, the input runs dry, a neighbour leaves: then the same size trains slower or faster than before,
and what other sizes did before says nothing about them now. Such a shift shows in what others use of the hosts, and at a size
that was measured on both sides of it. Times between two shifts are an *era*. Eras in which others used as much as now are like
the present. A window of another era counts as what its size did in proportion to a size that both have; the more had to be
taken in proportion, the less sure is it. Without such a size it is not compared at all.
"""

from __future__ import annotations

import heapq
import itertools
import math
import statistics
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deeprec_ext.autoscaler.model.surroundings import CHANGED
from deeprec_ext.autoscaler.observe.observed import Window
from deeprec_ext.autoscaler.outcomes.measured import Key, Measured, key_of, measure

SHIFT_MIN = 0.12
"""Relative difference of medians from which they are of two eras; the noise of windows is mostly below a third of it."""

DEVIATIONS = 4.0
"""And so many times the mean deviation within the eras: of what is all noise some part always looks calm."""

SIDE_MIN = 3
"""Windows on each side of a shift of the rate: two may be slow by chance. What others use is measured, and no chance."""

SIDE_SURE = 7
"""With fewer on a side its median scatters, and of all places where a series can be parted the likeliest is looked at: the
difference has to be so much larger. A steady job whose windows scatter by 5 % had a shift every three hours that was none,
and sizes of before it looked an eighth better."""

DOUBT = 0.5
"""Relative error of a rate that was brought to another era, by how far the eras are apart."""


SUM_ERROR = 1e-9
"""Relative error of sums: places that are as good but for this are as good, and the first counts."""

DEPTH_MAX = 32
"""Of shifts found within stretches between shifts: shifts that come evenly are found at a tenth of it, and the time that the
search takes is bounded, whatever comes."""


@dataclass(frozen=True)
class Comparable:
    """A window, and its throughput as it would be now."""

    window: Window
    rate: float  # examples per second
    drift: float  # relative error of that; 0: measured under the present conditions


def comparable(windows: Sequence[Window]) -> tuple[Comparable, ...]:
    """Those that can be compared with the newest one. `windows`: oldest first; the order stays."""
    shifts = _shifts(windows)
    if not shifts:
        return tuple(Comparable(window, window.examples_per_second, 0.0) for window in windows)
    eras: list[list[Window]] = [[] for _ in range(len(shifts) + 1)]
    for window in windows:
        eras[bisect_right(shifts, window.start)].append(window)
    level = _others(eras[-1])
    described = [(era, _rates(era), era is eras[-1] or _alike(_others(era), level)) for era in reversed(eras)]
    described.sort(key=lambda one: not one[2])  # what is like the present first, and of that the newest
    having: dict[Key, list[int]] = {}  # places in `described` of the eras that have a size
    for at, (_, rates, _) in enumerate(described):
        for key in rates:
            having.setdefault(key, []).append(at)
    found: list[Comparable] = []
    now: dict[Key, float] = {}  # examples per second, of sizes of which it is known
    due = [at for at, (_, _, alike) in enumerate(described) if alike]  # a heap: of those that can be linked the first
    seen = set(due)
    while due:
        era, rates, _ = described[heapq.heappop(due)]
        factor = statistics.median([now[key] / rate for key, rate in rates.items() if key in now] or [1.0])
        for key in rates.keys() - now.keys():
            now[key] = factor * rates[key]
            for at in set(having[key]) - seen:
                seen.add(at)
                heapq.heappush(due, at)
        drift = DOUBT * abs(factor - 1)
        found += [Comparable(one, one.examples_per_second * factor, drift) for one in era]
    return tuple(sorted(found, key=lambda one: one.window.start))


def by_size(windows: Sequence[Comparable]) -> dict[Key, Measured]:
    """What each size would do now. Windows under the present conditions count alone, where a size has two of them."""
    grouped: dict[Key, list[Comparable]] = {}
    for one in windows:
        grouped.setdefault(key_of(one.window.size), []).append(one)
    found = {}
    for key, group in grouped.items():
        here = [one for one in group if not one.drift]
        group = here if len(here) > 1 else group
        found[key] = measure([one.rate for one in group], statistics.fmean(one.drift for one in group))
    return found


# ------------------------------------------------------------------------------------------------------- internals


def _shifts(windows: Sequence[Window]) -> list[float]:
    """Starts of eras, ascending. Where the rate of a size shifts about when others begin to use another share of the hosts it
    is one shift, and that is when: which of a size's few windows are after it a slow one may hide."""
    known = [window for window in windows if window.host_cores > 0]
    loads = [window.others_cores / window.host_cores for window in known]
    of_load = [known[at].start for at in _splits(loads, 1, 1, lambda one, other: CHANGED)]
    grouped: dict[Key, list[Window]] = {}
    for window in windows:
        grouped.setdefault(key_of(window.size), []).append(window)
    found = set(of_load)
    for group in grouped.values():
        rates = [window.examples_per_second for window in group]
        for at in _splits(rates, SIDE_MIN, SIDE_SURE, lambda one, other: SHIFT_MIN * min(one, other)):
            first, last = group[at - SIDE_MIN + 1].start, group[at + SIDE_MIN - 1].start
            if bisect_right(of_load, first) == bisect_right(of_load, last):
                found.add(group[at].start)
    return sorted(found)


def _splits(
    values: Sequence[float], side: int, sure: int, least: Callable[[float, float], float], first: int = 0,
    depth: int = DEPTH_MAX,
) -> list[int]:  # fmt: skip
    """Places before which the level of a series has shifted, ascending.

    Args:
        side: values on each side of a shift, at least.
        sure: with fewer on a side the shift has to be larger.
        least: difference of two levels that is a shift.
    """
    if len(values) < 2 * side or max(values) - min(values) < least(min(values), max(values)) or not depth:
        return []
    to, since = _scatters(values), _scatters(values[::-1])[::-1]
    both = [to[at] + since[at] for at in range(side, len(values) - side + 1)]
    least_scatter = min(both) + SUM_ERROR * to[-1]
    at = side + next(place for place, scatter in enumerate(both) if scatter <= least_scatter)
    before, after = statistics.median(values[:at]), statistics.median(values[at:])
    within = sum(abs(value - before) for value in values[:at]) + sum(abs(value - after) for value in values[at:])
    deviations = DEVIATIONS * max(1.0, math.sqrt(sure / min(at, len(values) - at)))
    if abs(after - before) < max(least(before, after), deviations * within / len(values)):
        return []
    return [
        *_splits(values[:at], side, sure, least, first, depth - 1), first + at,
        *_splits(values[at:], side, sure, least, first + at, depth - 1),
    ]  # fmt: skip


def _scatters(values: Sequence[float]) -> list[float]:
    """Sum of the distances from their median, of the first 0, 1, 2, ... values; all in n log n.

    The smaller half of the values so far and the larger one are heaps, of which only the sums and the middle are needed.
    """
    lower: list[float] = []  # negated; one more than `upper`, or as many
    upper: list[float] = []
    found, sums = [0.0], [0.0, 0.0]
    for value, odd in zip(values, itertools.cycle((True, False))):
        if odd:  # the least of the larger half goes to the smaller one
            moved = heapq.heappushpop(upper, value)
            heapq.heappush(lower, -moved)
            sums[0], sums[1] = sums[0] + moved, sums[1] + (value - moved)
        else:
            moved = -heapq.heappushpop(lower, -value)
            heapq.heappush(upper, moved)
            sums[0], sums[1] = sums[0] + (value - moved), sums[1] + moved
        found.append(max(0.0, sums[1] - sums[0] + (-lower[0] if odd else 0.0)))
    return found


def _others(era: Sequence[Window]) -> float | None:
    """Share of the hosts that others used; None: not known."""
    loads = [window.others_cores / window.host_cores for window in era if window.host_cores > 0]
    return statistics.median(loads) if loads else None


def _alike(then: float | None, now: float | None) -> bool:
    """Whether others used as much of the hosts then as now."""
    return then is not None and now is not None and abs(then - now) < CHANGED


def _rates(windows: Sequence[Window]) -> dict[Key, float]:
    grouped: dict[Key, list[float]] = {}
    for window in windows:
        grouped.setdefault(key_of(window.size), []).append(window.examples_per_second)
    return {key: statistics.median(rates) for key, rates in grouped.items()}
