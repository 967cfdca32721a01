"""Conditions, counts, and when a job has succeeded or failed (TFJOB.md, Status; Success and failure)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.tfjob.world import T0, Cluster, manifest, running
from tfjob.model.conditions import set_condition
from tfjob.model.kinds import Manifest

CHIEF = {"Chief": 1, "PS": 1, "Worker": 2}
MASTER = {"Master": 1, "PS": 1, "Worker": 2}
PLAIN = {"PS": 1, "Worker": 2}
LATER = T0 + timedelta(seconds=10)


# ---------------------------------------------------------------------------------------------------- set_condition


def _status(*conditions: tuple[str, str]) -> Manifest:
    status: Manifest = {}
    for type_, value in conditions:
        status = set_condition(status, type_, "m", T0, value=value == "True")
    return status


@pytest.mark.parametrize(
    ("before", "changed", "after"),
    [
        ([], "Created", ["Created True"]),
        (["Created"], "Running", ["Created True", "Running True"]),
        # the changed condition moves last
        (["Created", "Suspended", "Running"], "Created=False", ["Suspended True", "Running True", "Created False"]),
        # Running and Restarting exclude each other
        (["Created", "Running"], "Restarting", ["Created True", "Restarting True"]),
        (["Created", "Restarting"], "Running", ["Created True", "Running True"]),
        # Running turns False at the end
        (["Created", "Running"], "Succeeded", ["Created True", "Running False", "Succeeded True"]),
        (["Created", "Running"], "Failed", ["Created True", "Running False", "Failed True"]),
        # nothing follows Failed
        (["Created", "Failed"], "Running", ["Created True", "Failed True"]),
        (["Created", "Failed"], "Succeeded", ["Created True", "Failed True"]),
    ],
)
def test_the_order_of_conditions(before: list[str], changed: str, after: list[str]) -> None:
    type_, _, value = changed.partition("=")
    status = set_condition(_status(*((one, "True") for one in before)), type_, "m", LATER, value=value != "False")
    assert [f"{one['type']} {one['status']}" for one in status["conditions"]] == after


def test_a_condition_that_is_so_already_is_left_as_it_is_times_included() -> None:
    status = _status(("Created", "True"), ("Running", "True"))
    assert set_condition(status, "Created", "m", LATER) is status


def test_the_transition_time_moves_only_with_the_value() -> None:
    status = set_condition(_status(("Suspended", "True")), "Suspended", "m", LATER, reason="TFJobOther")
    changed = status["conditions"][-1]
    assert (changed["lastTransitionTime"], changed["lastUpdateTime"]) == (
        "2025-01-31T12:00:00Z",
        "2025-01-31T12:00:10Z",
    )
    status = set_condition(status, "Suspended", "m", LATER, value=False, reason="TFJobResumed")
    assert status["conditions"][-1]["lastTransitionTime"] == "2025-01-31T12:00:10Z"


def test_a_status_is_never_changed_in_place() -> None:
    status = _status(("Created", "True"), ("Running", "True"))
    kept = [dict(one) for one in status["conditions"]]
    set_condition(status, "Failed", "m", LATER)
    assert status["conditions"] == kept


# ---------------------------------------------------------------------------------------------------- reasons, messages


def test_the_words_of_a_job_that_succeeds() -> None:
    cluster = Cluster(manifest(PLAIN))
    cluster.settle()
    created = cluster.last
    assert (created["reason"], created["message"]) == ("TFJobCreated", "TFJob mnist is created.")
    cluster.run()
    cluster.settle()
    assert (cluster.last["reason"], cluster.last["message"]) == ("TFJobRunning", "TFJob ml/mnist is running.")
    cluster.end("worker-0", 0)
    cluster.settle()
    assert (cluster.last["reason"], cluster.last["message"]) == (
        "TFJobSucceeded", "TFJob ml/mnist successfully completed."
    )  # fmt: skip
    assert cluster.conditions == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
    assert [(one.type, one.reason) for one in cluster.events] == [("Normal", "TFJobSucceeded")]


def test_the_words_of_a_job_that_fails() -> None:
    cluster = running(manifest(PLAIN))
    cluster.end("worker-1", 1)
    cluster.settle()
    assert (cluster.last["type"], cluster.last["reason"], cluster.last["message"]) == (
        "Failed", "TFJobFailed", "TFJob ml/mnist has failed because 1 Worker replica(s) failed."
    )  # fmt: skip
    assert [(one.type, one.reason) for one in cluster.events] == [
        ("Warning", "TFJobFailed"),
        ("Normal", "ExitedWithCode"),
    ]


def test_the_words_of_a_job_that_restarts() -> None:
    cluster = running(manifest(PLAIN, policy="OnFailure"))
    cluster.end("worker-1", None)
    cluster.look()
    assert (cluster.last["type"], cluster.last["reason"], cluster.last["message"]) == (
        "Restarting", "TFJobRestarting", "job mnist is restarting because Worker replica(s) failed."
    )  # fmt: skip
    assert cluster.conditions == [("Created", "True"), ("Restarting", "True")]


def test_times() -> None:
    cluster = Cluster(manifest(PLAIN))
    cluster.settle()
    assert cluster.status["startTime"] == cluster.status["lastReconcileTime"] == "2025-01-31T12:00:00Z"
    assert "completionTime" not in cluster.status
    cluster.pass_seconds(60)
    cluster.run()
    cluster.settle()
    cluster.pass_seconds(60)
    assert cluster.decide().status is None, "nothing has changed: not even lastReconcileTime is written"
    cluster.end("worker-0", 0)
    cluster.settle()
    assert cluster.status["startTime"] == "2025-01-31T12:00:00Z"
    assert cluster.status["completionTime"] == cluster.status["lastReconcileTime"] == "2025-01-31T12:02:00Z"


# ---------------------------------------------------------------------------------------------------- replicaStatuses


def test_replica_statuses_count_active_succeeded_and_failed_with_a_selector() -> None:
    cluster = running(manifest({"PS": 1, "Worker": 4}, enableDynamicWorker=True))
    assert cluster.counts("Worker") == {"active": 4} and cluster.counts("PS") == {"active": 1}
    cluster.end("worker-1", 0)
    cluster.end("worker-2", 1)
    cluster.settle()
    assert cluster.counts("Worker") == {"active": 2, "succeeded": 1, "failed": 1}
    assert cluster.status["replicaStatuses"]["Worker"]["selector"].endswith("training.kubeflow.org/replica-type=worker")


def test_a_running_pod_that_is_being_deleted_counts_as_failed() -> None:
    cluster = running(manifest(PLAIN, policy="OnFailure"))
    cluster.delete("mnist-ps-0")
    cluster.look()
    assert cluster.counts("PS") == {"failed": 1}
    assert cluster.last["message"] == "TFJob ml/mnist has failed because 1 PS replica(s) failed."


def test_a_pod_that_is_not_placed_yet_counts_as_nothing() -> None:
    cluster = Cluster(manifest(PLAIN))
    cluster.settle()
    assert cluster.counts("Worker") == {} and cluster.state == "Created"


def test_what_was_active_at_a_success_has_succeeded() -> None:
    cluster = running(manifest(CHIEF))
    cluster.end("chief-0", 0)
    cluster.settle()
    assert cluster.counts("Worker") == {"succeeded": 2} and cluster.counts("PS") == {"succeeded": 1}


# ---------------------------------------------------------------------------------------------------- running


@pytest.mark.parametrize(
    ("replicas", "up", "state"),
    [
        (CHIEF, ["ps-0", "worker-0", "worker-1"], "Created"),  # with a chief: it decides
        (CHIEF, ["chief-0"], "Running"),
        (MASTER, ["worker-0"], "Created"),
        (MASTER, ["master-0"], "Running"),
        (PLAIN, ["ps-0"], "Created"),  # without: any worker
        (PLAIN, ["worker-1"], "Running"),
    ],
)
def test_when_a_job_runs(replicas: dict[str, int], up: list[str], state: str) -> None:
    cluster = Cluster(manifest(replicas))
    cluster.settle()
    cluster.run(*up)
    cluster.settle()
    assert cluster.state == state


# ---------------------------------------------------------------------------------------------------- the end

ENDS: list[tuple[str, dict[str, int], dict[str, Any], list[tuple[str, int | None]], str]] = [
    ("with a Chief: it decides", CHIEF, {}, [("chief-0", 0)], "Succeeded"),
    ("with a Master: it decides", MASTER, {}, [("master-0", 0)], "Succeeded"),
    ("with a Chief, workers do not decide", CHIEF, {}, [("worker-0", 0), ("worker-1", 0)], "Running"),
    ("without: worker 0 exited 0", PLAIN, {}, [("worker-0", 0)], "Succeeded"),
    ("without: another worker is not enough", PLAIN, {}, [("worker-1", 0)], "Running"),
    ("without: all workers succeeded", PLAIN, {}, [("worker-0", 0), ("worker-1", 0)], "Succeeded"),
    ("AllWorkers: worker 0 is not enough", PLAIN, {"successPolicy": "AllWorkers"}, [("worker-0", 0)], "Running"),
    ("AllWorkers: all workers", PLAIN, {"successPolicy": "AllWorkers"}, [("worker-0", 0), ("worker-1", 0)], "Succeeded"),
    ("AllWorkers and a Chief: it decides", CHIEF, {"successPolicy": "AllWorkers"}, [("chief-0", 0)], "Succeeded"),
    ("without a chief and workers nobody decides", {"PS": 2}, {}, [("ps-0", 0), ("ps-1", 0)], "Created"),
    ("a failed PS fails the job", PLAIN, {}, [("ps-0", 1)], "Failed"),
    ("a failed worker fails the job", CHIEF, {}, [("worker-1", 137)], "Failed"),
    ("a failed Evaluator fails the job", {"Worker": 1, "Evaluator": 1}, {}, [("evaluator-0", 1)], "Failed"),
    ("a Worker with enableDynamicWorker does not", PLAIN, {"enableDynamicWorker": True}, [("worker-1", 1)], "Running"),
    ("but a PS with enableDynamicWorker does", PLAIN, {"enableDynamicWorker": True}, [("ps-0", 1)], "Failed"),
    ("what fails once the job is done does not matter", CHIEF, {}, [("chief-0", 0), ("worker-0", 1)], "Succeeded"),
    ("OnFailure restarts", PLAIN, {"policy": "OnFailure"}, [("worker-1", 1)], "Restarting"),
    ("Always restarts", PLAIN, {"policy": "Always"}, [("ps-0", 1)], "Restarting"),
    ("ExitCode: 128 and above restarts", PLAIN, {"policy": "ExitCode"}, [("worker-1", 128)], "Restarting"),
    ("ExitCode: killed restarts", PLAIN, {"policy": "ExitCode"}, [("worker-1", 137)], "Restarting"),
    ("ExitCode: no exit code known is retryable", PLAIN, {"policy": "ExitCode"}, [("worker-1", None)], "Restarting"),
    ("ExitCode: below 128 fails the job", PLAIN, {"policy": "ExitCode"}, [("worker-1", 127)], "Failed"),
    ("ExitCode below 128 fails it while another restarts", PLAIN, {"policy": "ExitCode"},
     [("worker-1", 137), ("ps-0", 1)], "Failed"),
    ("except while Restarting", PLAIN, {"policy": {"Worker": "OnFailure"}}, [("worker-1", 1), ("ps-0", 1)], "Restarting"),
]  # fmt: skip


@pytest.mark.parametrize(("replicas", "how", "ends", "state"), [row[1:] for row in ENDS], ids=[row[0] for row in ENDS])
def test_success_and_failure(
    replicas: dict[str, int], how: dict[str, Any], ends: list[tuple[str, int | None]], state: str
) -> None:
    cluster = running(manifest(replicas, **how))
    for short, code in ends:
        cluster.end(short, code)
    cluster.look()
    assert cluster.state == state
    cluster.settle()
    assert cluster.state == state


def test_a_failure_beside_a_restart_fails_the_job_once_that_is_over() -> None:
    cluster = running(manifest(PLAIN, policy={"Worker": "OnFailure"}))
    cluster.end("worker-1", 1)
    cluster.end("ps-0", 1)
    cluster.settle()
    assert cluster.state == "Restarting"
    cluster.reap()
    cluster.settle()
    assert cluster.last["message"] == "TFJob ml/mnist has failed because 1 PS replica(s) failed."
