"""Non-negative least squares for the formula of the step time: few points, outliers among them, priors where they are silent.

The formula is not linear in `ps_idle`, `trainer_idle` and `sharpness`, so it is solved by Gauss and Newton: linearised at the
present coefficients, solved by `scipy.optimize.nnls`, and again. Rows of the system:

- one per size that was measured: its step time, relative to itself (10 ms and 1 s count alike);
- two per size whose CPU use is known: that of a trainer and that of all PS;
- one per coefficient, weak: a pull towards a neutral share of the step time, so that one or two sizes alone do not say that
  workers cost nothing or that PS are free.

Rows that do not fit count less (Huber), but they count: the largest size that was tried may be the first that shows a limit.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any, NamedTuple

from deeprec_ext.autoscaler.model.formula import CORES_FLOOR, NAMES, SHARPNESS_MAX, Place, bounds

ROUNDS_MAX = 12
TOLERANCE = 1e-3
"""Relative improvement of the sum of squares below which it is done."""

GOOD = 0.05
"""Where no step time is further off than this there is no second start: what it might find better is noise."""

TRIED_ROUNDS, HOPELESS = 3, 1.5
"""A second start that is so many times as bad as what the first came to, after so many rounds, is given up: of 747 in simulated
jobs 26 came to something better in the end, and one of the 500 or so that are given up."""

HUBER = 1.345
"""Residuals beyond so many robust standard deviations count linearly; as good as least squares (95 %) where all is well."""

NOISE_MIN = 0.02
"""Nobody measures a step time better."""

CPU_WEIGHT = 0.5
"""Of a row of CPU use beside one of throughput: CPU per step is measured as well, but is not what is predicted."""

PULL = 0.05
"""Weight of the prior beside a row of throughput."""

PRIOR = (
    (0.1, 1.0),  # fixed
    (0.6, 1.0),  # compute
    (0.002, 0.1),  # fan_out
    (0.02, 0.3),  # trainer_idle
    (0.25, 1.0),  # serve
    (0.05, 1.0),  # guard
    (0.01, 0.2),  # per_ps
    (0.02, 0.3),  # ps_idle
    (0.002, 0.3),  # shared
)
"""Of each coefficient but the last: the neutral value and how far from it is easily believed, as shares of the step time at a
typical size (of the request, for those in cores). What rarely matters is believed least: it must show in the windows."""

SHARPNESS = (3.0, 6.0)
"""The same for the last."""

TINY = 1e-12
"""In place of a bound that is 0: where bounds add up it has a slope all the same."""

USE_MIN = 1e-9
"""Model ÷ measured: a use of CPU for which the formula has nothing yet is that small, for the logarithm."""

Numbers = list[float]
Four = tuple[float, float, float, float]


@dataclass(frozen=True)
class Point:
    """What was measured at one size. CPU 0: not known. `weight`: 1 for a size with many windows."""

    at: Place
    seconds: float  # of one step
    trainer_cores: float = 0.0  # used by one
    ps_cores: float = 0.0  # used by all together
    weight: float = 1.0


def solve(points: Sequence[Point], near: Sequence[float] = ()) -> tuple[float, ...]:
    """The coefficients, in the order of `formula.COEFFICIENTS`. `points` must not be empty; numbers finite and positive.

    Args:
        near: coefficients to begin with, where the solution of nearly the same points is known; else the usual starts.

    Raises ArithmeticError, ValueError, RuntimeError: numbers of absurd sizes.
    """
    system = _System(points)
    found: list[_Fit] = []
    for start in [near] if near else system.starts():
        rival = system.badness(found[0], system.limits(found[0])) if found else math.inf
        found.append(system.improve(start, HOPELESS * rival))
        if max(map(abs, found[0].speed)) < GOOD:
            break
    limits = system.limits(found[0])
    best = min(found, key=lambda fit: system.badness(fit, limits)).c
    if not all(math.isfinite(value) for value in best):
        raise ArithmeticError("the throughput model has no finite coefficients")
    return tuple(best)


class _Fit(NamedTuple):
    """Coefficients, and how they fit: per size the bounds and their shares of t^s, and the residual of the step time; then
    the residuals of CPU use. Residuals are logarithms of model ÷ measured: twice as much is as wrong as half of it.
    """

    c: Numbers
    bounds: list[tuple[Four, Four]]
    speed: Numbers
    use: Numbers


class _Use(NamedTuple):
    """A known use of CPU: what the formula has for it ÷ what was measured is the sum of `values` times `c[first:first + 4]`."""

    first: int
    values: Four
    weight: float


class _System:
    """The rows of the module's text, in plain numbers: for a handful of sizes an array costs more than what is computed."""

    def __init__(self, points: Sequence[Point]) -> None:
        import numpy as np

        self._points = points
        self._uses = [use for point in points for use in _uses(point)]
        self._weights, self._use_weights = [point.weight for point in points], [use.weight for use in self._uses]
        self.scale = _scale(points)
        self.prior = [*(scale * neutral for scale, (neutral, _) in zip(self.scale, PRIOR)), SHARPNESS[0]]
        widths = [*(scale * width for scale, (_, width) in zip(self.scale, PRIOR)), SHARPNESS[1]]
        self._pulls = [PULL / width for width in widths]
        self._pulled = [pull * value for pull, value in zip(self._pulls, self.prior)]
        self._rows = np.vstack([np.diag(self._pulls), np.zeros((len(points) + len(self._uses), len(NAMES)))])
        self._use_rows = np.zeros((len(self._uses), len(NAMES)))
        for row, (first, values, _) in zip(self._use_rows, self._uses):
            row[first : first + 4] = values

    def starts(self) -> list[Numbers]:
        """Where to begin: with corners a bound that does not rule has no slope, so each must have ruled in one of them."""
        crowded = self.prior[:]
        crowded[8] = 0.7 * self.scale[8]
        return [self.prior, crowded]

    def improve(self, c: Sequence[float], hopeless: float = math.inf) -> _Fit:
        """From these coefficients to a minimum nearby, unless it is this bad after a few rounds."""
        from scipy.optimize import nnls

        best = self.fit(list(c))
        for number in range(ROUNDS_MAX):
            limits = self.limits(best)
            if number == TRIED_ROUNDS and self.badness(best, limits) > hopeless:
                break
            target = nnls(*self.linearised(best, limits))[0].tolist()
            target[-1] = min(target[-1], SHARPNESS_MAX)
            least, improved = self.badness(best, limits), False
            for share in (1.0, 0.5, 0.2, 0.05):
                trial = self.fit([here + share * (there - here) for here, there in zip(best.c, target)])
                badness = self.badness(trial, limits)
                if badness < least:
                    improved, best = badness < least * (1 - TOLERANCE), trial
                    break
            if not improved:
                break
        return best

    def fit(self, c: Numbers) -> _Fit:
        s, log = 1 + c[9], math.log
        found, speed = [], []
        for point in self._points:
            own, served, shared, host = bounds(c, point.at)
            own, served, shared = own or TINY, served or TINY, shared or TINY
            most = max(own, served, shared, host)  # by which all is divided, so that no power is too large
            a, p, m = (own / most) ** s, (served / most) ** s, (shared / most) ** s
            h = (host / most) ** s if host else 0.0
            total = a + p + m + h
            found.append(((own, served, shared, host), (a / total, p / total, m / total, h / total)))
            speed.append(log(most / point.seconds) + log(total) / s)
        use = [
            log(max(x * c[first] + y * c[first + 1] + z * c[first + 2] + last * c[first + 3], USE_MIN))
            for first, (x, y, z, last), _ in self._uses
        ]
        return _Fit(c, found, speed, use)

    def limits(self, fit: _Fit) -> tuple[float, float]:
        """Residuals of throughput, and of CPU use, beyond which a row counts less."""
        return _limit(fit.speed), _limit(fit.use)

    def linearised(self, fit: _Fit, limits: tuple[float, float]) -> tuple[Any, Any]:
        """Rows and right-hand sides of the least squares at these coefficients."""
        count = len(self._points)
        rows, sides, speed, factors = self._rows.copy(), self._pulled[:], [], []
        for point, found, residual in zip(self._points, fit.bounds, fit.speed):
            slopes, root = _slopes(fit.c, point.at, *found), _root(point.weight, residual, limits[0])
            speed.append([root * slope for slope in slopes])
            sides.append(root * (sum(map(mul, slopes, fit.c)) - residual))
        rows[len(NAMES) : len(NAMES) + count] = speed
        for weight, residual in zip(self._use_weights, fit.use):
            root = _root(weight, residual, limits[1])
            factors.append([root / math.exp(residual)])
            sides.append(root * (1 - residual))
        if factors:
            rows[len(NAMES) + count :] = self._use_rows * factors
        return rows, sides

    def badness(self, fit: _Fit, limits: tuple[float, float]) -> float:
        """What is minimised, as long as the limits are the same."""
        total = 0.0
        for pull, pulled, value in zip(self._pulls, self._pulled, fit.c):
            off = pull * value - pulled
            total += off * off
        total += _loss(self._weights, fit.speed, limits[0])
        return total + _loss(self._use_weights, fit.use, limits[1])


def _slopes(c: Numbers, at: Place, parts: Four, shares: Four) -> Numbers:
    """Derivatives of the logarithm of the step time by the coefficients: a bound's own, in proportion to its share of t^s."""
    s, several, further = 1 + c[9], float(at.ps > 1), at.ps - 1
    own, served, shared = shares[0] / parts[0], shares[1] / parts[1], shares[2] / parts[2]
    worker, own_idle = _per_core(at.worker_cpu, c[3])
    server, served_idle = _per_core(at.ps_cpu, c[7])
    a, p = own * worker, served * at.trainers * server
    work, load = c[1] + c[2] * further, c[4] + c[5] * several
    corner = sum([share * math.log(share) for share in shares if share]) / (s * s)
    slopes = [own, a, a * further, own * work * own_idle, p * at.share, p * at.share * several, p,
              served * at.trainers * (load * at.share + c[6]) * served_idle, shared * at.trainers, corner]  # fmt: skip
    if shares[3]:
        cost = work + load + at.ps * c[6]
        per_core, idle = _per_core(at.free, at.trainers * c[3] + at.ps * c[7])
        h, waste = shares[3] / cost if cost else 0.0, shares[3] * idle / per_core
        for index, slope in enumerate(
            (h, h * further, waste * at.trainers, h, h * several, h * at.ps, waste * at.ps), 1
        ):
            slopes[index] += slope
    return slopes


def _uses(point: Point) -> Iterator[_Use]:
    weight, steps, ps = CPU_WEIGHT**2 * point.weight, 1 / point.seconds, point.at.ps
    if point.trainer_cores > 0:
        cores = point.trainer_cores
        yield _Use(1, (steps / cores, (ps - 1) * steps / cores, 1.0 / cores, 0.0), weight)
    if point.ps_cores > 0:
        steps *= point.at.trainers
        cores = point.ps_cores
        yield _Use(4, (steps / cores, (ps > 1) * steps / cores, ps * steps / cores, ps / cores), weight)


def _scale(points: Sequence[Point]) -> Numbers:
    """What each coefficient (but the sharpness) would be if it made up the whole step at a typical size."""
    median = statistics.median
    seconds = median(p.seconds for p in points)
    work = median(p.seconds * p.at.worker_cpu for p in points)
    load = median(p.seconds * p.at.ps_cpu * p.at.ps / p.at.trainers for p in points)
    each = median(p.seconds * p.at.ps_cpu / p.at.trainers for p in points)
    worker, server = median(p.at.worker_cpu for p in points), median(p.at.ps_cpu for p in points)
    return [seconds, work, work, worker, load, load, each, server, median(p.seconds / p.at.trainers for p in points)]


def _per_core(request: float, idle: float) -> tuple[float, float]:
    """1 / cores', and its derivative by `idle`."""
    left = request - idle
    root = math.sqrt(left * left + CORES_FLOOR * request * request)
    share = (left + root) / 2
    return 1 / share, (1 + left / root) / (2 * share * share)


def _limit(residuals: Numbers) -> float:
    if not residuals:
        return HUBER * NOISE_MIN
    sizes, half = sorted(map(abs, residuals)), len(residuals) // 2
    median = sizes[half] if len(sizes) % 2 else (sizes[half - 1] + sizes[half]) / 2
    return HUBER * max(1.4826 * median, NOISE_MIN)


def _loss(weights: Numbers, residuals: Numbers, limit: float) -> float:
    """Squares up to the limit, from there on lines."""
    total = 0.0
    for weight, residual in zip(weights, residuals):
        size = abs(residual)
        total += weight * (size * size if size < limit else (2 * size - limit) * limit)
    return total


def _root(weight: float, residual: float, limit: float) -> float:
    """Of the weight of a row: beyond the limit it counts less."""
    size = abs(residual)
    return math.sqrt(weight if size <= limit else weight * limit / size)


assert len(PRIOR) + 1 == len(NAMES)
