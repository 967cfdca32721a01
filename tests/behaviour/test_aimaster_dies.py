"""The AIMaster is killed in every state of a scaling; training goes on and nothing is lost."""

from __future__ import annotations

import pytest

from tests.behaviour.jobs import COUNT, RealJob

pytestmark = pytest.mark.slow

PATIENT = (
    "--setting", "verify_copies=true", "--setting", "ps_heartbeat_limit_seconds=90", "--setting", "lease_seconds=90",
    "--setting", "pause_limit_seconds=90", "--setting", "worker_heartbeat_limit_seconds=90",
)  # fmt: skip
"""Processes are stopped for a while to hold a state: nobody is to be given up for that."""

MARKS_BY_SCALING = ("--setting", "peer_backup=off")
"""Tables are marked by each scaling itself, in PREPARE: a worker that is stuck holds that state."""


def hold_in_final_copy(job: RealJob, scaling: int, target: str) -> int:
    """The target, which serves nothing yet, is stopped in PAUSE: it does not answer the order for the final copy."""
    job.hold_in_pause(scaling, "worker-0")
    held = job.stop(target)
    job.unstick("worker-0")
    job.wait_state(scaling, "FINAL_COPY")
    return held


def hold_in_commit(job: RealJob, scaling: int, target: str) -> int:
    """The worker, which stands at the gate, is stopped in FINAL_COPY: it does not answer the order to commit."""
    held = hold_in_final_copy(job, scaling, target)
    worker = job.stop("worker-0")
    job.go_on(held)
    job.wait_state(scaling, "COMMIT")
    return worker


def kill_in(job: RealJob, scaling: int, state: str) -> None:
    assert job.states(scaling)[-1] == state, job.states(scaling)
    job.kill_aimaster()


def end_of(job: RealJob, scaling: int) -> str:
    """The outcome, once everybody trains on."""
    outcome = job.wait_scaling(scaling).outcome
    job.wait_training(*(name for name in job.running() if name.startswith(("chief", "worker"))))
    return outcome


@pytest.mark.smoke
@pytest.mark.timeout(600)
def test_an_aimaster_killed_in_any_state_of_a_scaling_resumes_it_or_rolls_it_back(begin):
    job = begin("--ps", "1", "--workers", "1", *PATIENT, *MARKS_BY_SCALING, command=(*COUNT, "--paced"))
    job.wait_scalable()
    before = job.running()

    up = job.ask(ps=2).scaling_id
    job.wait_state(up, "ACQUIRE")  # for seconds: the new PS imports TensorFlow
    kill_in(job, up, "ACQUIRE")
    assert end_of(job, up) == "committed"

    job.stick("worker-0")  # its run does not end, so it cannot begin to mark
    down = job.ask(ps=1).scaling_id
    job.wait_state(down, "PREPARE")
    kill_in(job, down, "PREPARE")
    job.unstick("worker-0")
    assert end_of(job, down) == "rolled_back"
    assert "restarted in PREPARE" in job.scaling(down).reason
    assert job.roles_of("ps") == ["ps-0", "ps-1"]

    job.stick("worker-0")
    down = job.ask(ps=1).scaling_id
    job.hold_in_pause(down, "worker-0")
    kill_in(job, down, "PAUSE")
    job.unstick("worker-0")
    assert end_of(job, down) == "rolled_back"
    assert job.scale(ps=1).outcome == "committed"

    job.stick("worker-0")
    up = job.ask(ps=2).scaling_id
    held = hold_in_final_copy(job, up, "ps-1")
    kill_in(job, up, "FINAL_COPY")
    job.go_on(held)
    assert end_of(job, up) == "rolled_back"
    assert job.roles_of("ps") == ["ps-0"]

    job.stick("worker-0")
    up = job.ask(ps=2).scaling_id
    destroyed = job.log("ps-0").count("destroyed")
    held = hold_in_commit(job, up, "ps-1")
    job.until(lambda: job.log("ps-0").count("destroyed") > destroyed, "that a PS has heard of the decision")
    kill_in(job, up, "COMMIT")
    job.go_on(held)
    assert end_of(job, up) == "committed"
    assert job.roles_of("ps") == ["ps-0", "ps-1"]

    destroyed = job.log("ps-1").count("destroyed")
    job.stick("worker-0")
    replaced = job.ask(replace="ps-1").scaling_id
    worker = hold_in_commit(job, replaced, "ps-2")
    job.until(lambda: job.log("ps-1").count("destroyed") > destroyed, "what ps-1 destroyed")
    held = job.stop("ps-1")  # does not answer the order to leave
    job.go_on(worker)
    job.wait_state(replaced, "RELEASE")
    kill_in(job, replaced, "RELEASE")
    job.go_on(held)
    assert end_of(job, replaced) == "committed"
    assert job.roles_of("ps") == ["ps-0", "ps-2"]

    job.stick("worker-0")  # cannot leave before its step has ended
    down = job.ask(workers=0).scaling_id
    job.wait_state(down, "RELEASE")
    kill_in(job, down, "RELEASE")
    job.unstick("worker-0")
    assert end_of(job, down) == "committed"
    assert job.roles_of("worker") == []

    assert job.scale(ps=3).outcome == "committed"
    after = job.running()
    assert {name: after[name] for name in ("ps-0", "chief-0")} == {name: before[name] for name in ("ps-0", "chief-0")}
    assert job.finish() == 0, job.output
    assert job.check_counts() > 100
    roles = job.summary()["roles"]
    assert roles["aimaster"]["restarted"] == 7
    assert all(counts["restarted"] == 0 for name, counts in roles.items() if name != "aimaster"), roles
    assert job.summary()["failures"] == []
