"""The series keep what they promise in the room they have."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from deeprec_ext.aimaster.store.store import MIGRATIONS, Store
from deeprec_ext.gazer import series as module
from deeprec_ext.gazer.metrics import metrics_of
from deeprec_ext.gazer.packing import Row, merge, numbers, pack
from deeprec_ext.gazer.series import LEVELS, Level, Series
from deeprec_ext.proto import deeprec_ext_pb2 as pb

NOON = 1_700_000_400.0  # a multiple of ten minutes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "aimaster.db")
    yield opened
    opened.close()


def fill(series: Series, begin: float, seconds: float, step: float = 2.0, name: str = "ps-0") -> None:
    """cpu_cores of a role is the number of seconds since `NOON`, at each step after `begin`."""
    for number in range(1, round(seconds / step) + 1):
        time = begin + number * step
        series.add(time, {name: {"cpu_cores": time - NOON}})


def test_what_was_written_is_read(store: Store) -> None:
    series = Series(store)
    series.add(NOON, {"ps-0": {"cpu_cores": 0.5, "rss_bytes": 3e9}, "job": {"step": 7}})
    series.add(NOON + 2, {"ps-0": {"cpu_cores": 1.5}})
    lines = {(line.subject, line.metric): line for line in series.query()}
    assert lines.keys() == {("ps-0", "cpu_cores"), ("ps-0", "rss_bytes"), ("job", "step")}
    cpu = lines["ps-0", "cpu_cores"]
    assert (cpu.times, cpu.means, cpu.highest) == ([NOON, NOON + 2], [0.5, 1.5], [0.5, 1.5])
    assert lines["ps-0", "rss_bytes"].times == [NOON]
    assert series.subjects() == ["ps-0", "job"]


def test_questions_are_narrowed_by_subject_metric_and_window(store: Store) -> None:
    series = Series(store)
    for number in range(10):
        series.add(NOON + number, {"ps-0": {"cpu_cores": number, "threads": 4}, "ps-1": {"cpu_cores": 1}})
    found = series.query(subjects=["ps-0"], metrics=["cpu_cores"], since=NOON + 3, until=NOON + 5)
    assert [(line.subject, line.metric, line.times) for line in found] == [("ps-0", "cpu_cores", [NOON + 4, NOON + 5])]
    assert series.query(subjects=["ps-9"]) == [] and series.query(since=NOON + 100) == []


def test_minutes_have_the_mean_and_the_highest_of_their_samples(store: Store) -> None:
    series = Series(store)
    fill(series, NOON, 180)
    tables = {level.table: store.rows(f"SELECT time, samples FROM {level.table} ORDER BY time") for level in LEVELS}
    assert [time for time, _ in tables["gazer_minutes"]] == [round(1000 * (NOON + end)) for end in (60, 120, 180)]
    width = len(metrics_of("ps-0"))
    values = numbers(Row(b"", tables["gazer_minutes"][1][1]))
    assert values[0] == 91 and values[width] == 120  # of 62, 64, ... 120
    assert tables["gazer_tens"] == []


def test_a_long_window_is_answered_from_all_levels_in_order(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    small = (Level("gazer_samples", 0, 900, 1 << 20), Level("gazer_minutes", 60_000, 3600, 1 << 20), LEVELS[2])
    monkeypatch.setattr(module, "LEVELS", small)
    series = Series(store)
    fill(series, NOON, 3 * 3600 + 30, step=10)
    (line,) = series.query(points=5000)
    assert line.times == sorted(set(line.times)) and line.times[-1] == NOON + 3 * 3600 + 30
    assert line.times[0] == NOON + 600 and line.means[0] == pytest.approx(305)  # ten minutes, from the oldest level
    steps = {round(late - early) for early, late in zip(line.times, line.times[1:])}
    assert steps <= {10, 60, 600} | set(range(10, 661, 10)) and {10, 60, 600} <= steps
    for time, mean, peak in zip(line.times, line.means, line.highest):
        assert peak == pytest.approx(time - NOON) and mean <= peak
    (coarse,) = series.query(points=30)
    assert 15 <= len(coarse.times) <= 30


def test_no_more_points_than_asked_for_and_none_lost(store: Store) -> None:
    series = Series(store)
    fill(series, NOON, 600)
    (line,) = series.query(points=7)
    assert 4 <= len(line.times) <= 7 and max(line.highest) == 600 and line.times[-1] == NOON + 600
    assert sum(line.means) / len(line.means) == pytest.approx(301, rel=0.1)


def test_a_careless_question_gets_fewer_points(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeprec_ext.gazer.series_lines.VALUES_MAX", 60)
    series = Series(store)
    for number in range(100):
        series.add(NOON + number, {f"ps-{index}": {"cpu_cores": 1.0} for index in range(3)})
    lines = series.query(metrics=["cpu_cores"], points=1000)
    assert len(lines) == 3 and all(2 <= len(line.times) <= 20 for line in lines)


def test_the_next_aimaster_goes_on_and_makes_the_minutes_that_are_missing(tmp_path: Path) -> None:
    store = Store(tmp_path / "aimaster.db")
    series = Series(store)
    for number in range(1, 90):  # killed before the second minute was made, and the first neither
        series.append(NOON + 2 * number, {"ps-0": {"cpu_cores": 2 * number}})
    store.close()
    again = Store(tmp_path / "aimaster.db")
    fill(Series(again), NOON + 400, 20)
    ends = [(time / 1000 - NOON) for (time,) in again.rows("SELECT time FROM gazer_minutes ORDER BY time")]
    assert ends == [60, 120, 180, 420]
    (line,) = Series(again).query(metrics=["cpu_cores"])
    assert line.times[0] == NOON + 2 and line.times[-1] == NOON + 420
    again.close()


def test_old_rows_go_a_few_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEVELS", (Level("gazer_samples", 0, 100, 1 << 20), *LEVELS[1:]))
    series = Series(store)
    fill(series, NOON, 90)
    series.add(NOON + 300, {"job": {"ps": 1}})
    assert store.rows("SELECT count(*) FROM gazer_samples") == [(45 + 1 - module.PRUNED_AT_ONCE,)]
    fill(series, NOON + 300, 40)
    assert store.rows("SELECT min(time) FROM gazer_samples") == [(round(1000 * (NOON + 300)),)]


def test_a_level_is_never_larger_than_its_bytes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEVELS", (Level("gazer_samples", 0, 1e6, 10_000), *LEVELS[1:]))
    fill(Series(store), NOON, 2000)
    assert store.rows("SELECT sum(length(subjects) + length(samples)) FROM gazer_samples")[0][0] <= 10_100
    fill(Series(store), NOON + 2000, 40)  # another process counts anew what is there
    assert store.rows("SELECT sum(length(subjects) + length(samples)) FROM gazer_samples")[0][0] <= 10_100


def test_after_a_clock_that_went_back_time_goes_on_from_there(store: Store) -> None:
    series = Series(store)
    fill(series, NOON, 600)
    for number in range(1, 151):
        series.add(NOON + 300 + 2 * number, {"ps-0": {"cpu_cores": -1.0 * number}})
    (line,) = series.query(points=5000)
    assert line.times == sorted(set(line.times)) and line.times[-1] == NOON + 600
    assert [mean for time, mean in zip(line.times, line.means) if time > NOON + 300] == [
        -number for number in range(1, 151)
    ]
    minutes = dict(store.rows("SELECT time, samples FROM gazer_minutes"))
    assert numbers(Row(b"", minutes[round(1000 * (NOON + 420))]))[0] == -45.5  # made anew


def test_rows_of_a_clock_far_ahead_go_away(store: Store) -> None:
    series = Series(store)
    fill(series, NOON + 1e9, 20)
    fill(series, NOON, 130)
    newest = [store.rows(f"SELECT max(time) FROM {level.table}")[0][0] for level in LEVELS]
    assert all(time is None or time <= 1000 * (NOON + 130) for time in newest)


def test_hostile_names_numbers_and_times_are_ignored(store: Store) -> None:
    series = Series(store)
    for time in (-1.0, 0.0, math.nan, math.inf, 1e300):
        series.add(time, {"ps-0": {"cpu_cores": 1.0}})
    names = ("ps-" + "9" * 1000, "ps-x", "", "slot-1; DROP TABLE meta", "worker", "ps-0\n", "nobody-1")
    series.add(NOON, {name: {"cpu_cores": 1.0} for name in names})
    assert series.query() == [] and store.rows("SELECT count(*) FROM gazer_samples") == [(0,)]
    values = {
        "cpu_cores": math.nan,
        "rss_bytes": math.inf,
        "threads": -math.inf,
        "open_files": 1e300,
        "no such metric": 1.0,
    }
    series.add(NOON, {"ps-0": values | {"busy_share": 0.25}})
    assert [(line.metric, line.means) for line in series.query()] == [("busy_share", [0.25])]


def test_so_many_subjects_and_no_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SUBJECTS_MAX", 10)
    series = Series(store)
    series.add(NOON, {f"slot-{number}": {"bytes": 1.0} for number in range(1000)})
    series.add(NOON + 2, {f"slot-{number}": {"bytes": 1.0} for number in range(1000, 2000)})
    assert len(series.subjects()) == 10


def test_subjects_come_and_go(store: Store) -> None:
    series = Series(store)
    fill(series, NOON, 30)
    for number in range(16, 31):
        series.add(NOON + 2 * number, {"ps-1": {"cpu_cores": 4}, "ps-0": {"cpu_cores": 100}})
    found = {line.subject: line for line in series.query(metrics=["cpu_cores"], since=NOON, until=NOON + 60, points=2)}
    assert found["ps-1"].means == [4.0] and len(found["ps-0"].means) == 2
    minute = store.rows("SELECT subjects, samples FROM gazer_minutes")[0]
    assert len(minute[0]) == 8 and numbers(Row(*minute))[0] == pytest.approx((16 * 15 + 1500) / 30)


def test_rows_with_other_subjects_merge_by_subject() -> None:
    """ps 1 (one metric) and ps 2 (two), in either order, and one that is not measured."""
    nan = math.nan
    rows = [pack([(1, [1.0]), (2, [10.0, nan])]), pack([(2, [30.0, nan]), (1, [5.0])]), pack([(1, [nan])])]
    merged = merge(rows, {1: 1, 2: 2}, doubled=False)
    values = dict(zip(("mean", "high", "mean2", "x", "high2", "y"), numbers(merged)))
    assert (values["mean"], values["high"], values["mean2"], values["high2"]) == (3.0, 5.0, 20.0, 30.0)
    assert math.isnan(values["x"]) and math.isnan(values["y"])
    again = merge([merged, merged], {1: 1, 2: 2}, doubled=True)
    assert again.subjects == merged.subjects and list(numbers(again))[:3] == list(numbers(merged))[:3]


def test_traces_are_the_newest_of_each_trainer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    series = Series(store)
    for number in range(50):
        series.add_trace(NOON + number, "chief-0", pb.Trace(step=number + 1).SerializeToString())
    series.add_trace(NOON, "worker-0", pb.Trace(step=1).SerializeToString())
    series.add_trace(NOON, "nobody", b"") or series.add_trace(NOON, "worker-0", bytes(module.TRACE_BYTES_MAX + 1))
    assert [trace.step for _, _, trace in series.traces("chief-0")] == list(range(31, 51))
    assert [(name, trace.step) for _, name, trace in series.traces()][-1] == ("worker-0", 1)
    monkeypatch.setattr(module, "TRACES_BYTES_MAX", 1000)
    big = pb.Trace(step=9, ops=[pb.OpTime(name="x" * 300)]).SerializeToString()
    for number in range(20):
        series.add_trace(NOON + number, f"worker-{number}", big)
    assert sum(len(row[0]) for row in store.rows("SELECT trace FROM gazer_traces")) <= 1000


def test_a_store_of_an_older_version_has_no_series_until_it_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "aimaster.db"
    with sqlite3.connect(path) as db:
        db.executescript(f"{MIGRATIONS[0]} {MIGRATIONS[1]} PRAGMA user_version=2;")
        db.execute("INSERT INTO meta VALUES ('job', '\"old\"')")
    old = Store(path, read_only=True)
    assert Series(old).query() == [] and Series(old).subjects() == [] and Series(old).traces() == []
    old.close()
    new = Store(path)
    Series(new).add(NOON, {"job": {"step": 3}})
    assert new.get("job") == "old" and Series(new).query()[0].means == [3.0]
    new.close()


def test_another_process_reads_while_one_writes(tmp_path: Path) -> None:
    store = Store(tmp_path / "aimaster.db")
    reader = Store(tmp_path / "aimaster.db", read_only=True)
    writing, reading = Series(store), Series(reader)
    for number in range(1, 4):
        with store.transaction():
            writing.add(NOON + number, {"job": {"step": number}})
            if number > 1:
                assert reading.query()[0].means[-1] == number - 1
        assert reading.query()[0].means[-1] == number
    reader.close()
    store.close()


def test_a_version_that_measures_more_goes_on_with_the_same_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows say which metrics they have; an older AIMaster measured two of them, in another order."""
    store = Store(tmp_path / "aimaster.db")
    with monkeypatch.context() as older:
        older.setattr(module, "metrics_of", lambda _: dict.fromkeys(("threads", "cpu_cores")))
        series = Series(store)
        for number in range(1, 11):
            series.append(NOON + 2 * number, {"ps-0": {"cpu_cores": 1.0, "threads": 9.0}})
    series = Series(store)
    for number in range(11, 31):
        series.add(NOON + 2 * number, {"ps-0": {"cpu_cores": 4.0, "rss_bytes": 5.0}})
    lines = {line.metric: line for line in series.query(["ps-0"])}
    assert lines["cpu_cores"].means == [1.0] * 10 + [4.0] * 20 and lines["threads"].means == [9.0] * 10
    minutes = store.rows("SELECT count(*) FROM gazer_minutes")
    assert minutes == [(1,)] and series.subjects() == ["ps-0"]
    (minute,) = series.query(["ps-0"], ["rss_bytes"], since=NOON, until=NOON + 120, points=2)
    assert minute.means == [5.0]
    store.close()
