"""Throughput as it was measured, by size."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from deeprec_ext.autoscaler.observe.observed import Size, Window

MANY = 10
"""Windows from which their mean and deviation are taken as they are, slow ones included."""

Key = tuple[int, int, float, float]


def key_of(size: Size) -> Key:
    """What throughput depends on: memory makes nothing faster."""
    return size.ps, size.workers, size.ps_cpu, size.worker_cpu


@dataclass(frozen=True)
class Measured:
    """Throughput that was seen at one size."""

    rate: float  # examples per second: of few windows the median, of many the mean
    spread: float  # relative standard deviation of one window
    windows: int
    drift: float = 0.0  # relative error of bringing the rate to the present conditions; 0: measured under them


def middle_of(rates: Sequence[float]) -> float:
    """What rates of windows amount to: one of few may be slow by chance, but it is the mean that ends a job."""
    return statistics.fmean(rates) if len(rates) >= MANY else statistics.median(rates)


def measure(rates: Sequence[float], drift: float = 0.0) -> Measured:
    """Of the windows' rates, all positive; at least one."""
    middle = middle_of(rates)
    if len(rates) >= MANY:
        return Measured(middle, statistics.stdev(rates) / middle, len(rates), drift)
    deviation = statistics.median(abs(rate - middle) for rate in rates)
    # with few windows the median deviation is mostly too small; the mean deviation is not robust, but never 0 by chance
    few = statistics.fmean(abs(rate - middle) for rate in rates) if len(rates) < 5 else 0.0
    return Measured(middle, max(1.4826 * deviation, 1.2533 * few) / middle, len(rates), drift)


def newest(
    windows: Sequence[Window], per_size: int, sizes: int, first: Size | None = None, here: int = 0
) -> tuple[Window, ...]:
    """The newest `per_size` windows of each of the `sizes` sizes seen last, under each load of others, in their order.

    Those in which trainers prepared sessions beside count where a size has no others.

    Args:
        windows: oldest first.
        first: of these counts, windows are kept, however many sizes came after it.
        here: so many are kept of the size seen last, if that is more.
    """
    clear = {key_of(window.size) for window in windows if not window.preparing}
    counts: dict[tuple[Key, int], int] = {}
    seen: set[Key] = set()
    kept: list[Window] = []
    present: Key | None = None
    for window in reversed(windows):
        key = key_of(window.size)
        if window.preparing and key in clear:
            continue
        count = counts.get((key, window.level), 0)
        present = present or key
        most = max(per_size, here) if key == present else per_size
        begun_with = first is not None and key[:2] == key_of(first)[:2]
        if count < most and (key in seen or len(seen) < sizes or begun_with):
            counts[key, window.level] = count + 1
            seen.add(key)
            kept.append(window)
    return tuple(reversed(kept))
