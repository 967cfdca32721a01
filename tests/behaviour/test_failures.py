"""Processes die or hang while a real job trains: it goes on, with the fewest steps lost."""

from __future__ import annotations

import pytest

from tests.behaviour.jobs import COUNT, RealJob

pytestmark = pytest.mark.slow


def checkpoints(job: RealJob) -> int:
    return job.log("chief-0").count("Saving checkpoints for")


def back(job: RealJob, role: str, pid: int) -> None:
    """Until another process has the role."""
    job.until(lambda: (one := job.role(role)) and one.state == "running" and one.pid not in (0, pid), f"another {role}")


@pytest.mark.timeout(600)
def test_a_killed_chief_attaches_to_the_live_model_and_a_killed_worker_comes_back(begin):
    job = begin("--ps", "2", "--workers", "1")
    job.wait_scalable()
    job.wait_training("chief-0", "worker-0")
    before, step = job.running(), job.step()

    chief = job.kill("chief-0")
    back(job, "chief-0", chief)
    job.wait_training("chief-0", "worker-0")
    assert "attached to the live model" in job.log("chief-0")
    assert "Restoring parameters" not in job.log("chief-0")
    assert job.step() >= step

    worker = job.kill("worker-0")
    back(job, "worker-0", worker)
    job.wait_training("worker-0")

    assert job.scale(ps=1).outcome == "committed"  # the new chief knows the model as well as the old
    job.wait_training("chief-0", "worker-0")
    assert job.running()["ps-0"] == before["ps-0"]
    assert job.finish() == 0, job.output
    job.check_counts(kills={"chief-0": 1, "worker-0": 1})
    summary = job.summary()
    assert [(one["role"], one["id"]) for one in summary["failures"]] == [("chief", 0), ("worker", 0)]
    assert all(one["cause"].startswith("killed") for one in summary["failures"])
    assert all(one["recovered_seconds"] is not None for one in summary["failures"])
    assert summary["roles"]["chief-0"]["restarted"] == summary["roles"]["worker-0"]["restarted"] == 1


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_killed_and_a_hung_ps_are_replaced_and_the_last_checkpoint_is_restored(begin):
    job = begin(
        "--ps", "2", "--workers", "1", "--setting", "peer_backup=off", command=(*COUNT, "--checkpoint-steps", "200")
    )
    job.wait_scalable()
    before = job.running()
    for name, strike in (("ps-1", job.kill), ("ps-0", job.stop)):
        saved = checkpoints(job)
        job.until(lambda saved=saved: checkpoints(job) > saved + 1, "a checkpoint")
        pid = strike(name)
        back(job, name, pid)
        job.until(
            lambda name=name: name in {event["role"] for event in job.events("recovered")}, f"recovery from {name}"
        )
        job.wait_training("chief-0", "worker-0")
    after = job.running()
    assert after["chief-0"] == before["chief-0"]
    assert after["worker-0"] == before["worker-0"]
    assert job.scale(ps=3).outcome == "committed"
    job.wait_training("chief-0", "worker-0")
    assert job.finish() == 0, job.output
    failures = job.summary()["failures"]
    assert [(one["role"], one["id"]) for one in failures] == [("ps", 1), ("ps", 0)]
    assert failures[0]["cause"].startswith("killed")
    assert failures[1]["cause"].startswith("hung")
    assert all(one["recovered_seconds"] is not None for one in failures), failures
