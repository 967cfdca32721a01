"""A PS dies or hangs: the survivors go on from the peer backups, and lose no more than the interval of the backups."""

from __future__ import annotations

import signal

import pytest

from tests.behaviour.jobs import COUNT, RealJob
from tests.behaviour.losses import Losses

pytestmark = pytest.mark.slow

OFTEN = ("--setting", "peer_backup_seconds=0.5", "--setting", "ps_heartbeat_limit_seconds=2")


def unchanged_generation(job: RealJob) -> None:
    """No session has ended, and nothing was restored."""
    assert not job.events("ps_replaced")
    assert {event["generation"] for event in job.events("view_published")} == {1}
    assert "Restoring parameters" not in job.log("chief-0")


@pytest.mark.smoke
@pytest.mark.timeout(400)
def test_killed_and_hung_ps_are_taken_over_by_the_survivors_and_other_slots_lose_nothing(begin):
    job = begin("--ps", "3", "--workers", "1", *OFTEN, command=COUNT)
    losses = Losses(job, 3)
    job.wait_scalable()
    losses.wait_protected()
    losses.remember_catalogue()
    before = job.running()

    losses.strike("ps-1")
    losses.strike("ps-0", number=signal.SIGSTOP)
    job.kill_aimaster()  # its successor learns from the PS which backups they hold
    losses.strike("ps-2")
    losses.wait_protected()
    worker = job.pid("worker-0")
    losses.strike("ps-1", wait=False)
    job.kill("worker-0")  # comes back into the cluster as it is then
    losses.wait_event("promoted", 4)
    job.until(
        lambda: (one := job.role("worker-0")) and one.pid not in (0, worker) and one.heartbeat.training, "worker-0"
    )
    losses.wait_protected()
    job.wait_training("chief-0", "worker-0")

    after = job.running()
    assert after["chief-0"] == before["chief-0"]
    unchanged_generation(job)
    assert job.finish() == 0, job.output
    missing = losses.check(slack=1)
    assert len(missing) == 8
    failures = job.summary()["failures"]
    assert sorted(f"{one['role']}-{one['id']}" for one in failures) == ["ps-0", "ps-1", "ps-1", "ps-2", "worker-0"]
    for one in failures:
        assert one["recovered_seconds"] is not None, one
        assert one["cause"].startswith("hung" if (one["role"], one["id"]) == ("ps", 0) else "killed"), one
        assert one["role"] != "ps" or (one["recovered_by"] == "promotion" and one["steps_lost"] == 0), one


STATES = ("ACQUIRE", "PREPARE", "PAUSE", "FINAL_COPY", "COMMIT", "RELEASE")


def in_state(job: RealJob, ps: int, state: str) -> int:
    """A scaling that has reached the state; on a busy machine one may be rolled back before, for want of time."""
    for _ in range(3):
        scaling = job.ask(ps=ps).scaling_id
        job.until(
            lambda scaling=scaling: state in job.states(scaling) or (one := job.scaling(scaling)) is None or one.outcome,
            f"{state} of scaling {scaling}", every=0.001,
        )  # fmt: skip
        if state in job.states(scaling):
            return scaling
    pytest.fail(f"no scaling came as far as {state}")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_ps_may_die_in_any_state_of_a_scaling(begin):
    job = begin("--ps", "2", "--workers", "1", "--max-ps", "3", *OFTEN, command=COUNT)
    losses = Losses(job, 2)
    job.wait_scalable()
    losses.wait_protected()
    losses.remember_catalogue()
    outcomes = []
    for state in STATES:
        before = losses.certain()
        now, losses.ps = losses.ps, 5 - losses.ps  # 2, 3, 2, ...
        scaling = in_state(job, losses.ps, state)
        losses.strike_now("ps-0", before=before)
        outcomes.append(job.wait_scaling(scaling).outcome)
        if outcomes[-1] == "rolled_back":
            losses.ps = now
        losses.wait_event("recovered", len(outcomes))
        job.wait_training("chief-0", "worker-0")
        unchanged_generation(job)
    losses.wait_protected()
    assert outcomes[0] == outcomes[1] == "rolled_back", outcomes  # they take long: surely not decided yet
    assert outcomes[-1] == "committed", outcomes
    assert job.finish() == 0, job.output
    by = [(one["recovered_by"], one["steps_lost"]) for one in job.summary()["failures"]]
    assert by == [("promotion", 0)] * len(STATES), by
    losses.check()


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_pause_of_a_loss_is_the_failures_and_not_that_of_the_replacing_that_it_rolls_back(begin):
    job = begin("--ps", "3", "--workers", "1", *OFTEN, command=COUNT)
    losses = Losses(job, 3)
    job.wait_scalable()
    replacing, heard = [], [0]
    for name, number in (("ps-1", signal.SIGKILL), ("ps-0", signal.SIGSTOP)):
        before = losses.certain()
        replacing.append(job.ask(replace=name).scaling_id)
        job.wait_state(replacing[-1], "PREPARE")
        losses.strike_now(name, before=before, number=number)
        losses.wait_event("recovered", len(replacing))
        job.wait_training("chief-0", "worker-0")
        job.until(lambda: len(job.events("loss_pause")) >= heard[-1] + 2, "both trainers to tell of their pause")
        losses.wait_protected()
        heard.append(len(job.events("loss_pause")))
    unchanged_generation(job)
    assert job.finish() == 0, job.output

    summary = job.summary()
    failures, scalings = summary["failures"], [one for one in summary["scaling"] if one["kind"] == "replace"]
    told = [event["seconds"] for event in job.events("loss_pause")]
    for failure, own in zip(failures, (told[: heard[1]], told[heard[1] :])):
        assert failure["recovered_by"] == "promotion" and failure["pause_seconds"] > 0, failure
        assert failure["pause_seconds"] == pytest.approx(max(own), abs=1e-3), (failure, own)
    rolled_back = [one for one in scalings if one["outcome"] == "rolled_back"]
    assert len(failures) == len(rolled_back) == 2, summary
    # Nobody makes a step between the hung PS's last sign of life, a part of a second before it hangs, and its promotion.
    hung = failures[1]["detected_seconds"]
    assert hung > 0.9, failures
    assert failures[1]["pause_seconds"] > hung / 2, failures
    assert (rolled_back[1]["pause_seconds"]["max"] or 0.0) < hung / 2, rolled_back
    of_scalings = [event["seconds"] for event in job.events("pause") if event["scaling"] in replacing]
    assert not set(of_scalings) & set(told), (of_scalings, told)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_ps_and_its_peer_at_once_come_back_from_the_disk_backup(begin, tmp_path):
    backups = tmp_path / "backups"
    job = begin(
        "--ps", "2", "--workers", "1", *OFTEN, "--setting", f"disk_backup={backups}", "--setting", "disk_backup_seconds=1",
        command=COUNT,
    )  # fmt: skip
    losses = Losses(job, 2)
    job.wait_scalable()
    losses.wait_protected()
    job.until(lambda: (status := job.status()) and status.backup.disk_cut, "a disk backup")
    before = job.step()
    cut = job.status().backup.disk_cut
    job.until(lambda: job.status().backup.disk_cut > cut, "another disk backup")
    pids = [job.pid(name) for name in ("ps-0", "ps-1")]
    for name in ("ps-0", "ps-1"):
        job.kill(name)
    job.until(lambda: len(job.events("recovered")) == 2, "recovery")
    losses.wait_protected()
    assert not set(pids) & {job.pid(name) for name in ("ps-0", "ps-1")}
    job.wait_training("chief-0", "worker-0")
    assert job.step() >= before
    assert "Restoring parameters" not in job.log("chief-0")
    assert job.finish() == 0, job.output
    failures = job.summary()["failures"]
    assert [one["recovered_by"] for one in failures] == ["disk backup"] * 2, failures
