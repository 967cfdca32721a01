"""Changes of size are trials: what was foretold of each, what it brought, and how often a direction has failed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deeprec_ext.autoscaler.observe.observed import Change, Size
from deeprec_ext.autoscaler.outcomes.conditions import Comparable
from deeprec_ext.autoscaler.outcomes.measured import middle_of

Counts = tuple[int, int]
"""(PS, workers)"""

GAINED = 0.1
"""A growth that brought this share of throughput has not failed, whatever was foretold."""

HALF = 0.5
"""Of what was foretold: with less a prediction has failed."""

WORSE = 0.05
"""A size that trains slower than foretold by this share is a failed prediction, also where it saves."""

TAKEN_BACK_SECONDS = 1200.0
"""A change that was taken back so soon has failed, also where its windows are forgotten."""


@dataclass(frozen=True)
class Stay:
    """A stretch of time in which the job had one size, as far as its counts go."""

    start: float  # seconds since the start of the job: when the change to it had ended
    end: float  # when the next one had; infinite: it lasts
    counts: Counts
    decision: int = -1  # that led to it; -1: none of ours
    foretold: float = 0.0  # examples per second; 0: nothing was
    standstill: float = 0.0  # seconds of pause of the change that led to it
    change_seconds: float = 0.0  # that it took
    by_hand: bool = False  # somebody asked for it


@dataclass(frozen=True)
class Trial:
    """One change of ours."""

    time: float
    number: int  # of the decision
    before: Counts
    after: Counts
    foretold: float | None  # share of throughput gained, of what was measured before; None: not known
    gained: float | None  # share that was measured; None: not measured
    failed: bool

    @property
    def direction(self) -> Counts:
        return direction(self.before, self.after)


def direction(before: Counts, after: Counts) -> Counts:
    """Signs: (1, 0) is PS up, (1, 1) both up."""
    return _sign(after[0] - before[0]), _sign(after[1] - before[1])


def counts_of(size: Size) -> Counts:
    return size.ps, size.workers


def stays(size: Size, changes: Sequence[Change], first: Size | None = None) -> list[Stay]:
    """Of a job of this size now, oldest first; what one decision has changed is one stay.

    Args:
        changes: in the order of time.
        first: the size with which the job began. Where changes after it are forgotten, it is taken to have had it until then.
    """
    found: list[Stay] = []
    end, (ps, workers) = float("inf"), counts_of(size)
    for change in reversed([one for one in changes if one.outcome == "committed" and one.from_count != one.to_count]):
        ours = change.decision if not change.manual else -1
        if not found or ours < 0 or found[-1].decision != ours:
            stay = Stay(change.time, end, (ps, workers), ours, change.foretold, change.pause_seconds, change.seconds)
            found.append(replace(stay, by_hand=change.manual))
        else:  # PS and workers, by the same decision: between them was no size that anybody wanted
            within = found[-1].change_seconds if change.time == found[-1].start else 0.0  # one change of both
            found[-1] = replace(
                found[-1], foretold=change.foretold or found[-1].foretold,
                standstill=found[-1].standstill + change.pause_seconds,
                change_seconds=found[-1].change_seconds + max(0.0, change.seconds - within),
            )  # fmt: skip
        end = found[-1].start
        ps, workers = (change.from_count, workers) if change.role == "ps" else (ps, change.from_count)
    if first is not None and counts_of(first) != (ps, workers):
        forgotten = end if found else 0.0
        found += [Stay(forgotten, end, (ps, workers)), Stay(0.0, forgotten, counts_of(first))]
    else:
        found.append(Stay(0.0, end, (ps, workers)))
    return found[::-1]


class Rates:
    """Throughput of stays, each window of which is looked at once. Args: windows: oldest first."""

    def __init__(self, windows: Sequence[Comparable]) -> None:
        self._windows: dict[Counts, list[Comparable]] = {}
        for one in windows:
            self._windows.setdefault(counts_of(one.window.size), []).append(one)
        self._starts = {counts: [one.window.start for one in group] for counts, group in self._windows.items()}
        self._at_any_time: dict[Counts, float] = {}

    def within(self, stay: Stay) -> list[Comparable]:
        """Its own windows."""
        starts = self._starts.get(stay.counts, [])
        first, end = bisect_left(starts, stay.start - 1e-3), bisect_left(starts, stay.end)
        return self._windows[stay.counts][first:end] if first < end else []

    def near(self, stay: Stay) -> float:
        """Throughput of a stay; where its own windows are forgotten, of its counts at any time. 0: not known."""
        own = self.within(stay)
        return middle_of([one.rate for one in own]) if own else self._at_any(stay.counts)

    def _at_any(self, counts: Counts) -> float:
        if counts not in self._at_any_time:
            rates = [one.rate for one in self._windows.get(counts, [])]
            self._at_any_time[counts] = middle_of(rates) if rates else 0.0
        return self._at_any_time[counts]


def trials(past: Sequence[Stay], windows: Sequence[Comparable]) -> list[Trial]:
    """Of the changes that decisions made, oldest first."""
    found, rates = [], Rates(windows)
    for number, (before, after) in enumerate(zip(past, past[1:])):
        if after.decision < 0:
            continue
        old, new = rates.near(before), rates.near(after)
        gained = new / old - 1 if old and new else None
        foretold = _foretold(after, before, old, rates)
        following = past[number + 2] if number + 2 < len(past) else None
        taken_back = (
            following is not None and following.counts == before.counts and (following.decision >= 0 or following.by_hand)
            and following.start - after.start < TAKEN_BACK_SECONDS
        )  # fmt: skip
        failed = _failed(gained, foretold, direction(before.counts, after.counts)) if gained is not None else taken_back
        found.append(Trial(after.start, after.decision, before.counts, after.counts, foretold, gained, failed))
    return found


def failures(past: Sequence[Trial], towards: Counts) -> list[Trial]:
    """Of a direction, newest first, since it was last right."""
    row: list[Trial] = []
    for trial in reversed(past):
        if trial.direction == towards and (trial.failed or trial.gained is not None):
            if not trial.failed:
                break
            row.append(trial)
    return row


# ------------------------------------------------------------------------------------------------------- internals


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


def _foretold(after: Stay, before: Stay, old: float, rates: Rates) -> float | None:
    """As a share of what was measured then: a rate that was foretold under other conditions is of those conditions."""
    raw = [one.window.examples_per_second for one in rates.within(before)]
    base = middle_of(raw) if raw else old
    return after.foretold / base - 1 if after.foretold > 0 and base > 0 else None


def _failed(gained: float, foretold: float | None, towards: Counts) -> bool:
    if max(towards) > 0:
        return gained < (min(GAINED, HALF * foretold) if foretold is not None and foretold > 0 else 0.0)
    return gained < (min(0.0, foretold) if foretold is not None else 0.0) - WORSE
