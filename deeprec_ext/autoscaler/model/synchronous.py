"""How fast a job without PS trains at a size: the time of the step that all its workers make together.

The form is Pollux's (Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI '21,
their model of system throughput). With n workers, the chief among them, of which each has m records of a step:

    T_grad = alpha + beta m / cores          the slowest worker's own part
    T_sync = 0 for n = 1, else ring + further (n - 2)
    T_iter = (T_grad^gamma + T_sync^gamma)^(1 / gamma)

A job trains n m / T_iter records a second. Where the batch is that of a step, m = M / n: a step gets shorter with n until
alpha and the ring are all of it. Where each worker has a batch of its own, m stays and a step has more records.

Workers tell what of a step they spend in sums. Whoever is slowest is waited for by all others, in theirs: so the longest of
what is left of a step without its sum is T_grad, and the shortest sum is T_sync. Both are fitted by themselves. Where they are
not known, the whole step is. gamma is 1 where the parts add up, as they do while sums wait for the last gradient, and more
where they overlap.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from deeprec_ext.autoscaler.model.surroundings import UNKNOWN, Surroundings
from deeprec_ext.autoscaler.model.throughput import FASTER_MAX, MOST, OLDER, SIZES_TO_HOLD_OUT, Key, SizeModel
from deeprec_ext.autoscaler.observe.observed import Size, Window
from deeprec_ext.units import format_seconds

NAMES = ("alpha", "beta", "ring", "further", "gamma")

PULL = 0.05
"""Weight of a prior beside a row of what was measured."""

ALPHA, RING = 0.1, 0.1
"""Shares of a step that they are taken for until sizes have shown them: a first worker more is worth a trial."""

FURTHER = 0.2
"""Of `ring`, what each worker beyond the second adds, likewise: a ring sends 2 (n - 1) / n times what there is to sum, and on
one host the processes share its memory and cores."""

GAMMAS = tuple(1 + 0.25 * step for step in range(37))
"""As Pollux bounds it: 1 to 10."""

GAMMA_PULL = 1e-3
"""Of gamma towards 1, against squares of relative errors."""

Coefficients = tuple[float, float, float, float, float]


@dataclass(frozen=True)
class Point:
    """What was measured at one size. 0 seconds of a part: not known. `weight`: 1 for a size with many windows."""

    key: Key
    records: float  # of one worker in a step
    seconds: float  # of a step
    own_seconds: float  # of these, the slowest worker's without its sum
    sum_seconds: float  # the shortest sum of any worker
    weight: float = 1.0

    @property
    def trainers(self) -> int:
        return self.key[1]

    @property
    def work(self) -> float:
        """Records per core."""
        return self.records / self.key[3]


@dataclass(frozen=True)
class SynchronousModel(SizeModel):
    """A fitted model. `coefficients` in the order of `NAMES`, seconds and core seconds per record.

    `records`: of a step, of one worker where each has a batch of its own (`local`), else of all.
    """

    coefficients: Coefficients
    records: float
    local: bool
    windows: int
    spread: float
    points: tuple[Point, ...] = field(repr=False)
    around: Surroundings = field(default=UNKNOWN, repr=False)

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        return tuple(point.key for point in self.points)

    def parts(self, size: Size) -> tuple[float, float]:
        """(T_grad, T_sync) in seconds."""
        return _parts(self.coefficients, size.trainers, self._each(size) / self.around.key(size)[3])

    def step_seconds(self, size: Size) -> float:
        least = min((point.seconds / FASTER_MAX for point in self.points), default=1 / MOST)
        return max(_together(*self.parts(size), self.coefficients[4]), least)

    def predict(self, size: Size) -> float:
        return size.trainers * self._each(size) / self.step_seconds(size)

    def binding(self, size: Size) -> tuple[str, float]:
        own, summing = self.parts(size)
        fixed = min(self.coefficients[0], own)
        parts = {"trainer CPU": own - fixed, "fixed": fixed, "sum": summing}
        name = max(parts, key=lambda one: parts[one])
        return name, parts[name] / (own + summing) if own + summing > 0 else 0.0

    def told(self, size: Size) -> str:
        """`a step of 80 ms, 25 ms of it the sum`."""
        seconds, (_, summing) = self.step_seconds(size), self.parts(size)
        return f"a step of {format_seconds(seconds)}" + (
            f", {format_seconds(summing)} of it the sum" if summing else ""
        )

    @cached_property
    def mape_holdout(self) -> float | None:
        if len(self.points) < SIZES_TO_HOLD_OUT:
            return None
        errors = []
        for one in self.points:
            found = solve([point for point in self.points if point is not one])
            errors.append(abs(one.seconds / _together(*_parts(found, one.trainers, one.work), found[4]) - 1))
        return statistics.fmean(errors)

    def _each(self, size: Size) -> float:
        return self.records if self.local else self.records / size.trainers


def fit(windows: Sequence[Window], around: Surroundings = UNKNOWN, local: bool = False) -> SynchronousModel | None:
    """The model of these windows; None where there is nothing to learn from.

    Args:
        around: where sizes are predicted for.
        local: each worker is said to have a batch of its own. Windows of two sizes show it, and are believed instead.
    """
    good = [
        window for window in windows
        if window.size.ps == 0 and window.size.workers >= 0 and window.size.worker_cpu >= 0
        and math.isfinite(window.size.cpu) and 1 / MOST < window.examples_per_second < MOST
    ]  # fmt: skip
    if not good:
        return None
    around = around.learned(good)
    points = tuple(_points_of(good, around))
    local = _is_local(points, local)
    coefficients = solve(points)
    records = statistics.median(point.records if local else point.records * point.trainers for point in points)
    model = SynchronousModel(coefficients, records, local, len(good), 0.0, points, around)
    deviations = [abs(model.predict(one.size) / one.examples_per_second - 1) for one in good]
    return SynchronousModel(
        coefficients, records, local, len(good), 1.4826 * statistics.median(deviations), points, around
    )


def solve(points: Sequence[Point]) -> Coefficients:
    """By non-negative least squares, relative to the step of each size; `points` must not be empty."""
    import numpy as np
    from scipy.optimize import nnls

    step = statistics.median(point.seconds for point in points)
    work = statistics.median(point.work for point in points)
    pulls = (
        ((1 / step, 0.0, 0.0, 0.0), ALPHA),
        ((0.0, work / step, 0.0, 0.0), 1 - ALPHA),
        ((0.0, 0.0, 1 / step, 0.0), RING),
        ((0.0, 0.0, -FURTHER / step, 1 / step), 0.0),
    )
    rows = [[PULL * value for value in row] for row, _ in pulls]
    sides = [PULL * side for _, side in pulls]
    for point in points:
        several, further = float(point.trainers > 1), float(max(0, point.trainers - 2))
        own, ring = (1.0, point.work, 0.0, 0.0), (0.0, 0.0, several, further)
        root = math.sqrt(point.weight) / point.seconds
        known = ((own, point.own_seconds), (ring, point.sum_seconds if several else 0.0))
        if not point.own_seconds:
            known = (((1.0, point.work, several, further), point.seconds),)  # type: ignore[assignment]
        for row, seconds in known:
            rows.append([root * value for value in row])
            sides.append(root * seconds)
    alpha, beta, first, more = (float(value) for value in nnls(np.array(rows), np.array(sides))[0])
    found = alpha, beta, first, more, _gamma(points)
    if not all(map(math.isfinite, found)):
        raise ArithmeticError("the throughput model has no finite coefficients")
    return found


# ------------------------------------------------------------------------------------------------------- internals


def _parts(coefficients: Coefficients, trainers: int, work: float) -> tuple[float, float]:
    alpha, beta, ring, further, _ = coefficients
    return alpha + beta * work, ring + further * (trainers - 2) if trainers > 1 else 0.0


def _together(own: float, summing: float, gamma: float) -> float:
    most = max(own, summing)
    if not most > 0:
        return 1 / MOST
    return float(most * ((own / most) ** gamma + (summing / most) ** gamma) ** (1 / gamma))


def _gamma(points: Sequence[Point]) -> float:
    """How far the parts overlap, by sizes at which both and the whole are known."""
    known = [point for point in points if point.own_seconds > 0 and point.sum_seconds > 0 and point.trainers > 1]

    def off(gamma: float) -> float:
        errors = (
            one.weight * math.log(_together(one.own_seconds, one.sum_seconds, gamma) / one.seconds) ** 2
            for one in known
        )
        return sum(errors) + GAMMA_PULL * (gamma - 1) ** 2

    return min(GAMMAS, key=off)


def _points_of(windows: Sequence[Window], around: Surroundings) -> list[Point]:
    """One per size, in the order of the sizes; windows from before others on the host used what they use now count less."""
    grouped: dict[Key, list[Window]] = {}
    for window in windows:
        grouped.setdefault(around.key(window.size), []).append(window)
    points = []
    for key, group in sorted(grouped.items()):
        newer = [window for window in group if window.start >= around.since]
        weight, group = (1.0, newer) if newer else (OLDER, group)
        known = [window.examples_per_step for window in group if window.examples_per_step > 0]
        records = statistics.median(known) if known else 1.0 / key[1]
        seconds = key[1] * records / statistics.median(window.examples_per_second for window in group)
        told, own, summing = [window for window in group if window.own_seconds > 0], 0.0, 0.0
        if key[1] == 1:
            own = seconds
        elif told:
            own = min(seconds, statistics.median(window.own_seconds for window in told))
            summing = min(seconds, statistics.median(window.sum_seconds for window in told))
        points.append(Point(key, records, seconds, own, summing, weight * len(group) / (len(group) + 1.0)))
    return points


def _is_local(points: Sequence[Point], said: bool) -> bool:
    """Whether a worker's records of a step are as many with more workers."""
    fewest, most = min(points, key=lambda one: one.trainers), max(points, key=lambda one: one.trainers)
    if most.trainers <= fewest.trainers:
        return said
    return most.records * math.sqrt(most.trainers) > fewest.records * math.sqrt(fewest.trainers)
