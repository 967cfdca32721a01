"""A figure of a job from the same figure of jobs that have ended: learners of scikit-learn, of which the best is kept. Pure.

Figures and most features are logarithms, so that an error is a ratio. Each learner is judged by leave-one-job-out: all rows of
a job, and of those that are the same job again, are foretold by a fit to the others. What is kept is the one with the least
mean error; that error is a little too kind, because it is the least of several. From the errors of the single jobs comes the
interval, as the jackknife+ has it (Barber et al., "Predictive inference with the jackknife+", 2021, without its own centre).

A value that is a time may be given what it is made of (`Row.costs`: work of each kind). The sum of these that fits best, with
factors that are not negative, is one more feature: learners that know ratios alone cannot add.

A *stranger* is a job farther from its nearest than jobs of the history are from each other: no interval holds for it.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

JOBS_MIN = 5
"""With fewer (different ones) there is nothing to learn that another could judge."""

FOLDS_MAX = 12
"""With more jobs, several are left out at a time: a start waits for the answer."""

ROWS_MAX = 400
TOGETHER, TOGETHER_OF = "three together", ("ridge", "gradient boosting", "Gaussian process")
"""The mean of them is a learner, too: they are wrong in other jobs."""

ROBUST, ROBUST_ROUNDS, LEAST = 0.3, 6, 1e-9
"""A job that is so far off a sum of costs, relative, has half the weight of others; how often the weights are worked out."""

KEPT = 8
"""Answers that are remembered: four are wanted of one job."""

COVERED = 0.9
"""Share of the jobs that lie within the interval."""

FEW_WIDER = 1.5
"""An interval that should reach beyond all errors there are (fewer than nine jobs) is so many times the largest."""

SPREAD_MIN = 0.02
"""Logarithm: two runs of one job differ by more."""

FAR, FAR_SHARE = 1.5, 0.95
"""A stranger is so many times as far from its nearest as this share of the jobs is from theirs."""

SCALE_MIN = 0.25
"""Logarithm: of a feature that hardly differs between jobs. So a factor of 1.3 counts as much as one deviation."""

Fit = Callable[[Any, Any], Any]
"""(features [n, f], values [n]) -> what has `predict`."""


@dataclass(frozen=True)
class Row:
    """`job`: rows of one are left out together. `features`: numbers, [f]. `value`: positive. `costs`: what may be added up to
    the value, each with a factor that is not negative, [c]; none: nobody knows."""

    job: int
    features: tuple[float, ...]
    value: float
    costs: tuple[float, ...] = ()


@dataclass(frozen=True)
class Learned:
    """`error`: mean, relative, of jobs that were left out. `spread`: logarithm of the factor within which COVERED of them lay.
    `errors`: the same error of each learner that was tried."""

    learner: str
    error: float
    spread: float
    jobs: int
    errors: dict[str, float]
    _model: Any = field(repr=False)
    _known: Any = field(repr=False)  # [n, f], scaled
    _scale: tuple[Any, Any] = field(repr=False)  # mean, deviation: [f]
    _far: float = field(repr=False)
    _factors: Any = field(repr=False, default=None)  # of the costs: [c]

    def predict(self, features: Sequence[float], costs: Sequence[float] = ()) -> float:
        import numpy as np

        there = np.array([features])
        if self._factors is not None:
            there = _with_sum(there, np.array([costs]), self._factors)
        return math.exp(float(self._model.predict(there)[0]))

    def strange(self, features: Sequence[float]) -> int | None:
        """Index of the feature by which a job differs most from its nearest; None: it is like the others."""
        import numpy as np

        apart = (np.array(features) - self._scale[0]) / self._scale[1] - self._known
        nearest = apart[np.argmin(np.linalg.norm(apart, axis=1))]
        return int(np.argmax(np.abs(nearest))) if np.linalg.norm(nearest) > self._far else None


def learn(rows: Sequence[Row]) -> Learned | None:
    """The best of the learners for these rows, the most important first; None with fewer than JOBS_MIN jobs.

    What was learnt of the last rows is kept: who learns ahead of a question need not wait when it comes.

    Raises ImportError: scikit-learn is not installed (extra `autoscale`).
    """
    return _learnt(tuple(rows))


@lru_cache(maxsize=KEPT)
def _learnt(rows: Sequence[Row]) -> Learned | None:
    rows = _of_all([row for row in rows if row.value > 0 and all(map(math.isfinite, (row.value, *row.features)))])
    jobs = sorted({row.job for row in rows})
    if len(jobs) < JOBS_MIN or not rows[0].features:
        return None
    import numpy as np

    there, values = np.array([row.features for row in rows]), np.log([row.value for row in rows])
    costs = np.array([row.costs for row in rows], float)
    factors = None
    places = {job: place % FOLDS_MAX for place, job in enumerate(jobs)}
    fold = np.array([places[row.job] for row in rows])
    known, shown = there, dict.fromkeys(set(places.values()), there)
    if costs.shape[1]:
        factors = _factors_of(costs, np.exp(values))
        known = _with_sum(there, costs, factors)
        for one in shown:  # who is left out has no part in them
            shown[one] = _with_sum(there, costs, _factors_of(costs[fold != one], np.exp(values[fold != one])))
    fits = _learners(known, values)
    foretold = {name: np.empty(len(rows)) for name in fits}
    for one, with_sum in sorted(shown.items()):
        out = fold == one
        for name, fit in fits.items():
            foretold[name][out] = fit(with_sum[~out], values[~out]).predict(with_sum[out])
    foretold[TOGETHER] = np.mean([foretold[name] for name in TOGETHER_OF], axis=0)
    fits[TOGETHER] = lambda x, y: _Together([fits[name](x, y) for name in TOGETHER_OF])
    found = {
        name: [statistics.fmean(abs(w) for w, row in zip(of - values, rows) if row.job == job) for job in jobs]
        for name, of in foretold.items()
    }
    errors = {name: math.expm1(min(statistics.fmean(of), 50.0)) for name, of in found.items()}
    best = min(errors, key=lambda name: errors[name])
    middle, deviation = there.mean(0), np.maximum(there.std(0), SCALE_MIN)
    scaled = (there - middle) / deviation
    return Learned(
        best, errors[best], _spread(found[best]), len(jobs), errors, fits[best](known, values), scaled,
        (middle, deviation), _far(scaled, [row.job for row in rows]), factors,
    )  # fmt: skip


def _factors_of(costs: Any, values: Any) -> Any:
    """Of the sum that is nearest to the values, in proportion to them; what is far off counts less."""
    import numpy as np
    from scipy.optimize import nnls

    largest = np.maximum(costs.max(0), 1e-300)
    parts, weights = costs / largest / values[:, None], np.ones(len(values))
    factors = np.zeros(costs.shape[1])
    for _ in range(ROBUST_ROUNDS):
        factors, _ = nnls(parts * weights[:, None], weights)
        weights = 1 / np.sqrt(1 + ((parts @ factors - 1) / ROBUST) ** 2)
    return factors / largest


def _with_sum(features: Any, costs: Any, factors: Any) -> Any:
    """[n, f + 1]: with the logarithm of the sum of the costs."""
    import numpy as np

    return np.column_stack([features, np.log(np.maximum(costs @ factors, LEAST))])


class _Together:
    """The mean of what several say."""

    def __init__(self, models: Sequence[Any]) -> None:
        self._models = models

    def predict(self, features: Any) -> Any:
        import numpy as np

        return np.mean([one.predict(features) for one in self._models], axis=0)


def learners_loaded() -> None:
    """Imports the libraries, and what they import when they are first used, which takes seconds: before somebody waits."""
    with contextlib.suppress(ImportError):
        learn([Row(job, (float(job), float(job % 3)), 1.0 + job % 2) for job in range(JOBS_MIN)])


def _of_all(rows: Sequence[Row]) -> list[Row]:
    """As many as may be, of each job as many as of any: one that runs each night would push out all others."""
    turns: dict[int, int] = {}
    ordered: list[tuple[int, Row]] = []
    for row in rows:
        turns[row.job] = turns.get(row.job, 0) + 1
        ordered.append((turns[row.job], row))
    return [row for _, row in sorted(ordered, key=lambda one: one[0])[:ROWS_MAX]]


def _spread(errors: Sequence[float]) -> float:
    """Of a new job, from the errors of those left out: the (n + 1)-th part more than the share that is to be covered."""
    place = math.ceil((len(errors) + 1) * COVERED)
    ordered = sorted(errors)
    return max(SPREAD_MIN, ordered[place - 1] if place <= len(ordered) else FEW_WIDER * ordered[-1])


def _far(known: Any, jobs: Sequence[int]) -> float:
    import numpy as np

    of, apart = np.array(jobs), np.linalg.norm(known[:, None, :] - known[None, :, :], axis=2)
    apart[of[:, None] == of[None, :]] = np.inf
    return float(FAR * np.quantile(apart.min(1), FAR_SHARE))


def _learners(there: Any, values: Any) -> dict[str, Fit]:
    """By name. What a Gaussian process is like (its length and noise) is fitted to all rows once: with it alone nothing can be
    remembered of a job, and fitting it anew for each that is left out takes seconds."""
    import warnings

    from sklearn.dummy import DummyRegressor
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
    from sklearn.linear_model import Ridge
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    length = max(1.0, math.sqrt(there.shape[1]))
    kernel = (
        ConstantKernel(1.0, (1e-3, 1e3)) * RBF(length, (0.3, 100.0))
        + ConstantKernel(0.1, (1e-4, 1e2)) * DotProduct(1.0, (1e-2, 1e2)) + WhiteKernel(0.02, (1e-4, 1.0))
    )  # fmt: skip

    def gaussian(optimizer: str | None) -> Any:
        process = GaussianProcessRegressor(kernel, normalize_y=True, optimizer=optimizer, random_state=0)
        return make_pipeline(StandardScaler(), process)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of a bound that is reached: then that is the length
        kernel = gaussian("fmin_l_bfgs_b").fit(there, values)[-1].kernel_
    return {
        "ridge": lambda x, y: make_pipeline(StandardScaler(), Ridge(alpha=1.0)).fit(x, y),
        "gradient boosting": lambda x, y: GradientBoostingRegressor(
            n_estimators=40, max_depth=2, learning_rate=0.2, random_state=0
        ).fit(x, y),
        "nearest neighbours": lambda x, y: make_pipeline(
            StandardScaler(), KNeighborsRegressor(min(3, len(y)), weights="distance")
        ).fit(x, y),
        "Gaussian process": lambda x, y: gaussian(None).fit(x, y),
        "mean": lambda x, y: DummyRegressor().fit(x, y),
    }
