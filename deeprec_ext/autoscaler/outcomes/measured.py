"""Throughput as it was measured, by size."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from deeprec_ext.autoscaler.observe.observed import Size, Window

Key = tuple[int, int, float, float]


def key_of(size: Size) -> Key:
    """What throughput depends on: memory makes nothing faster."""
    return size.ps, size.workers, size.ps_cpu, size.worker_cpu


@dataclass(frozen=True)
class Measured:
    """Throughput that was seen at one size."""

    rate: float  # examples per second, median over the windows
    spread: float  # relative robust standard deviation of one window
    windows: int
    drift: float = 0.0  # relative error of bringing the rate to the present conditions; 0: measured under them


def measure(rates: Sequence[float], drift: float = 0.0) -> Measured:
    """Of the windows' rates, all positive; at least one."""
    middle = statistics.median(rates)
    deviation = statistics.median(abs(rate - middle) for rate in rates)
    # with few windows the median deviation is mostly too small; the mean deviation is not robust, but never 0 by chance
    few = statistics.fmean(abs(rate - middle) for rate in rates) if len(rates) < 5 else 0.0
    return Measured(middle, max(1.4826 * deviation, 1.2533 * few) / middle, len(rates), drift)


def newest(windows: Sequence[Window], per_size: int, sizes: int) -> tuple[Window, ...]:
    """The newest `per_size` windows of each of the `sizes` sizes seen last, in their order.

    Those in which trainers prepared sessions beside count where a size has no others.
    """
    clear = {key_of(window.size) for window in windows if not window.preparing}
    counts: dict[Key, int] = {}
    kept: list[Window] = []
    for window in reversed(windows):
        key = key_of(window.size)
        if window.preparing and key in clear:
            continue
        count = counts.get(key, 0)
        if count < per_size and (count or len(counts) < sizes):
            counts[key] = count + 1
            kept.append(window)
    return tuple(reversed(kept))
