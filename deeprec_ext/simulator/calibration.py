"""The job model fitted to real runs: its parameters from their windows, and its error against them.

The windows are those of the decisions a run recorded. The error is told twice: at the sizes the fit has seen, and at each size
with a fit of all the others, which is what a simulation of other sizes is worth.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeprec_ext.autoscaler.observe.observed import Size, Window
from deeprec_ext.autoscaler.observe.sane import sane_window
from deeprec_ext.autoscaler.policy.evidence import key_of
from deeprec_ext.errors import UsageError
from deeprec_ext.simulator.job_model import JobModel, throughput
from deeprec_ext.simulator.trace import Trace

FITTED = ("fixed_seconds", "compute_core_seconds", "fan_out_core_seconds", "ps_core_seconds", "shared_seconds")
"""Parameters of the job model that are fitted; the others do not show in throughput, or are told by the catalogue."""

TINY = 1e-7
"""Seconds: what the logarithm of a parameter that is nearly 0 is taken of."""

PULL = 0.02
"""Weight, beside a size that was measured, of keeping a parameter near its first guess: a few sizes do not tell all five."""

SIZES_MIN = 3


@dataclass(frozen=True)
class Fit:
    """A fitted model and how far it is off."""

    model: JobModel
    sizes: tuple[tuple[Size, float, float], ...]  # size, measured and fitted examples per second
    error: float  # mean absolute relative, at the sizes fitted
    error_holdout: float | None  # at each size by a fit of the others; None: too few sizes

    def to_values(self) -> dict[str, Any]:
        return {
            "parameters": {name: getattr(self.model, name) for name in ("batch", *FITTED)}, "mape": self.error,
            "mape_holdout": self.error_holdout,
            "sizes": [
                {"size": dataclasses.asdict(size), "measured": real, "fitted": own} for size, real, own in self.sizes
            ],
        }  # fmt: skip

    def describe(self) -> str:
        held = (
            f"{self.error_holdout:.1%}"
            if self.error_holdout is not None
            else f"not known (fewer than {SIZES_MIN} sizes)"
        )
        values = ", ".join(f"{name} {getattr(self.model, name):.4g}" for name in FITTED)
        lines = [
            f"job model fitted to {len(self.sizes)} sizes: error {self.error:.1%}, at sizes left out {held}",
            values,
        ]
        lines += [
            f"  {size.ps} PS, {size.workers} workers, {size.ps_cpu:g} and {size.worker_cpu:g} cores: measured {real:.4g}, "
            f"fitted {own:.4g} examples/s ({own / real - 1:+.1%})"
            for size, real, own in self.sizes
        ]
        return "\n".join(lines)

    def in_place_of_models(self, trace: Trace) -> Trace:
        """The trace with this model's times in all its jobs; what they train is scaled so that they take about as long."""
        jobs = []
        for job in trace.jobs:
            model = dataclasses.replace(
                job.model, batch=self.model.batch, **{name: getattr(self.model, name) for name in FITTED}
            )
            longer = throughput(model, job.start) / throughput(job.model, job.start)
            jobs.append(dataclasses.replace(job, model=model, examples=job.examples * longer))
        return dataclasses.replace(trace, jobs=tuple(jobs))


def fit_runs(directories: Sequence[Path]) -> Fit:
    """From the newest recorded observation of each run. Raises UsageError."""
    from deeprec_ext.autoscaler.policy.record import read

    windows: list[Window] = []
    for directory in directories:
        known: dict[tuple[float, Size], Window] = {}
        for entry in read(directory):
            known.update(
                {(window.start, window.size): window for window in entry.observed.windows if sane_window(window)}
            )
        windows += known.values()
    return fit_windows(windows)


def fit_windows(windows: Sequence[Window]) -> Fit:
    """Raises UsageError where there is nothing to fit."""
    points = _points(windows)
    if not points:
        raise UsageError("no undisturbed window of throughput was recorded: there is nothing to fit the job model to")
    batches = [window.examples_per_step for window in windows if window.examples_per_step > 0]
    batch = statistics.median(batches) if batches else 1.0
    model = _solve(points, batch)
    held = None
    if len(points) >= SIZES_MIN:
        errors = []
        for index, (size, real) in enumerate(points):
            other = _solve(points[:index] + points[index + 1 :], batch)
            errors.append(abs(throughput(other, size) / real - 1))
        held = statistics.fmean(errors)
    sizes = tuple((size, real, throughput(model, size)) for size, real in points)
    return Fit(model, sizes, statistics.fmean(abs(own / real - 1) for _, real, own in sizes), held)


def _points(windows: Sequence[Window]) -> list[tuple[Size, float]]:
    """(size, median examples per second), one per size."""
    grouped: dict[Any, list[Window]] = {}
    for window in windows:
        grouped.setdefault(key_of(window.size), []).append(window)
    return [
        (group[0].size, statistics.median(window.examples_per_second for window in group))
        for _, group in sorted(grouped.items())
    ]  # fmt: skip


def _solve(points: Sequence[tuple[Size, float]], batch: float) -> JobModel:
    import numpy as np
    from scipy.optimize import least_squares

    seconds = statistics.median(size.trainers * batch / real for size, real in points)
    cores = statistics.median((size.worker_cpu or 1.0) for size, _ in points)
    guess = np.log(
        [0.1 * seconds, 0.7 * seconds * cores, 0.01 * seconds * cores, 0.1 * seconds * cores, 0.01 * seconds]
    )

    def model_of(logarithms: Any) -> JobModel:
        values: dict[str, Any] = {name: float(math.exp(min(value, 50.0))) for name, value in zip(FITTED, logarithms)}
        return dataclasses.replace(JobModel(batch=batch, parallelism=1e6, ps_parallelism=1e6), **values)

    def residuals(logarithms: Any) -> Any:
        model = model_of(logarithms)
        off = [math.log(throughput(model, size) / real) for size, real in points]
        return np.array([*off, *(PULL * (logarithms - guess))])

    low = np.full(len(FITTED), math.log(TINY))
    start = np.maximum(guess, low + 1e-3)
    found = least_squares(
        residuals, start, bounds=(np.minimum(low, start - 1e-3), np.inf), loss="soft_l1", f_scale=0.05
    )
    return model_of(found.x)
