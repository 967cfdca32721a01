"""First sizes from the history, and jobs into it."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
from pathlib import Path

import pytest

from deeprec_ext.aimaster.core.records import Scaling
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.autoscaler.history.history import History, HistoryError
from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.gazer.series import Series
from deeprec_ext.launch.limits import resolve_limits
from deeprec_ext.launch.records import history as module
from deeprec_ext.launch.records.history import estimate, history_place, remember
from deeprec_ext.launch.resources import Requests, Resources
from tests.unit.autoscaler.history.test_finished import in_step

BEGIN = 1_700_000_000.0
LIMITS = resolve_limits(
    ps=1, workers=0, slots=None, min_ps=None, max_ps=None, min_workers=None, max_workers=None, evaluator=False
)
REQUESTS = Requests(Resources(0.5), Resources(1.0, 1 << 30))


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """A job that had 1 PS and 1 trainer, then 1 and 3, which was three times as fast."""
    store = Store(tmp_path / "aimaster.db")
    store.put(step=1000, slots=8)
    store.save_totals([("one", 64_000)])
    store.save_scaling(
        Scaling(1, "scale-up", "worker", from_count=0, to_count=2, outcome="committed", started=BEGIN + 118)
    )
    series = Series(store)
    with store.transaction():
        for number in range(120):
            trainers = 1.0 if number < 60 else 3.0
            names = ["chief-0", *(f"worker-{index}" for index in range(int(trainers) - 1))]
            series.add(BEGIN + 2 * number, {
                "job": {"examples_per_second": 600 * trainers, "ps": 1.0, "workers": trainers},
                "ps-0": {"cpu_cores": 0.05 * trainers, "rss_bytes": 1e9, "cpu_limit_cores": 0.5},
                **{name: {"cpu_cores": 0.9, "rss_bytes": 2e9, "cpu_limit_cores": 1.0, "memory_limit_bytes": 1e9}
                   for name in names},
            })  # fmt: skip
    store.close()
    return tmp_path


def remembered(path: Path, workdir: Path, requests: Requests = REQUESTS) -> bool:
    return remember(path, workdir, script="train", status="succeeded", seconds=240.0, requests=requests, backups=True)


def test_a_job_that_ended_says_where_the_next_one_starts(tmp_path, workdir):
    path = tmp_path / "history.db"
    before = estimate(path, "train", LIMITS, REQUESTS, backups=True)
    assert (before.size.ps, before.size.workers) == (1, 0)
    assert remembered(path, workdir)
    after = estimate(path, "train", LIMITS, REQUESTS, backups=True)
    assert after.size.workers > 0
    assert after.confidence > before.confidence
    assert (after.size.ps_cpu, after.size.worker_memory_bytes) == (0.5, 1 << 30)
    assert estimate(path, "other", LIMITS, REQUESTS, backups=True).size == before.size


def test_sizes_are_kept_with_the_limits_that_were_requested(tmp_path, workdir):
    path = tmp_path / "history.db"
    assert remembered(path, workdir)
    history = History(path, read_only=True)
    sizes = {window.size for window in history.jobs()[0].windows}
    history.close()
    assert {(size.workers, size.ps_cpu, size.worker_cpu, size.ps_memory_bytes) for size in sizes} == {
        (0, 0.5, 1.0, 0), (2, 0.5, 1.0, 0),
    }  # fmt: skip


def test_a_job_that_has_nothing_to_teach_makes_no_file(tmp_path):
    Store(tmp_path / "aimaster.db").close()
    assert not remembered(tmp_path / "history.db", tmp_path)
    assert not (tmp_path / "history.db").exists()


def test_a_named_history_is_checked_before_anything_starts(tmp_path):
    assert history_place("off") is None
    named = tmp_path / "mine.db"
    assert history_place(str(named)) == named and not named.exists(), "it is made when there is something to write"
    History(named).close()
    assert history_place(str(named)) == named
    db = sqlite3.connect(named)
    db.execute("PRAGMA user_version=7")
    db.commit()
    db.close()
    with pytest.raises(HistoryError, match="version 7"):
        history_place(str(named))


def test_a_history_that_cannot_be_read_keeps_no_job_from_starting(tmp_path):
    damaged = tmp_path / "history.db"
    damaged.write_bytes(b"SQLite format 3\0" + bytes(4096))
    start = estimate(damaged, "train", LIMITS, Requests(), backups=True)
    assert (start.size.ps, start.size.workers, start.jobs) == (1, 0, 0)
    assert "the finished jobs cannot be read" in start.reason and "no job has finished" not in start.reason


def test_a_history_that_hangs_is_given_up(tmp_path, monkeypatch):
    never = threading.Event()
    monkeypatch.setattr(module, "SECONDS", 0.1)
    monkeypatch.setattr(module, "jobs_of", lambda place, script: never.wait(60))
    try:
        start = estimate(tmp_path / "history.db", "train", LIMITS, Requests(), backups=True)
    finally:
        never.set()
    assert "has not answered within 0.1 s" in start.reason


def test_without_a_history_a_job_starts_small():
    assert estimate(None, "train", LIMITS, Requests(), backups=True).size.workers == 0


def test_a_job_without_ps_that_ended_says_where_the_next_one_of_its_script_starts(tmp_path):
    path, limits = tmp_path / "history.db", dataclasses.replace(LIMITS, ps=0, slots=0, min_ps=0, max_ps=0)
    before = estimate(path, "train", limits, Requests(), backups=False)
    assert (before.size, before.jobs) == (Size(0, 0), 0) and "no job has finished yet" in before.reason
    assert remember(
        path, in_step(tmp_path), script="train", status="succeeded", seconds=160.0, requests=Requests(), backups=True,
        local_batch=True,
    )  # fmt: skip
    after = estimate(path, "train", limits, Requests(), backups=False)
    assert after.size.ps == 0 and after.size.workers in (2, 3) and after.jobs == 1
    assert after.examples_per_second == pytest.approx(96.0 * after.size.trainers, rel=0.15)
    with_ps = estimate(path, "train", LIMITS, REQUESTS, backups=True)
    assert (with_ps.size.ps, with_ps.size.workers, with_ps.jobs) == (1, 0, 0), "it says nothing of a job with PS"
