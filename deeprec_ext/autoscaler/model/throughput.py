"""How fast a job trains at a size: the formula of `formula.py`, fitted to windows of the running job.

Windows of one size become one point, their median; those from before the last change of the load of others on the host count
where a size has no others, and less. What the fit is worth is measured by leaving out sizes, not windows: a model that only
remembers would do well on another window of a size it has seen.
"""

from __future__ import annotations

import abc
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from deeprec_ext.autoscaler.model.fitting import Point, solve
from deeprec_ext.autoscaler.model.formula import bounds, step_seconds
from deeprec_ext.autoscaler.model.surroundings import UNKNOWN, Surroundings
from deeprec_ext.autoscaler.observe.observed import Size, Window

FOLDS_MAX = 5
SIZES_TO_HOLD_OUT = 3
"""With fewer sizes there is nothing to hold out: one point says nothing about another size."""

DOUBT_MAX = 0.4
"""A relative error from which the model explains nothing: confidence 0."""

ERROR_UNKNOWN = 0.2
"""Taken for the error at other sizes while none could be held out."""

MOST = 1e12
"""Examples per second, cores: beyond this, and below its inverse, it was not measured."""

PREPARING_WEIGHT = 0.5
"""Of a size at which trainers prepared sessions in every window, against one at which they only trained."""

FASTER_MAX = 1000.0
"""No size is thought to make steps so many times as fast as the fastest that was measured: with a few absurd windows all that
costs time can lie in what a size has not, and the formula says 0."""

CORES_MIN = 1e-5
"""No process that trains uses less."""

OLDER = 0.25
"""Weight of windows from before others on the host began to use more or less of it, against those since."""

INPUT_SHARE = 0.2
"""Share of their time that trainers wait for input, from which what no CPU shortens in a step is said to be the input."""

BINDING = ("trainer CPU", "PS CPU", "network", "host CPU", "input", "waiting", "sum", "fixed")
"""What can rule the time of a step. `waiting`: what would be the network, where all processes share one host and there is none
between them: for a PS, for a core, for each other. Without PS (`synchronous.py`): the sum over all workers, and what a worker
does in a step however small its part of the batch is."""

Key = tuple[int, int, float, float]


@dataclass(frozen=True)
class Forecast:
    """What a size is expected to train, and why not more."""

    size: Size
    examples_per_second: float  # the middle of what is expected
    low: float
    high: float
    binding: str  # one of BINDING
    share: float  # of that in the bounds of the step time, of all of them: 1 where nothing else matters
    error: float  # relative; what `low` and `high` are apart by


class SizeModel(abc.ABC):
    """What is expected of sizes, by the sizes that were measured, whatever the formula.

    `spread`: robust relative deviation of single windows from the model. `around`: where sizes are predicted for.
    """

    coefficients: tuple[float, ...]
    spread: float
    around: Surroundings

    @property
    @abc.abstractmethod
    def keys(self) -> tuple[Key, ...]:
        """The sizes that were measured."""

    @abc.abstractmethod
    def predict(self, size: Size) -> float:
        """Examples per second of the whole job, the middle of what is expected."""

    @abc.abstractmethod
    def binding(self, size: Size) -> tuple[str, float]:
        """(the resource that rules the time of a step at a size, its share of all that bound it)."""

    @property
    @abc.abstractmethod
    def mape_holdout(self) -> float | None:
        """Mean absolute relative error of the throughput at sizes that were left out; None with too few sizes."""

    def forecast(self, size: Size) -> Forecast:
        """With what binds it there."""
        rate, doubt = self.predict(size), min(self.doubt, DOUBT_MAX)
        binding, share = self.binding(size)
        return Forecast(size, rate, rate / (1 + doubt), rate * (1 + doubt), binding, share, doubt)

    def told(self, size: Size) -> str:
        """What a step consists of at a size, in words; empty: the formula has none for it."""
        return ""

    @property
    def doubt(self) -> float:
        """Relative error that a prediction for a size that was not shown has to be expected to have."""
        return max(self.spread, self.mape_holdout if self.mape_holdout is not None else ERROR_UNKNOWN)

    def optimistic(self, size: Size) -> float:
        """What a size may well reach: one that was not tried has the benefit of the doubt, one that was tried has not."""
        return self.predict(size) * (1.0 if self.tried(size) else 1.0 + min(self.doubt, DOUBT_MAX))

    def tried(self, size: Size) -> bool:
        """Whether windows of it were among those fitted. Memory makes no difference to throughput."""
        return self.around.key(size) in self._tried

    @cached_property
    def _tried(self) -> frozenset[Key]:
        return frozenset(self.keys)

    @property
    def confidence(self) -> float:
        """0 to 1: few sizes, windows that scatter and a large error at sizes left out all take from it."""
        sizes = len(self.keys)
        return max(0.0, 1.0 - self.doubt / DOUBT_MAX) * sizes / (sizes + 1.0)


@dataclass(frozen=True)
class ThroughputModel(SizeModel):
    """Of training with PS. `coefficients` in the order of `formula.COEFFICIENTS`.

    `batch`: examples per step. `waiting`: share of their time that trainers waited for input.
    """

    coefficients: tuple[float, ...]
    batch: float
    windows: int
    spread: float
    points: tuple[Point, ...] = field(repr=False)
    around: Surroundings = field(default=UNKNOWN, repr=False)
    waiting: float = 0.0

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        return tuple((at.ps, at.trainers, at.ps_cpu, at.worker_cpu) for at in (point.at for point in self.points))

    def step_seconds(self, size: Size) -> float:
        return max(step_seconds(self.coefficients, self.around.place(size)), self._least_seconds)

    def predict(self, size: Size) -> float:
        return size.trainers * self.batch / self.step_seconds(size)

    def binding(self, size: Size) -> tuple[str, float]:
        place = self.around.place(size)
        own, served, shared, host = bounds(self.coefficients, place)
        fixed = min(self.coefficients[0], own)
        parts = {"trainer CPU": own - fixed, "PS CPU": served, "network": shared + fixed, "host CPU": host}
        if self.waiting >= INPUT_SHARE:
            parts["input"], parts["network"] = parts["network"], 0.0
        name = max(parts, key=lambda one: parts[one])
        most, s = max(own, served, shared, host), 1 + self.coefficients[9]
        weights = sum((bound / most) ** s for bound in (own, served, shared, host)) if most > 0 else 1.0
        return name, (parts[name] / most) ** s / weights if most > 0 else 0.0

    @cached_property
    def _least_seconds(self) -> float:
        return min((point.seconds / FASTER_MAX for point in self.points), default=1 / MOST)  # none: of other jobs

    @cached_property
    def mape_holdout(self) -> float | None:
        return holdout_error(self.points, self.coefficients)


def usable(windows: Iterable[Window]) -> list[Window]:
    """Those a model can learn from: with numbers that can be."""
    return [
        window for window in windows
        if window.seconds > 0 and window.size.ps > 0 and window.size.workers >= 0
        and min(window.size.ps_cpu, window.size.worker_cpu) >= 0
        and math.isfinite(window.size.cpu) and 1 / MOST < window.examples_per_second < MOST
    ]  # fmt: skip


def fit(windows: Sequence[Window], around: Surroundings = UNKNOWN) -> ThroughputModel | None:
    """The model of these windows; None where there is nothing to learn from.

    Args:
        around: where sizes are predicted for.
    """
    good = usable(windows)
    if not good:
        return None
    batches = [window.examples_per_step for window in good if window.examples_per_step > 0]
    batch = statistics.median(batches) if batches else 1.0
    around = around.learned(good)
    points = tuple(points_of(good, batch, around))
    coefficients = solve(points)
    predicted = {(point.at.ps, point.at.trainers, point.at.ps_cpu, point.at.worker_cpu):
                 step_seconds(coefficients, point.at) for point in points}  # fmt: skip
    deviations = [abs(predicted[around.key(window.size)] / _seconds(window, batch) - 1) for window in good]
    return ThroughputModel(
        coefficients, batch, len(good), 1.4826 * statistics.median(deviations), points, around,
        statistics.fmean(window.input_wait_share for window in good),
    )  # fmt: skip


def points_of(windows: Sequence[Window], batch: float, around: Surroundings) -> list[Point]:
    """One point per size, in the order of the sizes: the same windows in any order give the same fit."""
    grouped: dict[Key, list[Window]] = {}
    for window in windows:
        grouped.setdefault(around.key(window.size), []).append(window)
    points = []
    for _, group in sorted(grouped.items()):
        size, newer = group[0].size, [window for window in group if window.start >= around.since]
        weight = 1.0 if newer else OLDER
        group = newer or group
        seconds = statistics.median(_seconds(window, batch) for window in group)
        points.append(
            Point(
                around.place(size, group), seconds,
                _cores(group, "trainer_cpu_cores", seconds, batch) if size.worker_cpu > 0 or around.cores else 0.0,
                _cores(group, "ps_cpu_cores", seconds, batch) if size.ps_cpu > 0 or around.cores else 0.0,
                weight * len(group) / (len(group) + 1.0) * (PREPARING_WEIGHT if all(w.preparing for w in group) else 1.0),
            )
        )  # fmt: skip
    return points


def holdout_error(points: Sequence[Point], coefficients: Sequence[float]) -> float | None:
    """Of models fitted without some of the sizes, at these sizes.

    Each fit sets out from the coefficients of all points: it sees only its own points, but of several minima it finds the one
    near the model that is judged. That takes a fifth of the time, and the error is lower than with fits that set out from
    nothing: by 3 % of itself on average for real-like windows, by 5 % where all is noise.
    """
    if len(points) < SIZES_TO_HOLD_OUT:
        return None
    folds = min(FOLDS_MAX, len(points))
    errors = []
    for fold in range(folds):
        others = solve([point for number, point in enumerate(points) if number % folds != fold], coefficients)
        for point in points[fold::folds]:
            predicted = step_seconds(others, point.at)
            errors.append(abs(point.seconds / predicted - 1))
    return statistics.fmean(errors)


def _seconds(window: Window, batch: float) -> float:
    return window.size.trainers * batch / window.examples_per_second


def _cores(group: Sequence[Window], name: str, seconds: float, batch: float) -> float:
    """CPU use at the median step time: use per step scatters less than use per second. 0: not known."""
    per_step = [
        getattr(window, name) * _seconds(window, batch) for window in group
        if CORES_MIN < getattr(window, name) < MOST
    ]  # fmt: skip
    return statistics.median(per_step) / seconds if per_step else 0.0
