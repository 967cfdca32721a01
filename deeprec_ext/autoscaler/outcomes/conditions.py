"""Like is compared with like: a rate that was measured under other conditions is brought to the present ones, or left out.

Another program takes a core, the input runs dry, a neighbour leaves: then the same size trains slower or faster than before,
and what other sizes did before says nothing about them now. Such a shift shows in what others use of the hosts, and at a size
that was measured on both sides of it. Times between two shifts are an *era*. Eras in which others used as much as now are like
the present. A window of another era counts as what its size did in proportion to a size that both have; the more had to be
taken in proportion, the less sure is it. Without such a size it is not compared at all.
"""

from __future__ import annotations

import statistics
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

DOUBT = 0.5
"""Relative error of a rate that was brought to another era, by how far the eras are apart."""


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
        eras[sum(shift <= window.start for shift in shifts)].append(window)
    found: list[Comparable] = []
    now: dict[Key, float] = {}  # examples per second, of sizes of which it is known
    pending = [(era, _rates(era), _alike(era, eras[-1])) for era in reversed(eras)]
    pending.sort(key=lambda one: not one[2])  # what is like the present first, and of that the newest
    while pending:
        at = next(
            (at for at, (_, rates, alike) in enumerate(pending) if alike or not now.keys().isdisjoint(rates)), None
        )
        if at is None:
            break
        era, rates, _ = pending.pop(at)
        factor = statistics.median([now[key] / rate for key, rate in rates.items() if key in now] or [1.0])
        now = {**{key: factor * rate for key, rate in rates.items()}, **now}
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
    """Starts of eras, ascending."""
    grouped: dict[Key, list[Window]] = {}
    for window in windows:
        grouped.setdefault(key_of(window.size), []).append(window)
    found: set[float] = set()
    for group in grouped.values():
        rates = [window.examples_per_second for window in group]
        found |= {group[at].start for at in _splits(rates, SIDE_MIN, lambda one, other: SHIFT_MIN * min(one, other))}
    known = [window for window in windows if window.host_cores > 0]
    loads = [window.others_cores / window.host_cores for window in known]
    found |= {known[at].start for at in _splits(loads, 1, lambda one, other: CHANGED)}
    return sorted(found)


def _splits(values: Sequence[float], side: int, least: Callable[[float, float], float], first: int = 0) -> list[int]:
    """Places before which the level of a series has shifted.

    Args:
        side: values on each side of a shift, at least.
        least: difference of two levels that is a shift.
    """
    if len(values) < 2 * side or max(values) - min(values) < least(min(values), max(values)):
        return []
    at = min(range(side, len(values) - side + 1), key=lambda at: _scatter(values[:at]) + _scatter(values[at:]))
    before, after = statistics.median(values[:at]), statistics.median(values[at:])
    within = (_scatter(values[:at]) + _scatter(values[at:])) / len(values)
    if abs(after - before) < max(least(before, after), DEVIATIONS * within):
        return []
    return [*_splits(values[:at], side, least, first), first + at, *_splits(values[at:], side, least, first + at)]


def _alike(era: Sequence[Window], present: Sequence[Window]) -> bool:
    """Whether others used as much of the hosts then as now; the present one is like itself."""
    loads = [
        [window.others_cores / window.host_cores for window in one if window.host_cores > 0] for one in (era, present)
    ]
    return era is present or (all(loads) and abs(statistics.median(loads[0]) - statistics.median(loads[1])) < CHANGED)


def _scatter(rates: Sequence[float]) -> float:
    middle = statistics.median(rates)
    return sum(abs(rate - middle) for rate in rates)


def _rates(windows: Sequence[Window]) -> dict[Key, float]:
    grouped: dict[Key, list[float]] = {}
    for window in windows:
        grouped.setdefault(key_of(window.size), []).append(window.examples_per_second)
    return {key: statistics.median(rates) for key, rates in grouped.items()}
