"""The AIMaster is killed and its store is deleted in the middle of a job: training goes on, and everything works afterwards."""

from __future__ import annotations

import os
import signal

import pytest

from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.behaviour import test_aimaster_dies as aimaster_dies
from tests.behaviour import test_data_ledger as data_ledger
from tests.behaviour.jobs import COUNT, RealJob
from tests.behaviour.losses import Losses

pytestmark = pytest.mark.slow

RECORDS, EPOCHS = 60_000, 2


def lose_store(job: RealJob) -> None:
    """Kills the AIMaster and deletes its store before the launcher can start another one; waits until that one trains on."""
    before, launcher = job.pid("aimaster"), job.process
    rebuilt = len(job.events("store_rebuilt"))
    launcher.send_signal(signal.SIGSTOP)
    try:
        os.kill(before, signal.SIGKILL)
        for path in job.directory.glob("aimaster.db*"):
            path.unlink()
    finally:
        launcher.send_signal(signal.SIGCONT)
    job.until(lambda: job.pid("aimaster") not in (0, before), "another AIMaster")
    job.until(lambda: len(job.events("store_rebuilt")) > rebuilt, "a rebuilt store")


def settled(job: RealJob) -> pb.StatusReply:
    """Once everybody has registered again."""

    def found() -> pb.StatusReply | None:
        status = job.status()
        if status is None or not status.live or not status.roles:
            return None
        return (
            status if all(role.heartbeat_age_seconds < 5 and role.state == "running" for role in status.roles) else None
        )

    return job.until(found, "everybody to register again")


def test_training_goes_on_and_every_record_is_trained(begin, tmp_path):
    data_ledger.shards.write(str(tmp_path / "data"), RECORDS, 5)
    job = begin(
        "--ps", "2", "--workers", "1", "--setting", "peer_backup_seconds=0.5",
        command=(*data_ledger.SCRIPT, "--data", str(tmp_path / "data"), "--records", str(RECORDS), "--epochs", str(EPOCHS),
                 *data_ledger.PACE),
    )  # fmt: skip
    data_ledger.until_trained(job, 10_000)
    Losses(job, 2).wait_protected()
    before, steps = job.until(job.status, "status"), []
    pids = job.running()
    trained = data_ledger.trained(job)
    lose_store(job)
    status = settled(job)
    steps += [before.step, status.step]
    assert status.aimaster_incarnation > before.aimaster_incarnation and status.epoch >= before.epoch
    data_ledger.until_trained(job, trained + 4000)
    steps.append(job.step())
    job.wait_scalable()
    assert job.scale(ps=3).outcome == "committed"
    after = job.running()
    assert {name: after[name] for name in pids} == pids, "no process was started anew"
    data_ledger.until_trained(job, data_ledger.trained(job) + 4000)
    steps.append(job.step())
    assert steps == sorted(steps) and steps[0] > 0, steps
    data_ledger.finish(job)
    times = data_ledger.check(job, RECORDS, EPOCHS)
    summary = job.summary()
    assert (
        summary["steps"] >= RECORDS * EPOCHS // data_ledger.shards.BATCH
        and times.sum() <= RECORDS * EPOCHS + summary["data"]["repeated"]
    )
    told = f"{summary['data']} {job.events('ledger_recalled')} {job.events('ledger_rewound')} {job.events('leases_returned')}"
    assert summary["data"]["repeated"] <= RECORDS * EPOCHS // 10, told
    restarted = {name for name, counts in summary["roles"].items() if counts["restarted"]}
    assert restarted == {"aimaster"} and not summary["failures"], summary


@pytest.mark.timeout(400)
@pytest.mark.long
def test_no_update_is_lost_and_backups_still_protect(begin):
    job = begin("--ps", "2", "--workers", "2", "--setting", "peer_backup_seconds=0.5", command=COUNT)
    losses = Losses(job, 2)
    job.wait_scalable()
    losses.wait_protected()
    pids = job.running()
    for again in (False, True):
        lose_store(job)
        if again:  # before all have registered with the rebuilt one
            lose_store(job)
        settled(job)
        job.wait_training("chief-0", "worker-0", "worker-1")
    assert job.running() == pids
    job.wait_scalable()
    assert job.scale(ps=3).outcome == "committed"
    assert job.scale(workers=1).outcome == "committed"
    losses.ps = 3
    losses.remember_catalogue()
    losses.strike("ps-1")
    assert "Restoring parameters" not in job.log("chief-0")
    losses.wait_protected()
    assert job.finish() == 0, job.output
    losses.check()
    assert [one["recovered_by"] for one in job.summary()["failures"]] == ["promotion"]


@pytest.mark.timeout(200)
def test_a_job_that_has_declared_its_model_and_has_no_view_yet_begins_at_once(begin):
    """The chief waits for the first view, the AIMaster that has come back for the word that the first one has heard: without
    it, it waits longer (`DECLARE_LIMIT_SECONDS`) than this test."""
    job = begin("--autoscale", "--history", "off", "--max-ps", "2", "--max-workers", "0", command=COUNT)
    job.until(lambda: job.pid("chief-0"), "the chief")
    launcher = job.process
    launcher.send_signal(signal.SIGSTOP)  # it starts no PS, so there is no view
    try:
        job.until(lambda: job.events("declared"), "a declared model")
        os.kill(job.pid("aimaster"), signal.SIGKILL)
        for path in job.directory.glob("aimaster.db*"):
            path.unlink()
    finally:
        launcher.send_signal(signal.SIGCONT)
    job.wait_training("chief-0")
    assert [event["type"] for event in job.events("declared", "view_formed")][-2:] == ["declared", "view_formed"]
    assert not [event["text"] for event in job.events("warning") if "declared no model" in event["text"]]


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_scaling_under_way_is_taken_back_or_completed(begin):
    job = begin(
        "--ps", "1", "--workers", "1", *aimaster_dies.PATIENT, *aimaster_dies.MARKS_BY_SCALING,
        command=(*COUNT, "--paced"),
    )  # fmt: skip
    job.wait_scalable()
    before = job.running()
    assert job.scale(ps=2).outcome == "committed"

    job.stick("worker-0")
    down = job.ask(ps=1).scaling_id
    job.hold_in_pause(down, "worker-0")
    lose_store(job)
    job.unstick("worker-0")
    assert aimaster_dies.end_of(job, down) == "rolled_back"
    assert job.roles_of("ps") == ["ps-0", "ps-1"]
    assert job.scale(ps=1).outcome == "committed"

    job.stick("worker-0")
    up = job.ask(ps=2).scaling_id
    held = aimaster_dies.hold_in_commit(job, up, "ps-1")
    lose_store(job)
    job.go_on(held)
    assert aimaster_dies.end_of(job, up) == "committed"
    assert job.roles_of("ps") == ["ps-0", "ps-1"]

    assert job.scale(ps=3).outcome == "committed"
    after = job.running()
    assert {name: after[name] for name in ("ps-0", "chief-0", "worker-0")} == {
        name: before[name] for name in ("ps-0", "chief-0", "worker-0")
    }
    assert job.finish() == 0, job.output
    assert job.check_counts() > 100
