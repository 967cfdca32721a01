"""PS die exactly while a backup is being made: in the middle of a peer refresh, and of a cut on disk."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.behaviour.jobs import COUNT, RealJob
from tests.behaviour.losses import Losses
from tests.behaviour.test_disk_backup import backup, cuts, stand_still

pytestmark = pytest.mark.slow

INTERVAL = 0.3
PATIENT = ("--setting", "ps_heartbeat_limit_seconds=20")


def in_a_refresh(job: RealJob, name: str) -> int:
    """This PS stands still, and whoever refreshes a backup with it waits in the middle of that; its pid."""
    pid = job.stop(name)
    # Each PS begins a refresh of each other one within an interval; nothing tells that one waits.
    time.sleep(4 * INTERVAL)
    return pid


@pytest.mark.timeout(400)
@pytest.mark.long
def test_a_refresh_whose_source_or_holder_dies_in_the_middle_leaves_a_backup_that_is_whole(begin):
    flags = ("--ps", "3", "--workers", "1", *PATIENT, "--setting", f"peer_backup_seconds={INTERVAL}")
    job = begin(*flags, command=COUNT)
    losses = Losses(job, 3)
    job.wait_scalable()
    losses.wait_protected()
    losses.remember_catalogue()

    def over() -> None:
        losses.wait_event("promoted", losses.struck)
        job.wait_training("chief-0", "worker-0")

    before = losses.certain()
    in_a_refresh(job, "ps-1")
    losses.strike_now("ps-1", before=before)  # the source: its holders have half of what they asked for
    over()

    before = losses.certain()
    source = in_a_refresh(job, "ps-0")
    losses.strike_now("ps-2", before=before)  # the holder: what was taken for it is in no backup
    job.go_on(source)
    over()
    losses.strike("ps-0")
    over()

    before = losses.certain()
    holder = in_a_refresh(job, "ps-2")
    losses.strike_now("ps-1", before=before)  # the source, while its holder stands still as well
    job.go_on(holder)
    over()

    losses.wait_protected()
    assert "Restoring parameters" not in job.log("chief-0")
    assert job.finish() == 0, job.output
    assert len(losses.check()) == 8
    failures = job.summary()["failures"]
    assert [one["recovered_by"] for one in failures] == ["promotion"] * 4, failures


def cut_of(path: Path) -> str:
    return path.name.split("-slot")[0]


@pytest.mark.timeout(400)
def test_ps_that_die_in_the_middle_of_a_cut_come_back_from_the_one_before(begin, tmp_path):
    place = tmp_path / "backups"
    flags = ("--ps", "2", "--workers", "1", *PATIENT, "--backup", f"disk={place}", "--setting", "disk_backup_seconds=1")
    job = begin(*flags, command=(*COUNT, "--paced"))
    losses = Losses(job, 2)
    job.wait_scalable()
    job.until(lambda: {True, False} <= {one["base"] for one in cuts(job)}, "a base and a delta")
    losses.remember_catalogue()
    whole = stand_still(job)
    before = {name: job.steps_of(name) for name in ("chief-0", "worker-0")}
    for name in before:
        job.unstick(name)
    job.wait_training(*before)

    known = {cut_of(path) for path in place.glob("cut-*-slot*")}
    job.stop("ps-1")
    job.until(
        lambda: any(cut_of(path) not in known for path in place.glob("cut-*-slot*")), "half of another cut", every=0.01
    )
    assert len(cuts(job)) and cuts(job)[-1]["cut"] >= whole
    newest = cuts(job)[-1]["cut"]
    losses.strike_now("ps-0", "ps-1", before=before)
    restored = job.until(lambda: job.events("disk_restored"), "the restore from the disk")[0]
    assert restored["cut"] >= newest, restored
    job.wait_training(*before)
    later = restored["sequence"]
    job.until(lambda: [one for one in cuts(job) if one["sequence"] > later], "a cut after the restore")
    assert backup("verify", place)["damaged"] == []
    assert "Restoring parameters" not in job.log("chief-0")
    assert job.finish() == 0, job.output
    assert losses.check(restored=True)
    failures = job.summary()["failures"]
    assert [one["recovered_by"] for one in failures] == ["disk backup"] * 2, failures
