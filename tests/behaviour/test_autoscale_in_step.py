"""`--strategy allreduce --autoscale` with real processes: it decides on workers, by what a step consists of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deeprec_ext.autoscaler.policy.record import read
from tests.behaviour.jobs import SCRIPTS, RealJob

pytestmark = pytest.mark.slow

SUMMING = ("python", str(SCRIPTS / "summing.py"))
OFTEN = ("--strategy", "allreduce", "--autoscale", "--history", "off", "--setting", "decide_seconds=1",
         "--setting", "window_seconds=2", "--max-workers", "2")  # fmt: skip


def changes(job: RealJob) -> list[tuple[int, str]]:
    """(workers, reason) of each decision that changes the size, oldest first."""
    return [(one["workers"], one["reason"]) for one in job.events("decision") if one["action"] not in ("start", "keep")]


def stays(job: RealJob, workers: int) -> bool:
    """Whether the size has been measured, and is kept for what it is, not because something is awaited."""
    if job.status() is None:
        return False
    now = job.decided()
    return now.size.workers == workers and now.action == "keep" and "is the best size known" in now.reason


def check_record(job: RealJob) -> None:
    entries = read(job.directory)
    assert not [one.decision.reason for one in entries if "PS" in one.decision.reason]
    assert {one.decision.size.ps for one in entries} == {0}


@pytest.mark.long
def test_a_job_whose_workers_share_what_is_to_be_computed_grows_and_stays(begin: Callable[..., RealJob]):
    """Each record takes 20 ms of sleep, on any machine: with as many workers as there may be it trains fastest."""
    job = begin(*OFTEN, command=(*SUMMING, "--seconds", "0.02"))
    job.until(lambda: stays(job, 2), "a size that is kept", every=1.0)
    grown = changes(job)
    assert grown[-1][0] == 2, grown
    assert "of it the sum" in grown[0][1]
    seen = job.observed()
    assert len(seen.roles) == 3 and all(0 < use.sum_seconds < use.step_seconds for use in seen.roles)
    newest = seen.windows[-1]
    assert newest.own_seconds > newest.sum_seconds > 0
    check_record(job)


def test_a_job_whose_step_is_the_sum_comes_back_from_a_worker_more(begin: Callable[..., RealJob]):
    """12 MB of numbers, and next to nothing to compute: with another worker each step takes many times as long."""
    job = begin(*OFTEN, command=(*SUMMING, "--seconds", "0.0001", "--numbers", "3000000"))
    job.until(lambda: stays(job, 0), "a size that is kept", every=1.0)
    assert [workers for workers, _ in changes(job)] in ([], [1, 0])
    check_record(job)


@pytest.mark.long
def test_a_job_whose_script_is_known_begins_with_the_size_that_was_good(begin: Callable[..., RealJob], tmp_path: Path):
    """The first one had its workers by hand, for half a minute."""
    flags = ("--strategy", "allreduce", "--history", str(tmp_path / "history.db"))
    first = begin(*flags, "--workers", "2", command=(*SUMMING, "--records", "4500"))
    assert first.end() == 0
    second = begin(*flags, "--autoscale", command=(*SUMMING, "--records", "600"))
    second.until(lambda: second.events("decision"), "the first decision")
    (start,) = second.events("decision")
    assert start["workers"] == 2 and "the job starts with 2 workers: 1 job like it" in start["reason"]
    second.until(lambda: second.roles_of("worker") == ["worker-0", "worker-1"], "its workers")
    assert second.end() == 0
