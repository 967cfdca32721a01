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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deeprec_ext.aimaster.estimator.formula import CORES_FLOOR, NAMES, SHARPNESS_MAX, bounds, cores

ROUNDS_MAX = 12
TOLERANCE = 1e-3
"""Relative improvement of the sum of squares below which it is done."""

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


@dataclass(frozen=True)
class Point:
    """What was measured at one size. CPU 0: not known. `weight`: 1 for a size with many windows."""

    ps: int
    trainers: int
    ps_cpu: float
    worker_cpu: float
    seconds: float  # of one step
    trainer_cores: float = 0.0  # used by one
    ps_cores: float = 0.0  # used by all together
    weight: float = 1.0


def solve(points: Sequence[Point]) -> tuple[float, ...]:
    """The coefficients, in the order of `formula.COEFFICIENTS`. `points` must not be empty; numbers finite and positive."""
    import numpy as np

    system = _System(points)
    found = [system.improve(start) for start in system.starts()]
    limits = system.limits(found[0])
    best = min(found, key=lambda c: system.badness(c, limits))
    if not np.all(np.isfinite(best)):
        raise ArithmeticError("the throughput model has no finite coefficients")
    return tuple(float(value) for value in best)


class _System:
    """The rows of the module's text."""

    def __init__(self, points: Sequence[Point]) -> None:
        import numpy as np

        def column(name: str) -> Any:
            return np.array([getattr(point, name) for point in points], dtype=float)

        self._np = np
        ps, trainers = column("ps"), column("trainers")
        self._size = ps, trainers, column("ps_cpu"), column("worker_cpu")
        self._seconds = seconds = column("seconds")
        self._roots = np.sqrt(column("weight"))
        self._several = (ps > 1).astype(float)
        zero, one = np.zeros_like(ps), np.ones_like(ps)
        used, served = column("trainer_cores"), column("ps_cores")
        of_trainer = np.stack([zero, 1 / seconds, (ps - 1) / seconds, one, zero, zero, zero, zero, zero, zero], 1)
        per_step = trainers / seconds
        of_ps = np.stack([zero, zero, zero, zero, per_step, self._several * per_step, ps * per_step, ps, zero, zero], 1)
        self._cpu = np.vstack([
            of_trainer[used > 0] / used[used > 0, None], of_ps[served > 0] / served[served > 0, None]
        ])  # fmt: skip
        self._cpu_roots = np.concatenate([self._roots[used > 0], self._roots[served > 0]]) * CPU_WEIGHT
        self._scale = scale = _scale(np, self._size, seconds)
        neutral, width = np.array(PRIOR).T
        self.prior = np.append(scale * neutral, SHARPNESS[0])
        self._pull = PULL * np.diag(1 / np.append(scale * width, SHARPNESS[1]))
        self._pulled = self._pull @ self.prior

    def starts(self) -> list[Any]:
        """Where to begin: with corners a bound that does not rule has no slope, so each must have ruled in one of them."""
        crowded = self.prior.copy()
        crowded[8] = 0.7 * self._scale[8]
        return [self.prior, crowded]

    def improve(self, best: Any) -> Any:
        """From these coefficients to a minimum nearby."""
        from scipy.optimize import nnls

        for _ in range(ROUNDS_MAX):
            limits = self.limits(best)
            target, _ = nnls(*self.linearised(best, limits))
            target[-1] = min(target[-1], SHARPNESS_MAX)
            least, improved = self.badness(best, limits), False
            for share in (1.0, 0.5, 0.2, 0.05):
                trial = best + share * (target - best)
                badness = self.badness(trial, limits)
                if badness < least:
                    improved, best = badness < least * (1 - TOLERANCE), trial
                    break
            if not improved:
                break
        return best

    def limits(self, c: Any) -> tuple[float, float]:
        """Residuals of throughput, and of CPU use, beyond which a row counts less."""
        return tuple(_limit(self._np, residual) for residual in self._residuals(c))  # type: ignore[return-value]

    def _residuals(self, c: Any) -> tuple[Any, Any]:
        """Logarithms of model ÷ measured: twice as much is as wrong as half of it."""
        return self._np.log(self._seconds_of(c) / self._seconds), self._np.log(self._np.maximum(self._cpu @ c, 1e-9))

    def linearised(self, c: Any, limits: tuple[float, float]) -> tuple[Any, Any]:
        """Rows and right-hand sides of the least squares at these coefficients."""
        np = self._np
        seconds, slopes = self._model(c)
        speed, use = self._residuals(c)
        rows, cpu = slopes / seconds[:, None], self._cpu / np.maximum(self._cpu @ c, 1e-9)[:, None]
        roots, cpu_roots = self._roots * _root(np, speed, limits[0]), self._cpu_roots * _root(np, use, limits[1])
        return (
            np.vstack([rows * roots[:, None], cpu * cpu_roots[:, None], self._pull]),
            np.concatenate([(rows @ c - speed) * roots, (1 - use) * cpu_roots, self._pulled]),
        )

    def badness(self, c: Any, limits: tuple[float, float]) -> float:
        """What is minimised, as long as the limits are the same."""
        np = self._np
        total = float(np.sum((self._pull @ c - self._pulled) ** 2))
        for residual, roots, limit in zip(self._residuals(c), (self._roots, self._cpu_roots), limits):
            size = np.abs(residual)
            total += float(np.sum(roots**2 * np.where(size < limit, size**2, (2 * size - limit) * limit)))
        return total

    def _seconds_of(self, c: Any) -> Any:
        own, served, shared = bounds(c, *self._size)
        s = 1 + c[-1]
        return self._np.maximum((own**s + served**s + shared**s) ** (1 / s), 1e-12)

    def _model(self, c: Any) -> tuple[Any, Any]:
        """Step time [n] and its derivatives by the coefficients [n, 10]."""
        np = self._np
        ps, trainers, ps_cpu, worker_cpu = self._size
        parts = np.maximum(np.stack(bounds(c, *self._size)), 1e-12)
        s = 1 + c[-1]
        powers = parts**s
        total = powers.sum(0)
        seconds = total ** (1 / s)
        own, served, shared = (parts / seconds) ** (s - 1)
        shares = powers / total
        worker, own_idle = _per_core(worker_cpu, c[3])
        server, served_idle = _per_core(ps_cpu, c[7])
        slopes = np.stack([
            own, own * worker, own * (ps - 1) * worker, own * (c[1] + c[2] * (ps - 1)) * own_idle,
            served * trainers * server / ps, served * trainers * server / ps * self._several, served * trainers * server,
            served * trainers * ((c[4] + c[5] * self._several) / ps + c[6]) * served_idle, shared * trainers,
            seconds / s**2 * np.sum(shares * np.log(np.maximum(shares, 1e-300)), 0),
        ], 1)  # fmt: skip
        return seconds, slopes


def _scale(np: Any, size: tuple[Any, Any, Any, Any], seconds: Any) -> Any:
    """What each coefficient (but the sharpness) would be if it made up the whole step at a typical size."""
    ps, trainers, ps_cpu, worker_cpu = size
    work = np.median(seconds * worker_cpu)
    load = np.median(seconds * ps_cpu * ps / trainers)
    worker, server = np.median(worker_cpu), np.median(ps_cpu)
    return np.array([
        np.median(seconds), work, work, worker, load, load, np.median(seconds * ps_cpu / trainers), server,
        np.median(seconds / trainers),
    ])  # fmt: skip


def _per_core(request: Any, idle: Any) -> tuple[Any, Any]:
    """1 / cores', and its derivative by `idle`."""
    left = request - idle
    root = (left * left + CORES_FLOOR * request * request) ** 0.5
    share = cores(request, idle)
    return 1 / share, (1 + left / root) / (2 * share * share)


def _limit(np: Any, residuals: Any) -> float:
    return HUBER * max(1.4826 * float(np.median(np.abs(residuals))) if len(residuals) else 0.0, NOISE_MIN)


def _root(np: Any, residuals: Any, limit: float) -> Any:
    """Root of the weight of a row."""
    return np.sqrt(np.minimum(1.0, limit / np.maximum(np.abs(residuals), 1e-12)))


assert len(PRIOR) + 1 == len(NAMES)
