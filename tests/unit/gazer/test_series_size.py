"""A day of a hundred roles in less than 100 MB, and the longest week in no more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.gazer.metrics import metrics_of
from deeprec_ext.gazer.series import LEVELS, TRACES_BYTES_MAX, Series

NOON = 1_700_000_400.0
HOUR, DAY = 3600, 86_400
LIMIT_BYTES = 100 * 10**6


def roles(ps: int, workers: int, slots: int) -> list[str]:
    names = [*(f"ps-{i}" for i in range(ps)), "chief-0", *(f"worker-{i}" for i in range(workers - 1))]
    return ["job", "aimaster", *names, *(f"slot-{i}" for i in range(slots))]


def record(store: Store, series: Series, names: list[str], begin: float, end: float, step: float) -> None:
    """Every metric of every name, at each step."""
    values = {name: {metric: random.random() * 1e6 for metric in metrics_of(name)} for name in names}
    time = begin + step
    while time <= end:
        with store.transaction():
            for _ in range(30):
                series.add(time, values)
                time += step


def bytes_on_disk(store: Store, path: Path) -> int:
    store.checkpoint()
    return path.stat().st_size


@pytest.mark.slow
def test_a_day_of_a_hundred_roles_fits(tmp_path: Path) -> None:
    """Samples are kept for an hour: what is older is the same whether it was sampled each 2 s or, to be quick, each 30 s."""
    path, names = tmp_path / "aimaster.db", roles(20, 80, 64)
    store = Store(path)
    series = Series(store)
    record(store, series, names, NOON, NOON + DAY - 1.2 * HOUR, 30)
    record(store, series, names, NOON + DAY - 1.2 * HOUR, NOON + DAY, 2)
    assert bytes_on_disk(store, path) < LIMIT_BYTES
    assert store.rows("SELECT count(*) FROM gazer_samples")[0][0] >= 1800
    assert store.rows("SELECT count(*) FROM gazer_minutes")[0][0] >= 1439
    (day,) = series.query(["job"], ["step"])
    assert day.times[-1] - day.times[0] > 0.99 * DAY and 400 <= len(day.times) <= 500
    (quarter,) = series.query(["job"], ["step"], since=NOON + DAY - 900)
    assert len(quarter.times) >= 449
    store.close()


@pytest.mark.slow
def test_the_limits_hold_for_a_thousand_roles(tmp_path: Path) -> None:
    """Half an hour fills the finest level beyond its bytes; the others have limits of the same kind."""
    path, names = tmp_path / "aimaster.db", roles(200, 800, 64)
    store = Store(path)
    series = Series(store)
    record(store, series, names, NOON, NOON + 0.5 * HOUR, 2)
    sizes = {}
    for level in LEVELS:
        (size,) = store.rows(f"SELECT sum(length(subjects) + length(samples)) FROM {level.table}")[0]
        sizes[level.table] = size
        assert size <= level.bytes_max + 150_000
    assert sizes["gazer_samples"] > 0.9 * LEVELS[0].bytes_max
    assert store.rows("SELECT count(*) FROM gazer_samples")[0][0] * 2 >= 800  # about a quarter of an hour
    assert sum(level.bytes_max for level in LEVELS) + TRACES_BYTES_MAX < LIMIT_BYTES
    store.close()
