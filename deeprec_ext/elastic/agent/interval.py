"""The steps of a trainer between two reports of Gazer."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque

from deeprec_ext.gazer.metrics import STEP_BUCKETS
from deeprec_ext.proto import deeprec_ext_pb2 as pb

TIMES_MAX = 4096
"""Step times kept for median and percentile, the newest; the histogram has all."""


class Interval:
    """Fed once a step, with a lock of the caller's; read once."""

    def __init__(self) -> None:
        self._steps = 0
        self._times: deque[float] = deque(maxlen=TIMES_MAX)
        self._sums: deque[float] = deque(maxlen=TIMES_MAX)
        self._histogram = [0] * (len(STEP_BUCKETS) + 1)
        self._sum = 0.0
        self._longest = 0.0

    def add(self, seconds: float | None, summed: float = 0.0) -> None:
        """A step was completed; `seconds` after the one before, None where there was none; `summed` of them in a sum."""
        self._steps += 1
        if seconds is None:
            return
        self._times.append(seconds)
        self._sums.append(min(summed, seconds))
        self._histogram[bisect_left(STEP_BUCKETS, seconds)] += 1
        self._sum += seconds
        if seconds > self._longest:
            self._longest = seconds

    def sample(self, examples_per_step: float) -> pb.StepSample:
        times = sorted(self._times)
        return pb.StepSample(
            steps=self._steps,
            examples=round(self._steps * examples_per_step),
            median_seconds=_quantile(times, 0.5),
            p95_seconds=_quantile(times, 0.95),
            longest_seconds=self._longest,
            histogram=self._histogram,
            histogram_seconds=self._sum,
            sum_seconds=_quantile(sorted(self._sums), 0.5),
        )


def _quantile(ordered: list[float], share: float) -> float:
    """The smallest value that so many are not above; 0 of none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
