"""How fast a job trains at a size: a model of the step time, fitted to windows.

In asynchronous PS training each of the w trainers makes its steps by itself, so that X = w·B / t examples per second are
trained, where B is the batch size of a trainer and t the time of one step. Optimus (EuroSys '18, section 3.2) and DLRover-RM
(VLDB '24, section 4.1) write t as a sum of non-negative terms, one for what a trainer computes and one for each way in
which PS and trainers get in each other's way, and fit the coefficients by non-negative least squares. `TERMS` has ours.

Weights: errors count relative to the time (a window of 1 s per step matters as much as one of 10 ms), windows with a large
residual count less (Huber), and a weak prior pulls every coefficient towards a neutral share of the step time, so that two
or three windows at one size do not say "workers cost nothing" or "PS are free".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deeprec_ext.aimaster.policy.observed import Size, Window


@dataclass(frozen=True)
class Term:
    """One addend of the step time: coefficient x `shape`(size). `share` of the step time is the prior's guess."""

    name: str
    meaning: str
    shape: Callable[[Size], float]
    share: float


def _cores(request: float) -> float:
    """No request counts as one core: where nothing is requested only ratios matter."""
    return request if request > 0 else 1.0


TERMS: tuple[Term, ...] = (
    Term("fixed", "seconds per step that no size changes: round trips, waiting for input", lambda size: 1.0, 0.10),
    Term("compute", "core seconds a trainer computes per step", lambda size: 1 / _cores(size.worker_cpu), 0.60),
    Term("fan_out", "core seconds of a trainer per step and PS it talks to", lambda size: size.ps / _cores(size.worker_cpu), 0.02),
    Term("service", "core seconds of PS per step, spread over all PS", lambda size: 1 / (size.ps * _cores(size.ps_cpu)), 0.10),
    Term("contention", "core seconds of PS a step waits per other trainer", lambda size: (size.trainers - 1) / (size.ps * _cores(size.ps_cpu)), 0.05),
    Term("shared", "seconds a step waits per other trainer for what more PS do not help: the network, the machine", lambda size: size.trainers - 1.0, 0.01),
)  # fmt: skip

PRIOR_WINDOWS = 0.1
"""The prior counts as much as so many windows per coefficient."""

HUBER = 1.5
"""Residuals beyond so many standard deviations count linearly."""

SPREAD_MAX = 0.5
"""A relative spread from which a fit explains nothing: confidence 0."""


@dataclass(frozen=True)
class ThroughputModel:
    """A fitted model. `coefficients` in the order of TERMS; `spread`: robust relative deviation of the windows from it."""

    coefficients: tuple[float, ...]
    batch: float
    windows: int
    sizes: frozenset[Size]
    spread: float
    mape_holdout: float | None
    confidence: float

    def step_seconds(self, size: Size) -> float:
        return sum(c * term.shape(size) for c, term in zip(self.coefficients, TERMS))

    def predict(self, size: Size) -> float:
        """Examples per second of the whole job, the middle of what is expected."""
        seconds = self.step_seconds(size)
        return size.trainers * self.batch / seconds if seconds > 0 else 0.0

    def optimistic(self, size: Size) -> float:
        """What a size may well reach: a size not tried yet has the benefit of the doubt, one that was tried has not."""
        return self.predict(size) * (1.0 if self.tried(size) else 1.0 + self.spread)

    def tried(self, size: Size) -> bool:
        return size in self.sizes


def usable(windows: Sequence[Window]) -> list[Window]:
    """Those a model can learn from: undisturbed, with a duration and a throughput that are numbers."""
    return [
        window for window in windows
        if not window.disturbed and window.seconds > 0 and window.size.ps > 0
        and math.isfinite(window.examples_per_second) and window.examples_per_second > 0
    ]  # fmt: skip


def fit(windows: Sequence[Window]) -> ThroughputModel | None:
    """The model of these windows; None where there is nothing to learn from."""
    good = usable(windows)
    if not good:
        return None
    batch = _batch(good)
    coefficients, spread = _solve(good, batch)
    error = _holdout(good, batch)
    return ThroughputModel(
        coefficients, batch, len(good), frozenset(window.size for window in good), spread, error,
        _confidence(len(good), spread, error),
    )  # fmt: skip


def _batch(windows: Sequence[Window]) -> float:
    batches = sorted(window.examples_per_step for window in windows if window.examples_per_step > 0)
    return batches[len(batches) // 2] if batches else 1.0


def _solve(windows: Sequence[Window], batch: float) -> tuple[tuple[float, ...], float]:
    import numpy as np
    from scipy.optimize import nnls

    times = np.array([window.size.trainers * batch / window.examples_per_second for window in windows])
    shapes = np.array([[term.shape(window.size) for term in TERMS] for window in windows])
    rows = shapes / times[:, None]  # relative: every window should give 1
    typical = np.median(shapes, axis=0)
    prior = np.median(times) * np.array([term.share for term in TERMS]) / np.where(typical > 0, typical, 1.0)
    scale = np.where(typical > 0, typical, 1.0) / np.median(times)
    pull = math.sqrt(PRIOR_WINDOWS) * np.diag(scale)
    weights = np.ones(len(windows))
    solution, spread = prior, 0.0
    for _ in range(20):
        system = np.vstack([rows * np.sqrt(weights)[:, None], pull])
        target = np.concatenate([np.sqrt(weights), pull @ prior])
        solution, _ = nnls(system, target)
        residuals = rows @ solution - 1
        spread = float(1.4826 * np.median(np.abs(residuals)))
        limit = HUBER * max(spread, 0.01)
        weights = np.minimum(1.0, limit / np.maximum(np.abs(residuals), 1e-12))
    return tuple(float(c) for c in solution), spread


def _holdout(windows: Sequence[Window], batch: float) -> float | None:
    """Mean absolute relative error at sizes the fit has not seen; None with fewer than three sizes."""
    sizes = sorted({window.size for window in windows}, key=repr)
    if len(sizes) < 3:
        return None
    errors = []
    for size in sizes:
        coefficients, spread = _solve([window for window in windows if window.size != size], batch)
        model = ThroughputModel(coefficients, batch, 0, frozenset(), spread, None, 0.0)
        held = sorted(window.examples_per_second for window in windows if window.size == size)
        actual = held[len(held) // 2]
        errors.append(abs(model.predict(size) - actual) / actual)
    return sum(errors) / len(errors)


def _confidence(windows: int, spread: float, error: float | None) -> float:
    """0 to 1: few windows, a wide spread and a large held-out error all take from it."""
    doubt = max(spread, error if error is not None else 0.25)
    return max(0.0, 1.0 - doubt / SPREAD_MAX) * windows / (windows + 2.0)
