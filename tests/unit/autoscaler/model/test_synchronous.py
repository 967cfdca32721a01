"""The model of jobs without PS: what it fits from one to three sizes, and what it says of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from deeprec_ext.autoscaler.model.surroundings import Surroundings
from deeprec_ext.autoscaler.model.synchronous import ALPHA, RING, SynchronousModel, fit, solve
from deeprec_ext.autoscaler.observe.observed import Size, Window
from tests.unit.autoscaler.facts import fact

RECORDS = 240.0


def step(trainers: int, records: float, truth: Sequence[float]) -> tuple[float, float, float]:
    """(whole, computing, summing) seconds."""
    alpha, beta, ring, further, gamma = truth
    own, summing = alpha + beta * records, ring + further * (trainers - 2) if trainers > 1 else 0.0
    return (own**gamma + summing**gamma) ** (1 / gamma), own, summing


def windows(
    truth: Sequence[float], *workers: int, local: bool = False, parts: bool = True, **more: Any
) -> list[Window]:
    found = []
    for number, count in enumerate(workers):
        trainers = count + 1
        records = RECORDS if local else RECORDS / trainers
        whole, own, summing = step(trainers, records, truth)
        for half in (0, 1):
            start = 100.0 * number + 10.0 * half
            found.append(
                fact(
                    Window, start, 10.0, Size(0, count), trainers * records / whole, records,
                    own_seconds=own if parts else 0.0, sum_seconds=summing if parts else 0.0, **more,
                )
            )  # fmt: skip
    return found


def rate(truth: Sequence[float], workers: int, local: bool = False) -> float:
    records = RECORDS if local else RECORDS / (workers + 1)
    return (workers + 1) * records / step(workers + 1, records, truth)[0]


def fitted(*arguments: Any, **named: Any) -> SynchronousModel:
    model = fit(*arguments, **named)
    assert model is not None
    return model


TRUTH = (0.01, 0.001, 0.02, 0.004, 1.0)
"""240 ms to compute a step alone, 20 ms to sum it with one other worker, 4 ms more for each further one."""


@pytest.mark.parametrize("parts", [True, False])
@pytest.mark.parametrize("local", [True, False])
def test_three_sizes_tell_of_a_fourth(parts: bool, local: bool) -> None:
    model = fitted(windows(TRUTH, 0, 1, 3, local=local, parts=parts))
    assert model.local is local
    for workers in (0, 1, 2, 3, 5, 7):
        assert model.predict(Size(0, workers)) == pytest.approx(rate(TRUTH, workers, local), rel=0.1), workers
    assert model.mape_holdout is not None and model.mape_holdout < 0.15


def test_parts_that_are_told_separate_computing_from_the_ring_at_one_size() -> None:
    """The whole step alone would leave that to the priors."""
    heavy = (0.001, 0.00005, 0.2, 0.02, 1.0)
    model = fitted(windows(heavy, 1))
    assert model.parts(Size(0, 1)) == pytest.approx(step(2, RECORDS / 2, heavy)[1:], rel=0.1)
    assert model.predict(Size(0, 0)) > 5 * model.predict(Size(0, 1)) > 5 * 0.9 * model.predict(Size(0, 2))
    assert model.binding(Size(0, 1))[0] == "sum"


def test_of_one_worker_alone_a_first_one_more_is_hoped_for_and_a_hundredth_is_not() -> None:
    model = fitted(windows(TRUTH, 0))
    alone, two = model.predict(Size(0, 0)), model.predict(Size(0, 1))
    assert two == pytest.approx(alone / (ALPHA + (1 - ALPHA) / 2 + RING), rel=0.05)
    assert model.predict(Size(0, 99)) < 1.02 * model.predict(Size(0, 50))


def test_where_each_worker_has_a_batch_of_its_own_a_step_does_not_get_shorter() -> None:
    model = fitted(windows(TRUTH, 0, local=True), local=True)
    assert model.step_seconds(Size(0, 3)) >= model.step_seconds(Size(0, 0))
    assert model.predict(Size(0, 1)) > 1.5 * model.predict(Size(0, 0))
    learned = fitted(windows(TRUTH, 0, 2), local=True)
    assert not learned.local, "two sizes are believed, and not what was said"


def test_a_part_that_no_worker_shortens_is_learned_from_two_sizes() -> None:
    fixed = (0.2, 0.0002, 0.005, 0.0, 1.0)
    model = fitted(windows(fixed, 0, 1))
    assert model.binding(Size(0, 1))[0] == "fixed"
    assert model.predict(Size(0, 3)) < 1.15 * model.predict(Size(0, 1))


def test_parts_that_overlap_have_a_gamma_of_their_own() -> None:
    together = (0.01, 0.0005, 0.06, 0.01, 2.0)
    model = fitted(windows(together, 1, 2, 3))
    assert model.coefficients[4] == pytest.approx(2.0, abs=0.3)
    assert model.predict(Size(0, 5)) == pytest.approx(rate(together, 5), rel=0.1)
    assert fitted(windows(TRUTH, 1, 2, 3)).coefficients[4] == 1.0


def test_cores_that_a_worker_is_held_to_shorten_what_it_computes() -> None:
    one = [
        fact(
            Window,
            0.0,
            10.0,
            Size(0, 1, worker_cpu=1.0),
            RECORDS / 0.25,
            RECORDS / 2,
            own_seconds=0.24,
            sum_seconds=0.01,
        )
    ]
    model = fitted(one)
    assert model.predict(Size(0, 1, worker_cpu=2.0)) > 1.5 * model.predict(Size(0, 1, worker_cpu=1.0))


def test_windows_of_jobs_with_ps_and_absurd_ones_teach_nothing() -> None:
    assert fit([fact(Window, 0.0, 10.0, Size(1, 0), 100.0, 10.0)]) is None
    assert fit([fact(Window, 0.0, 10.0, Size(0, 0), 1e-30, 10.0)]) is None
    assert fit([]) is None


def test_what_was_measured_before_others_took_the_host_counts_less() -> None:
    before = windows(TRUTH, 0, 1, host_cores=2.0, others_cores=0.0)
    slow = tuple(2 * value for value in TRUTH[:4]) + (1.0,)
    after = [
        fact(Window, 1000.0 + one.start, 10.0, one.size, one.examples_per_second, one.examples_per_step, host_cores=2.0,
             others_cores=1.0, own_seconds=one.own_seconds, sum_seconds=one.sum_seconds)
        for one in windows(slow, 1, 1, 1)
    ]  # fmt: skip
    model = fitted([*before, *after], Surroundings(2.0, 1.0))
    assert model.predict(Size(0, 1)) == pytest.approx(rate(slow, 1), rel=0.15)


def test_priors_do_not_outweigh_what_was_measured() -> None:
    model = fitted(windows(TRUTH, 0, 1, 2, 3))
    assert solve(model.points)[:3] == pytest.approx(TRUTH[:3], rel=0.15)
    assert model.told(Size(0, 1)) == "a step of 150 ms, 20 ms of it the sum"
