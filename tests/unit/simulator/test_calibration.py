"""The job model fitted to windows that a known job model made."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from deeprec_ext.autoscaler.observe.observed import Size, Window
from deeprec_ext.errors import UsageError
from deeprec_ext.simulator.calibration import FITTED, fit_runs, fit_windows
from deeprec_ext.simulator.job_model import JobModel, throughput
from tests.unit.autoscaler.facts import fact
from tests.unit.autoscaler.policy.jobs import recorded_job
from tests.unit.simulator.tiny import mixed

KNOWN = JobModel(
    batch=256.0, parallelism=1e6, ps_parallelism=1e6, fixed_seconds=0.01, compute_core_seconds=0.2, ps_core_seconds=0.05,
    shared_seconds=0.002,
)  # fmt: skip
SEEN = [
    Size(ps, workers, 2.0, cpu)
    for ps, workers, cpu in ((1, 0, 2.0), (1, 3, 2.0), (1, 9, 2.0), (2, 9, 2.0), (4, 9, 2.0), (2, 5, 4.0), (4, 19, 1.0))
]
UNSEEN = [Size(ps, workers, 2.0, cpu) for ps, workers, cpu in ((1, 6, 2.0), (3, 9, 2.0), (2, 15, 2.0), (3, 7, 3.0))]


def made(sizes: list[Size], noise: float = 0.0, count: int = 5) -> list[Window]:
    chance = random.Random(7)
    return [
        fact(Window, 10.0 * number, 10.0, size, throughput(KNOWN, size) * (1 + chance.gauss(0, noise)), KNOWN.batch)
        for number, size in enumerate(size for size in sizes for _ in range(count))
    ]


@pytest.mark.parametrize("noise, error", [(0.0, 0.03), (0.03, 0.06)])
def test_a_fit_predicts_sizes_it_has_seen_and_others(noise, error):
    fit = fit_windows(made(SEEN, noise))
    assert fit.model.batch == KNOWN.batch
    assert fit.error < error
    assert fit.error_holdout is not None and fit.error <= fit.error_holdout < 0.2
    for size in (*SEEN, *UNSEEN):
        assert throughput(fit.model, size) == pytest.approx(throughput(KNOWN, size), rel=error)


def test_a_window_that_is_far_off_does_not_spoil_the_fit():
    windows = made(SEEN)
    windows[7] = dataclasses.replace(windows[7], examples_per_second=windows[7].examples_per_second / 4)
    assert fit_windows(windows).error < 0.03


def test_of_two_sizes_the_error_elsewhere_is_not_known():
    fit = fit_windows(made(SEEN[:2]))
    assert fit.error_holdout is None
    assert "not known" in fit.describe()
    assert len(fit.sizes) == 2


def test_a_fit_tells_its_parameters_and_every_size():
    fit = fit_windows(made(SEEN))
    told = fit.to_values()
    assert set(told["parameters"]) == {"batch", *FITTED}
    assert [Size(**one["size"]) for one in told["sizes"]] == sorted(SEEN, key=lambda size: dataclasses.astuple(size))
    text = fit.describe()
    assert text.startswith(f"job model fitted to {len(SEEN)} sizes: error ")
    assert all(name in text for name in FITTED)
    assert text.count("measured") == len(SEEN)


def test_a_trace_with_the_fitted_model_takes_about_as_long():
    fit, given = fit_windows(made(SEEN)), mixed()
    found = fit.in_place_of_models(given)
    for old, new in zip(given.jobs, found.jobs):
        assert (new.name, new.arrives, new.start, new.limits) == (old.name, old.arrives, old.start, old.limits)
        assert new.model.compute_core_seconds == fit.model.compute_core_seconds
        assert new.model.variable_bytes == old.model.variable_bytes
        seconds = old.examples / throughput(old.model, old.start)
        assert new.examples / throughput(new.model, new.start) == pytest.approx(seconds)


def test_recorded_runs_are_fitted(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    job = recorded_job(tmp_path / "one")
    recorded_job(tmp_path / "two")
    fit = fit_runs([tmp_path / "one", tmp_path / "two"])
    assert {size for size, _, _ in fit.sizes} == {window.size for window in job.windows}
    assert fit.error < 0.1
    with pytest.raises(UsageError, match="no decisions were recorded"):
        fit_runs([tmp_path])


def test_without_windows_there_is_nothing_to_fit():
    with pytest.raises(UsageError, match="nothing to fit"):
        fit_windows([])
