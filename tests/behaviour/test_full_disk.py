"""The run directory lies on a disk that is full for a while: the job waits where it must, says so, and goes on by itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from tests.behaviour import test_data_ledger as data_ledger
from tests.behaviour.disks import SmallDisk, small_disk
from tests.behaviour.jobs import RealJob
from tests.behaviour.losses import Losses

pytestmark = pytest.mark.slow

RECORDS, EPOCHS = 60_000, 3
PACE = ("--sleep", "0.03")
"""With it two trainers need more than a minute for all of the data, on the fastest machine. Data that ends while the disk is
full is another story: the script's own last checkpoint fails."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "small", "48m") as one:
        yield one


@pytest.fixture
def begin_on(disk: SmallDisk, tmp_path: Path) -> Iterator[Callable[..., RealJob]]:
    """A job that reads its data elsewhere, and has everything else, the launcher's own output too, on the small disk."""
    pytest.importorskip("tensorflow")
    data_ledger.shards.write(str(tmp_path / "data"), RECORDS, 5)
    jobs: list[RealJob] = []

    def start(*flags: str) -> RealJob:
        command = (
            *data_ledger.SCRIPT, "--data", str(tmp_path / "data"), "--records", str(RECORDS), "--epochs", str(EPOCHS),
            *PACE,
        )  # fmt: skip
        jobs.append(RealJob(disk.path / "run", flags, command))
        return jobs[-1]

    yield start
    disk.empty()
    for job in jobs:
        job.close()


def told(job: RealJob) -> str:
    """What status says of the disk."""
    status = job.status()
    said = [one.notice for one in status.notices if one.notice.code == "not-written"] if status is not None else []
    return f"{said[0].text}: {said[0].remedy}" if said else ""


def full_for(disk: SmallDisk, job: RealJob, seconds: float, meanwhile: Callable[[], None]) -> None:
    """Fills it, waits until status says so, does something, and empties it again."""
    disk.fill()
    began = time.monotonic()
    job.until(lambda: told(job), "status to say that the disk is full")
    assert "goes on by itself" in told(job)
    meanwhile()
    time.sleep(max(0.0, began + seconds - time.monotonic()))  # it is the disk that is slow here
    assert job.process.poll() is None and any(why in told(job) for why in ("No space left", "disk is full"))
    disk.empty()
    job.until(lambda: job.status() is not None and not told(job), "everything to be written again")


def check(job: RealJob) -> None:
    data_ledger.finish(job)
    times = data_ledger.check(job, RECORDS, EPOCHS)
    summary = job.summary()
    assert summary["status"] == "succeeded" and summary["data"]["lost"] == 0
    assert times.sum() <= RECORDS * EPOCHS + summary["data"]["repeated"]
    events = job.events()
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1)), "no event is missing"
    assert [event["seconds"] > 1 for event in events if event["type"] == "written_again"]


@pytest.mark.timeout(300)
def test_a_job_trains_through_a_full_disk_and_the_scaling_asked_for_meanwhile_follows(begin_on, disk):
    job = begin_on("--ps", "2", "--workers", "1", "--setting", "peer_backup_seconds=0.5")
    data_ledger.until_trained(job, 10_000)
    job.wait_scalable()
    asked = []
    step, pids = job.step(), job.running()

    def scale() -> None:
        asked.append(job.ask(ps=3).scaling_id)
        job.until(lambda: job.step() > step + 20, "training to go on as far as leases reach")
        job.until(lambda: "waits for the disk" in job.scaling(asked[0]).detail, "the scaling to say what it waits for")

    full_for(disk, job, 12, scale)
    assert job.wait_scaling(asked[0]).outcome == "committed"
    after = job.running()
    assert {name: after[name] for name in pids} == pids, "no process was started anew"
    data_ledger.until_trained(job, data_ledger.trained(job) + 2000)
    check(job)
    assert not job.summary()["failures"] and data_ledger.data(job)["repeated"] == 0


@pytest.mark.timeout(300)
@pytest.mark.long
def test_a_ps_and_the_aimaster_killed_while_the_disk_is_full_are_made_good_afterwards(begin_on, disk):
    job = begin_on("--ps", "2", "--workers", "1", "--setting", "peer_backup_seconds=0.5")
    data_ledger.until_trained(job, 10_000)
    losses = Losses(job, 2)
    losses.wait_protected()
    ps, aimaster = job.pid("ps-1"), job.pid("aimaster")

    def kill() -> None:
        os.kill(ps, signal.SIGKILL)
        os.kill(aimaster, signal.SIGKILL)
        job.until(lambda: told(job), "the next AIMaster to say what it waits for")
        if "cannot begin" in told(job):  # else what it writes first has found room in the file as it is
            with pytest.raises(grpc.RpcError):
                job.ask(ps=3)

    full_for(disk, job, 12, kill)
    job.until(lambda: job.status() is not None and job.status().live, "a live model")
    trained = data_ledger.trained(job)
    data_ledger.until_trained(job, trained + 2000)
    data_ledger.finish(job)
    summary = job.summary()
    report = summary["data"]
    assert summary["status"] == "succeeded" and report["lost"] == 0, summary
    assert report["records"] == report["trained"] == RECORDS * EPOCHS, report
    assert [one["role"] for one in summary["failures"]] == ["ps"], summary


@pytest.mark.long
@pytest.mark.timeout(300)
def test_forty_seconds(begin_on, disk):
    """As it was measured when it stood still for ever."""
    job = begin_on("--ps", "2", "--workers", "1")
    data_ledger.until_trained(job, 10_000)
    full_for(disk, job, 40, lambda: None)
    data_ledger.until_trained(job, data_ledger.trained(job) + 2000)
    check(job)
