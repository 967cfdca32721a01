"""Which learner is kept, by what error, and who is a stranger to it."""

from __future__ import annotations

import math
import random

import pytest

from deeprec_ext.autoscaler.history import regression
from deeprec_ext.autoscaler.history.regression import JOBS_MIN, Row, learn


def rows(count: int, value, seed: int = 0, noise: float = 0.03, width: int = 4) -> list[Row]:
    chance, made = random.Random(seed), []
    for job in range(count):
        features = tuple(chance.uniform(0, 5) for _ in range(width))
        made.append(Row(job, features, value(features) * chance.lognormvariate(0, noise)))
    return made


def power(features) -> float:
    return math.exp(0.8 * features[0] - 0.3 * features[1])


def bend(features) -> float:
    """What is first free and then costs: no straight line."""
    return 1.0 + 20.0 * (features[0] > 2.5) + 60.0 * (features[1] > 3.5)


def test_the_learner_that_errs_least_on_jobs_left_out_is_kept():
    straight, bent = learn(rows(40, power)), learn(rows(60, bend))
    assert straight is not None and bent is not None
    assert straight.learner in ("ridge", "Gaussian process")
    assert bent.learner == "gradient boosting"
    for learned in (straight, bent):
        assert learned.error == min(learned.errors.values()) < learned.errors["mean"] / 2
        single = {"ridge", "gradient boosting", "nearest neighbours", "Gaussian process"}
        assert set(learned.errors) == {*single, "three together", "mean"}


def test_a_sum_of_costs_is_found_that_no_product_of_features_is():
    """A step takes what its work, its look-ups and its messages take: they add up."""
    chance, made = random.Random(11), []
    for job in range(40):
        costs = (1.0, 10 ** chance.uniform(3, 8), 10 ** chance.uniform(2, 6), 10 ** chance.uniform(0, 3))
        seconds = (0.002 + 1e-9 * costs[1] + 1e-7 * costs[2] + 2e-5 * costs[3]) * chance.lognormvariate(0, 0.03)
        made.append(Row(job, tuple(map(math.log, costs[1:])), seconds, costs))
    without = learn([Row(row.job, row.features, row.value) for row in made])
    learned = learn(made)
    assert without is not None and learned is not None
    assert learned.error < 0.6 * without.error and learned.error < 0.1
    costs = (1.0, 3e6, 2e4, 50.0)
    seconds = 0.002 + 0.003 + 0.002 + 0.001
    assert learned.predict(tuple(map(math.log, costs[1:])), costs) == pytest.approx(seconds, rel=0.2)


def test_its_error_is_of_jobs_that_it_was_not_shown():
    """Where features say nothing, the error is that of the noise, though two of the learners remember every job."""
    learned = learn(rows(30, lambda features: 1.0, noise=0.5))
    assert learned is not None
    assert 0.3 < learned.error < 1.0


def test_rows_of_one_job_are_left_out_together():
    chance = random.Random(3)
    levels = [chance.lognormvariate(0, 1.0) for _ in range(12)]
    features = [tuple(chance.uniform(0, 5) for _ in range(3)) for _ in range(12)]
    twins = [Row(job, features[job], levels[job]) for job in range(12) for _ in range(4)]
    apart = [Row(number, row.features, row.value) for number, row in enumerate(twins)]
    together, remembered = learn(twins), learn(apart)
    assert together is not None and remembered is not None
    assert together.error > 0.4
    assert remembered.error < 0.05


def test_a_job_with_thousands_of_rows_pushes_out_no_other(monkeypatch):
    monkeypatch.setattr(regression, "ROWS_MAX", 40)
    others = [Row(job + 1, row.features, row.value) for job, row in enumerate(rows(20, power))]
    learned = learn([Row(0, (1.0, 2.0, 3.0, 4.0), 5.0)] * 5000 + others)
    assert learned is not None and learned.jobs == 21


def test_nine_of_ten_new_jobs_lie_within_the_interval():
    learned, new = learn(rows(60, power, noise=0.2)), rows(400, power, seed=1, noise=0.2)
    assert learned is not None
    within = [abs(math.log(row.value / learned.predict(row.features))) <= learned.spread for row in new]
    assert 0.8 <= sum(within) / len(within) <= 0.99


def test_a_stranger_is_told_by_the_feature_that_makes_it_one():
    learned = learn(rows(40, power))
    assert learned is not None
    assert learned.strange((2.5, 2.5, 2.5, 2.5)) is None
    assert learned.strange((2.5, 2.5, 2.5, 25.0)) == 3


@pytest.mark.parametrize(
    "few",
    [[], rows(JOBS_MIN - 1, power), [Row(0, (1.0,), 2.0)] * 50, [Row(job, (), 2.0) for job in range(9)],
     [Row(job, (1.0,), value) for job, value in enumerate([0.0, -1.0, math.nan, math.inf] * 5)]],
)  # fmt: skip
def test_too_few_jobs_teach_nothing(few):
    assert learn(few) is None


def test_the_same_jobs_give_the_same():
    first, second = learn(rows(20, power)), learn(rows(20, power))
    assert first is not None and second is not None
    assert first.errors == second.errors
    assert first.predict((1.0, 2.0, 3.0, 4.0)) == second.predict((1.0, 2.0, 3.0, 4.0))
