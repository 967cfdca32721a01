"""The throughput model on truths that are known, with noise, outliers and few sizes."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeprec_ext.autoscaler.model import formula
from deeprec_ext.autoscaler.model.fitting import GOOD, Point, _slopes, _System, solve
from deeprec_ext.autoscaler.model.surroundings import UNKNOWN, Surroundings
from deeprec_ext.autoscaler.model.throughput import OLDER, PREPARING_WEIGHT, ThroughputModel, fit, points_of, usable
from deeprec_ext.autoscaler.observe.observed import Size, Window
from tests.unit.autoscaler.facts import fact

BATCH = 512.0
#             fixed compute fan   idle  serve guard per_ps idle  shared sharpness
TRUTH = (0.01, 0.20, 0.002, 0.02, 0.06, 0.02, 0.004, 0.02, 0.0, 3.0)
SUM = (0.02, 0.15, 0.002, 0.0, 0.05, 0.0, 0.004, 0.0, 0.002, 0.0)
"""As Optimus has it: waiting for the PS adds to computing."""
CROWDED = (0.01, 0.10, 0.0, 0.0, 0.01, 0.0, 0.001, 0.0, 0.05, 7.0)
"""The machine's cores are used up with two trainers."""

GRID = [
    Size(ps, workers, ps_cpu, worker_cpu)
    for ps in (1, 2, 3, 4) for workers in (0, 1, 3, 6) for ps_cpu in (0.5, 1.0) for worker_cpu in (0.5, 1.0)
]  # fmt: skip


def rate(truth: Sequence[float], size: Size) -> float:
    return size.trainers * BATCH / formula.step_seconds(truth, UNKNOWN.place(size))


def window(
    truth: Sequence[float], size: Size, noise: float = 0.0, chance: random.Random | None = None, cpu: bool = True
) -> Window:
    """CPU as the kernel would measure it; all numbers scatter by `noise`."""
    luck = chance or random.Random(0)
    seconds = size.trainers * BATCH / rate(truth, size)
    return fact(Window,
        0.0, 10.0, size, rate(truth, size) * luck.lognormvariate(0, noise), BATCH,
        trainer_cpu_cores=cpu * formula.trainer_cores(truth, size.ps, seconds) * luck.lognormvariate(0, noise),
        ps_cpu_cores=cpu * formula.ps_cores(truth, size.ps, size.trainers, seconds) * luck.lognormvariate(0, noise),
    )  # fmt: skip


def fitted(windows: Sequence[Window]) -> ThroughputModel:
    model = fit(windows)
    assert model is not None
    return model


def error(model: ThroughputModel, truth: Sequence[float], sizes: Sequence[Size] = GRID) -> float:
    return statistics.fmean(abs(model.predict(size) / rate(truth, size) - 1) for size in sizes)


def draws(truth: Sequence[float], count: int, noise: float, cpu: bool) -> list[float]:
    """Errors at all sizes of models of `count` sizes, for 15 draws."""
    errors = []
    for seed in range(15):
        chance = random.Random(seed)
        errors.append(error(fitted([window(truth, s, noise, chance, cpu) for s in chance.sample(GRID, count)]), truth))
    return errors


# ------------------------------------------------------------------------------------------------ what it learns


@pytest.mark.parametrize("truth", [TRUTH, SUM, CROWDED])
def test_a_truth_of_the_formula_is_found_from_all_sizes(truth):
    assert error(fitted([window(truth, size) for size in GRID]), truth) < 0.02


@pytest.mark.parametrize("truth", [TRUTH, SUM, CROWDED])
@pytest.mark.parametrize(
    ("count", "cpu", "most"), [(5, True, 0.12), (8, True, 0.09), (12, True, 0.07), (12, False, 0.11)]
)
def test_few_sizes_say_what_the_others_are_like(truth, count, cpu, most):
    assert statistics.median(draws(truth, count, 0.03, cpu)) < most


def test_a_size_of_many_trainers_is_foreseen_from_few():
    seen = [size for size in GRID if size.workers <= 1]
    ahead = [size for size in GRID if size.workers >= 6]
    chance = random.Random(1)
    model = fitted([window(TRUTH, size, 0.03, chance) for size in seen])
    assert error(model, TRUTH, ahead) < 0.1


def test_a_job_bound_by_its_ps_gains_by_ps_and_not_by_workers():
    bound = (0.0, 0.02, 0.0, 0.0, 0.2, 0.0, 0.0, 0.0, 0.0, 7.0)
    model = fitted([window(bound, Size(ps, workers, 1, 1)) for ps, workers in ((1, 1), (1, 3), (2, 3), (2, 5))])
    assert model.predict(Size(2, 11, 1, 1)) == pytest.approx(model.predict(Size(2, 5, 1, 1)), rel=0.05)
    assert model.predict(Size(4, 5, 1, 1)) > 1.7 * model.predict(Size(2, 5, 1, 1))


def test_a_job_bound_by_its_trainers_gains_by_workers_and_not_by_ps():
    bound = (0.01, 0.2, 0.0, 0.0, 0.002, 0.0, 0.0, 0.0, 0.0, 7.0)
    model = fitted([window(bound, Size(ps, workers, 1, 1)) for ps, workers in ((1, 1), (1, 3), (2, 3), (2, 1))])
    assert model.predict(Size(2, 7, 1, 1)) > 1.8 * model.predict(Size(2, 3, 1, 1))
    assert model.predict(Size(4, 3, 1, 1)) == pytest.approx(model.predict(Size(2, 3, 1, 1)), rel=0.05)


def test_where_the_machine_is_full_nothing_more_is_expected():
    seen = [Size(1, workers, 0, 0) for workers in (0, 1, 2, 3)]
    model = fitted([window(CROWDED, size) for size in seen])
    assert model.predict(Size(1, 7)) < 1.15 * model.predict(Size(1, 3))


def test_cpu_use_says_how_fast_a_starved_job_could_be():
    """One size, bound by its PS: only the CPU of the trainers tells that they could do five times as much."""
    bound = (0.0, 0.04, 0.0, 0.0, 0.2, 0.0, 0.0, 0.0, 0.0, 7.0)
    told, untold = (fitted([window(bound, Size(1, 0, 1, 1), cpu=cpu)]) for cpu in (True, False))
    assert told.predict(Size(1, 0, 20, 1)) == pytest.approx(rate(bound, Size(1, 0, 20, 1)), rel=0.4)
    assert told.predict(Size(1, 0, 20, 1)) > 1.5 * untold.predict(Size(1, 0, 20, 1))


def test_without_requests_only_counts_matter():
    model = fitted([window(SUM, Size(ps, workers)) for ps, workers in ((1, 0), (1, 2), (2, 2), (2, 4), (3, 4))])
    assert error(model, SUM, [Size(2, 6), Size(4, 6), Size(3, 1)]) < 0.1


# ------------------------------------------------------------------------------------------------ what it withstands


@pytest.mark.parametrize("factor", [0.05, 0.3, 3.0])
def test_an_outlier_hardly_moves_it(factor):
    chance = random.Random(3)
    good = [window(TRUTH, size, 0.02, chance) for size in chance.sample(GRID, 10)]
    wrong = dataclasses.replace(good[4], examples_per_second=good[4].examples_per_second * factor)
    kept = [*good[:4], *good[5:]]
    with_outlier, without = error(fitted([*kept, wrong]), TRUTH), error(fitted(kept), TRUTH)
    assert with_outlier < without + 0.05


def test_one_wrong_window_among_others_of_its_size_does_not_move_it_at_all():
    windows = [window(TRUTH, size) for size in GRID[::5] for _ in range(3)]
    wrong = dataclasses.replace(windows[4], examples_per_second=1.0)
    assert fitted([*windows[:4], wrong, *windows[5:]]).coefficients == pytest.approx(
        fitted(windows).coefficients, rel=1e-3
    )


def test_impossible_windows_are_left_out():
    good = window(TRUTH, Size(1, 1, 1, 1))
    bad = [
        dataclasses.replace(good, examples_per_second=0.0),
        dataclasses.replace(good, examples_per_second=math.nan), dataclasses.replace(good, examples_per_second=math.inf),
        dataclasses.replace(good, examples_per_second=-5.0), dataclasses.replace(good, seconds=0.0),
        dataclasses.replace(good, size=Size(0, 1)), dataclasses.replace(good, size=Size(1, -1)),
        dataclasses.replace(good, size=Size(1, 1, math.nan, 1.0)), dataclasses.replace(good, size=Size(1, 1, 1.0, -2.0)),
    ]  # fmt: skip
    assert usable([good, *bad]) == [good]
    assert fitted([good, *bad]) == fitted([good])
    assert fit(bad) is None
    assert fit([]) is None


def test_cpu_that_is_no_number_is_not_known():
    good = [window(TRUTH, size, cpu=False) for size in GRID[:6]]
    strange = [dataclasses.replace(one, trainer_cpu_cores=math.nan, ps_cpu_cores=-1.0) for one in good]
    assert fitted(strange).coefficients == fitted(good).coefficients


def test_two_sizes_alone_say_nothing_wild():
    model = fitted([window(TRUTH, Size(1, workers, 1, 1), cpu=False) for workers in (0, 1)])
    here = model.predict(Size(1, 1, 1, 1))
    assert here == pytest.approx(rate(TRUTH, Size(1, 1, 1, 1)), rel=0.05)
    assert here < model.predict(Size(1, 3, 1, 1)) < 2.05 * here
    assert 0.9 * here < model.predict(Size(2, 1, 1, 1)) < 1.6 * here


def test_a_size_that_has_nothing_of_what_cost_time_is_not_infinitely_fast():
    """All the time is put down to the second PS, which a size with one has not."""
    model = fitted([
        fact(Window, 0.0, 10.0, Size(2, 0), 2.0), fact(Window, 0.0, 10.0, Size(2, 37, 0.1), 124.0),
        fact(Window, 0.0, 10.0, Size(3, 0, 0.1), 1.0),
    ])  # fmt: skip
    assert formula.step_seconds(model.coefficients, UNKNOWN.place(Size(1, 0))) == 0.0
    assert 124.0 < model.predict(Size(1, 0)) < 1e6


@given(
    st.lists(
        st.tuples(
            st.integers(1, 50), st.integers(0, 200), st.sampled_from([0.0, 0.1, 1.0, 16.0]), st.sampled_from([0.0, 0.5, 8.0]),
            st.floats(1e-3, 1e7), st.floats(0, 100), st.floats(0, 100),
        ),
        min_size=1, max_size=15,
    )
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_whatever_was_measured_predictions_are_finite_and_positive(rows):
    windows = [
        fact(
            Window, 0.0, 10.0, Size(ps, workers, ps_cpu, worker_cpu), speed, trainer_cpu_cores=used, ps_cpu_cores=served
        )
        for ps, workers, ps_cpu, worker_cpu, speed, used, served in rows
    ]
    model = fitted(windows)
    assert all(value >= 0 and math.isfinite(value) for value in model.coefficients)
    assert len(model.coefficients) == len(formula.COEFFICIENTS)
    for size in (Size(1, 0), Size(100, 1000, 2.0, 4.0), windows[0].size):
        assert math.isfinite(model.predict(size)) and model.predict(size) > 0
        assert model.optimistic(size) >= model.predict(size)
    assert 0 <= model.confidence <= 1


def test_the_order_of_windows_makes_no_difference():
    chance = random.Random(5)
    windows = [window(TRUTH, size, 0.1, chance) for size in chance.choices(GRID, k=20)]
    shuffled = windows[:]
    chance.shuffle(shuffled)
    assert fitted(windows).coefficients == fitted(shuffled).coefficients
    assert fitted(windows).mape_holdout == fitted(shuffled).mape_holdout


# ------------------------------------------------------------------------------------------------ what it says of itself


def test_the_error_is_measured_at_sizes_that_were_left_out():
    chance = random.Random(2)
    one_size = [window(TRUTH, GRID[0], 0.01, chance) for _ in range(30)]
    assert fitted(one_size).mape_holdout is None
    several = [window(TRUTH, size, 0.01, chance) for size in GRID[::6] for _ in range(3)]
    assert fitted(several).mape_holdout is not None
    assert fitted(several).mape_holdout < 0.1
    odd = [dataclasses.replace(one, examples_per_second=one.examples_per_second * (9 if one.size == GRID[6] else 1))
           for one in several]  # fmt: skip
    assert fitted(odd).mape_holdout > 2 * fitted(several).mape_holdout


def test_confidence_grows_with_the_sizes_seen_and_ends_where_all_is_noise():
    chance = random.Random(4)

    def confidence(count: int, noise: float) -> float:
        return statistics.median(
            fitted([window(TRUTH, s, noise, chance) for s in chance.sample(GRID, count)]).confidence for _ in range(5)
        )

    assert confidence(1, 0.02) < confidence(4, 0.02) < confidence(12, 0.02)
    assert confidence(1, 0.02) < 0.3
    assert confidence(12, 0.02) > 0.7
    noise = [
        dataclasses.replace(window(TRUTH, s), examples_per_second=chance.uniform(1, 10_000))
        for s in chance.sample(GRID, 12)
    ]
    assert fitted(noise).confidence < 0.05


def test_a_size_that_was_not_tried_has_the_benefit_of_the_doubt():
    model = fitted([window(TRUTH, size) for size in (Size(1, 1, 1, 1, 1 << 30), Size(2, 3, 1, 1))])
    assert model.tried(Size(1, 1, 1, 1, 5 << 30))  # memory makes nothing faster
    assert not model.tried(Size(1, 1, 0.5, 1))
    assert model.optimistic(Size(1, 1, 1, 1)) == model.predict(Size(1, 1, 1, 1))
    assert model.optimistic(Size(2, 5, 1, 1)) > model.predict(Size(2, 5, 1, 1))


# ------------------------------------------------------------------------------------------------ how it is solved


def test_derivatives_are_those_of_the_formula():
    chance = random.Random(0)
    points = [Point(UNKNOWN.place(s), 0.1 + chance.random()) for s in GRID]
    system = _System(points)
    at = [0.01, 0.2, 0.01, 0.05, 0.06, 0.02, 0.01, 0.1, 0.003, 2.0]
    fit = system.fit(at)
    for index in range(len(at)):
        moved = at[:]
        moved[index] += 1e-6
        for point, found, here, there in zip(points, fit.bounds, fit.speed, system.fit(moved).speed):
            assert (there - here) / 1e-6 == pytest.approx(_slopes(at, point.at, *found)[index], rel=1e-3, abs=1e-6)
    assert [point.seconds * math.exp(residual) for point, residual in zip(points, fit.speed)] == pytest.approx(
        [formula.step_seconds(at, point.at) for point in points]
    )


@pytest.mark.parametrize("truth", [TRUTH, SUM, CROWDED])
def test_the_solution_is_no_worse_than_the_truth(truth):
    points = [Point(UNKNOWN.place(s), s.trainers * BATCH / rate(truth, s)) for s in GRID]
    system = _System(points)
    real, found = system.fit(list(truth)), system.fit(list(solve(points)))
    limits = system.limits(real)
    assert system.badness(found, limits) < system.badness(real, limits) + 1e-3


def drawn(seed: int) -> list[Point]:
    """What a run at a few sizes may measure."""
    chance = random.Random(seed)
    truth = (TRUTH, SUM, CROWDED)[seed % 3]
    return points_of([window(truth, s, 0.05, chance) for s in chance.sample(GRID, 2 + seed % 9)], BATCH, UNKNOWN)


REFERENCE = (
    0.0010699, 0.0013442, 0.029436, 0.0072926, 0.013655, 0.037947, 0.013767, 0.013201, 0.054792, 0.00073682, 0.0011942,
    0.025706, 0.0026533, 0.0068554, 0.0311, 0.01673, 0.022245, 0.021853, 0.00026339, 0.0017329, 0.014176, 0.0040351, 0.019578,
    0.026085, 0.012412, 0.022391, 0.025662, 0.00051686, 0.0053707, 0.014415, 0.0069725, 0.0067447, 0.03505, 0.0098192,
    0.019764, 0.035277, 0.0003763, 0.0023873, 0.023928, 0.0050622, 0.0096608, 0.030297, 0.0084457, 0.01456, 0.042133,
)  # fmt: skip
"""By `scipy.optimize.nnls` in numpy arrays, 12 rounds from both starts: the solver that this one took the place of."""


def test_solutions_are_as_good_as_those_of_the_solver_before():
    for seed, before in enumerate(REFERENCE):
        system = _System(drawn(seed))
        assert system.badness(system.fit(list(solve(drawn(seed)))), (0.1, 0.1)) < 1.01 * before + GOOD**2, seed


def test_with_a_solution_nearby_it_finds_the_same():
    for seed in range(3, 27, 3):
        points = drawn(seed)
        system, near = _System(points), solve(points[:-1])
        found, usual = (system.badness(system.fit(list(solve(points, c))), (0.1, 0.1)) for c in (near, ()))
        assert found == pytest.approx(usual, rel=0.05, abs=GOOD**2), seed


def test_what_a_request_leaves_is_never_nothing_and_all_of_it_where_nothing_is_idle():
    assert formula.cores(2.0, 0.0) == pytest.approx(2.0, rel=0.01)
    assert formula.cores(2.0, 0.5) == pytest.approx(1.5, rel=0.02)
    assert 0 < formula.cores(2.0, 100.0) < 0.01


def test_a_size_at_which_sessions_were_prepared_all_the_time_weighs_less():
    def weight(*preparing: bool) -> float:
        known = [dataclasses.replace(window(CROWDED, Size(1, 1)), preparing=one) for one in preparing]
        (point,) = points_of(known, BATCH, UNKNOWN)
        return point.weight

    assert weight(True, True) == PREPARING_WEIGHT * weight(False, False)


# ------------------------------------------------------------------------------------------------ hosts and fullest PS

HOST = Surroundings(cores=2.0, free=2.0)


def on_host(truth: Sequence[float], size: Size, others: float = 0.0, start: float = 0.0) -> Window:
    """Of a job whose processes share two cores with others; nothing is requested."""
    place = dataclasses.replace(HOST, free=2.0 - others).place(size)
    seconds = formula.step_seconds(truth, place)
    return fact(Window,
        start, 10.0, size, size.trainers * BATCH / seconds, BATCH,
        trainer_cpu_cores=formula.trainer_cores(truth, size.ps, seconds),
        ps_cpu_cores=formula.ps_cores(truth, size.ps, size.trainers, seconds), host_cores=2.0, others_cores=others,
    )  # fmt: skip


SMALL = (0.01, 0.05, 0.002, 0.01, 0.03, 0.01, 0.004, 0.01, 0.0, 7.0)


def test_derivatives_of_the_host_are_those_of_the_formula():
    places = [UNKNOWN.place(size)._replace(share=0.7, free=free) for size in GRID[::3] for free in (0.4, 3.0)]
    points = [Point(place, 0.5) for place in places]
    system, at = _System(points), [0.01, 0.2, 0.01, 0.05, 0.06, 0.02, 0.01, 0.1, 0.003, 2.0]
    fit = system.fit(at)
    for index in range(len(at)):
        moved = at[:]
        moved[index] += 1e-6
        for point, found, here, there in zip(points, fit.bounds, fit.speed, system.fit(moved).speed):
            assert (there - here) / 1e-6 == pytest.approx(_slopes(at, point.at, *found)[index], rel=1e-3, abs=1e-6)


def test_no_size_is_predicted_to_train_more_than_free_cores_can():
    sizes = (Size(1, 0), Size(1, 1), Size(2, 1))
    model = fit([on_host(SMALL, size) for size in sizes], HOST)
    assert model is not None
    for size in (Size(ps, workers) for ps in (1, 2, 4, 8) for workers in (0, 3, 15)):
        cost = (SMALL[1] + SMALL[4]) / BATCH  # of an example at least
        assert model.predict(size) < 1.1 * 2.0 / cost
    for size in sizes:
        assert model.predict(size) == pytest.approx(on_host(SMALL, size).examples_per_second, rel=0.06)


def test_each_size_says_what_binds_it():
    model = fit([on_host(SMALL, size) for size in (Size(1, 0), Size(1, 1), Size(2, 1), Size(2, 3))], HOST)
    assert model is not None
    assert model.forecast(Size(4, 7)).binding == "host CPU"
    limited = fitted([window(TRUTH, size) for size in GRID[::3]])
    assert limited.forecast(Size(4, 0, 1.0, 0.5)).binding == "trainer CPU"
    crowded = limited.forecast(Size(1, 15, 0.5, 1.0))
    assert crowded.binding == "PS CPU" and crowded.share > 0.9
    assert crowded.low < crowded.examples_per_second < crowded.high
    common = fitted([window(CROWDED, size) for size in GRID[::3]])
    assert common.forecast(Size(4, 15, 1.0, 1.0)).binding == "network"
    starved = dataclasses.replace(common, waiting=0.6)
    assert starved.forecast(Size(4, 15, 1.0, 1.0)).binding == "input"


def test_where_others_leave_one_core_half_is_predicted():
    windows = [on_host(SMALL, size) for size in (Size(1, 0), Size(1, 1), Size(2, 1), Size(2, 3))]
    alone, crowded = fit(windows, HOST), fit(windows, dataclasses.replace(HOST, free=1.0))
    assert alone is not None and crowded is not None
    assert crowded.predict(Size(2, 3)) == pytest.approx(0.5 * alone.predict(Size(2, 3)), rel=0.1)


def test_windows_from_before_a_change_of_the_load_of_others_weigh_less():
    before = [on_host(SMALL, Size(1, 1), start=10.0 * n) for n in range(6)]
    old = [on_host(SMALL, Size(2, 3), start=60 + 10.0 * n) for n in range(6)]
    since = [on_host(SMALL, Size(1, 1), others=1.0, start=120 + 10.0 * n) for n in range(6)]
    known = HOST.learned([*before, *old, *since])
    assert known.since == 120
    one, two = points_of([*before, *old, *since], BATCH, known)
    assert one.seconds == pytest.approx(BATCH * 2 / since[0].examples_per_second)  # the old ones of it do not count
    assert one.at.free == 1.0 and two.at.free == 2.0
    assert two.weight == pytest.approx(OLDER * one.weight)


def test_uneven_ps_are_known_by_their_fullest():
    """Three PS of which one does half of the work are no faster than two."""
    uneven = {1: 1.0, 2: 0.5, 3: 0.5, 4: 0.25}

    def real(size: Size) -> Window:
        place = UNKNOWN.place(size)._replace(share=uneven[size.ps])
        seconds = formula.step_seconds(TRUTH, place)
        served = formula.ps_cores(TRUTH, size.ps, size.trainers, seconds)
        return fact(Window,
            0.0, 10.0, size, size.trainers * BATCH / seconds, BATCH, ps_cpu_cores=served,
            trainer_cpu_cores=formula.trainer_cores(TRUTH, size.ps, seconds), ps_cpu_most_cores=served * uneven[size.ps],
        )  # fmt: skip

    sizes = [size for size in GRID if size.workers in (1, 6)]
    windows = [real(size) for size in sizes]
    blind = [dataclasses.replace(one, ps_cpu_most_cores=0.0) for one in windows]
    others = [size for size in GRID if size.workers == 3]

    def off(model: ThroughputModel) -> float:
        return statistics.fmean(abs(model.predict(size) / real(size).examples_per_second - 1) for size in others)

    assert off(fitted(windows)) < 0.5 * off(fitted(blind))
