"""What the changes of a job have brought: what it trained, against what it would have trained at its first size."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from deeprec_ext.autoscaler.outcomes.conditions import Comparable
from deeprec_ext.autoscaler.outcomes.trials import Counts, Rates, Stay


@dataclass(frozen=True)
class Account:
    """Of the time from the first change to `now`. Rates are measured ones, brought to the same conditions."""

    first: Counts
    first_rate: float  # examples per second; 0: nothing was measured at the first size
    seconds: float  # since the first change began, without those in which the job stood
    rate: float  # examples per second meanwhile, changes included; what was not measured counts as the first size

    @property
    def gained(self) -> float:
        """Share of throughput that the changes have brought; less than 0: they cost more."""
        return self.rate / self.first_rate - 1 if self.first_rate > 0 and self.seconds > 0 else 0.0

    @property
    def lost_seconds(self) -> float:
        """By how much the job is behind where it would be at its first size; less than 0: it is ahead."""
        return -self.gained * self.seconds


STOOD_SECONDS = 120.0
STOOD_INTERVALS = 5.0
"""With so long, and so many usual intervals, between two times at which something was heard of a job its launcher was gone: it
stood until it was resumed."""

Stretch = tuple[float, float]
"""(begin, end), seconds since the start of the job."""


def stood(times: Sequence[float]) -> list[Stretch]:
    """Stretches in which nothing was heard of the job. Args: times: in order."""
    gaps = [(after - before, before, after) for before, after in zip(times, times[1:])]
    if not gaps:
        return []
    limit = max(STOOD_SECONDS, STOOD_INTERVALS * statistics.median(gap for gap, _, _ in gaps))
    return [(before, after) for gap, before, after in gaps if gap > limit]


def account(
    past: Sequence[Stay], windows: Sequence[Comparable], now: float, disturbance: float, idle: Sequence[Stretch] = ()
) -> Account:
    """Args:
    past: as `trials.stays` has it, oldest first.
    disturbance: share of throughput that a change takes while it goes on.
    idle: in which it stood, as it would have at its first size.
    """
    rates = Rates(windows)
    first_rate = rates.near(past[0])
    if len(past) < 2 or not first_rate:
        return Account(past[0].counts, first_rate, 0.0, first_rate)
    began = max(0.0, past[1].start - past[1].change_seconds)
    trained = 0.0  # of the first size's rate, in seconds
    for before, after in zip(past, past[1:]):  # the change goes on at the size before
        start = max(began, before.start)
        speed = (rates.near(before) or first_rate) / first_rate
        changing = min(after.change_seconds, max(0.0, after.start - start))
        trained += speed * max(
            0.0, after.start - start - _within(idle, start, after.start) - disturbance * changing - after.standstill
        )
    last = past[-1]
    end = max(last.start, min(now, last.end))
    trained += (rates.near(last) or first_rate) / first_rate * (end - last.start - _within(idle, last.start, end))
    seconds = max(0.0, now - began - _within(idle, began, now))
    rate = first_rate * trained / seconds if seconds > 0 and math.isfinite(trained) else first_rate
    return Account(past[0].counts, first_rate, seconds, rate)


def _within(idle: Sequence[Stretch], start: float, end: float) -> float:
    """Seconds of them between these two."""
    return sum(max(0.0, min(end, until) - max(start, since)) for since, until in idle)
