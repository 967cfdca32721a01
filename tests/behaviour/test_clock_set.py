"""The wall clock of all processes of a job is set by a day, forward and back, while it runs (the fault layer; needs gcc)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.fault_layer.control import Faults, ShimError, compile_shim
from tests.behaviour import test_data_ledger as data_ledger
from tests.behaviour.jobs import RealJob

pytestmark = [pytest.mark.slow, pytest.mark.long]

DAY = 86_400
RECORDS, EPOCHS = 60_000, 3
PACE = ("--sleep", "0.03")
SANE_SECONDS = 1_800.0
"""No age and no duration of this test is longer, on the slowest machine."""


@pytest.fixture
def clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Of every process that is started from now on."""
    try:
        faults = Faults(tmp_path, tmp_path / "nothing", compile_shim(tmp_path))
    except ShimError as error:
        pytest.skip(str(error))
    for name, value in faults.variables.items():
        monkeypatch.setenv(name, value)
    return faults


def check_sane(job: RealJob) -> None:
    """Nothing is as old as the clock says."""
    status = job.until(job.status, "an answer")
    assert 0 <= status.seconds < SANE_SECONDS
    assert 0 <= status.backup.oldest_seconds < SANE_SECONDS and 0 <= status.backup.disk_seconds < SANE_SECONDS
    for role in status.roles:
        assert 0 <= role.heartbeat_age_seconds < SANE_SECONDS and not role.suspect, role
    assert status.state in ("training", "scaling"), status.failure


def train_on(job: RealJob) -> None:
    data_ledger.until_trained(job, data_ledger.trained(job) + 2_000)
    check_sane(job)


@pytest.mark.timeout(400)
def test_a_job_whose_clocks_are_set_by_a_day_gives_nothing_up(begin, clocks: Faults, tmp_path: Path):
    data_ledger.shards.write(str(tmp_path / "data"), RECORDS, 5)
    job = begin(
        "--ps", "2", "--workers", "1", "--setting", "peer_backup_seconds=0.5", "--setting", f"disk_backup={tmp_path / 'disk'}",
        "--setting", "disk_backup_seconds=3",
        command=(*data_ledger.SCRIPT, "--data", str(tmp_path / "data"), "--records", str(RECORDS), "--epochs", str(EPOCHS),
                 *PACE),
    )  # fmt: skip
    data_ledger.until_trained(job, 3_000)
    job.wait_scalable()
    before = job.running()
    for seconds in (DAY, -DAY):
        clocks.set_clock(seconds)
        train_on(job)
        assert {name: job.running()[name] for name in before} == before, "somebody was given up"
    assert job.scale(ps=3).outcome == "committed"  # with a certificate of yesterday
    aimaster = job.pid("aimaster")
    job.kill_aimaster()
    job.until(lambda: job.pid("aimaster") != aimaster and job.status() is not None, "the next AIMaster")
    train_on(job)
    clocks.set_clock(0)
    job.kill("ps-1")
    job.until(lambda: "ps-1" in job.roles_of("ps"), "ps-1 to come back")
    train_on(job)
    data_ledger.finish(job)
    summary, events = job.summary(), job.events()
    report = summary["data"]
    assert summary["status"] == "succeeded" and not summary["suspects"], summary
    assert report["records"] == report["trained"] == RECORDS * EPOCHS and report["lost"] == 0, report
    assert report["repeated"] < RECORDS, "leases have run out"
    assert 0 < summary["seconds"] < SANE_SECONDS
    assert [one["role"] for one in summary["failures"]] == ["ps"]
    for name in ("detected_seconds", "recovered_seconds", "backup_age_seconds"):
        assert 0 <= summary["failures"][0][name] < SANE_SECONDS, summary["failures"]
    assert all(0 <= one["seconds"] < SANE_SECONDS for one in summary["scaling"])
    times = [event["time"] for event in events]
    assert times == sorted(times) and abs(times[-1] - time.time()) < SANE_SECONDS
    assert "succeeded" in (job.directory / "report.html").read_text()
