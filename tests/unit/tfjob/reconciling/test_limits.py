"""Limits of a TFJob: of recreations and restarts, and of its time."""

from __future__ import annotations

import json

import pytest

from tests.unit.tfjob.world import Cluster, manifest, running

PLAIN = {"PS": 1, "Worker": 2}
EVERYTHING = {"ps-0", "worker-0", "worker-1"}


# ---------------------------------------------------------------------------------------------------- limits


def _restart(cluster: Cluster, short: str) -> None:
    """It fails once, is recreated, and runs again."""
    cluster.end(short, 137)
    cluster.settle()
    cluster.reap()
    cluster.settle()
    cluster.run()
    cluster.settle()


@pytest.mark.parametrize(("limit", "restarts"), [(0, 1), (1, 1), (2, 2), (3, 3)])
def test_backoff_limit_counts_recreations(limit: int, restarts: int) -> None:
    cluster = running(manifest(PLAIN, policy="ExitCode", run_policy={"backoffLimit": limit}))
    for number in range(restarts):
        assert cluster.state == "Running", number
        _restart(cluster, f"worker-{number % 2}")
    assert (cluster.last["type"], cluster.last["reason"], cluster.last["message"]) == (
        "Failed", "TFJobFailed", "Job mnist has failed because it has reached the specified backoff limit"
    )  # fmt: skip
    assert not cluster.living and not cluster.services, "it deletes everything, whatever cleanPodPolicy says"


@pytest.mark.parametrize(
    ("policy", "phase", "counts", "state"),
    [
        ("OnFailure", "Running", (1, 1), "Failed"),
        ("ExitCode", "Running", (0, 2), "Failed"),
        ("OnFailure", "Running", (1, 0), "Running"),
        ("Never", "Running", (2, 2), "Running"),  # these are not restarted by us
        ("OnFailure", "Pending", (2, 2), "Running"),  # of running pods
    ],
)
def test_backoff_limit_counts_container_restarts_of_running_pods(
    policy: str, phase: str, counts: tuple[int, int], state: str
) -> None:
    cluster = running(manifest(PLAIN, policy=policy, run_policy={"backoffLimit": 2}))
    cluster.pods["mnist-worker-1"]["status"] = {
        "phase": phase, "containerStatuses": [{"name": "tensorflow", "restartCount": counts[0]}],
        "initContainerStatuses": [{"name": "init", "restartCount": counts[1]}],
    }  # fmt: skip
    cluster.settle()
    assert cluster.state == state


def test_recreations_and_container_restarts_add_up() -> None:
    cluster = running(manifest(PLAIN, policy="OnFailure", run_policy={"backoffLimit": 2}))
    _restart(cluster, "worker-1")
    assert cluster.state == "Running"
    cluster.pods["mnist-ps-0"]["status"]["containerStatuses"] = [{"name": "tensorflow", "restartCount": 1}]
    cluster.settle()
    assert cluster.state == "Failed"


def test_a_recreation_is_counted_once_by_an_operator_that_dies_at_any_point() -> None:
    cluster = running(manifest(PLAIN, policy="ExitCode", run_policy={"backoffLimit": 2}))
    cluster.end("worker-1", 137)
    for _ in range(3):  # the annotation is written, and the operator dies before it deletes the pod
        cluster.manifest["metadata"]["annotations"].update(dict(cluster.decide().annotations))
    cluster.settle()
    note = json.loads(cluster.manifest["metadata"]["annotations"]["aimaster.deeprec.io/restarts"])
    assert (note["count"], len(note["uids"])) == (1, 1)
    cluster.reap()
    cluster.settle()
    cluster.end("worker-0", 137)
    cluster.settle()
    note = json.loads(cluster.manifest["metadata"]["annotations"]["aimaster.deeprec.io/restarts"])
    assert (note["count"], len(note["uids"])) == (2, 1), "what is gone needs no uid any more"


@pytest.mark.parametrize(
    "note", ['{"job": "the other", "count": 9, "uids": []}', "x", "3", '{"job": "uid-of-mnist", "count": []}']
)
def test_recreations_of_another_job_whose_manifest_was_copied_do_not_count(note: str) -> None:
    cluster = running(
        manifest(
            PLAIN, policy="ExitCode", run_policy={"backoffLimit": 2}, annotations={"aimaster.deeprec.io/restarts": note}
        )
    )
    assert cluster.state == "Running"


def test_nothing_is_counted_where_no_limit_asks_for_it() -> None:
    cluster = running(manifest(PLAIN, policy="ExitCode"))
    _restart(cluster, "worker-1")
    assert cluster.manifest["metadata"]["annotations"] == {}


def test_active_deadline_seconds_count_from_the_start_time() -> None:
    cluster = running(manifest(PLAIN, run_policy={"activeDeadlineSeconds": 100}))
    cluster.pass_seconds(39)
    assert cluster.decide().again_seconds == 60
    cluster.pass_seconds(60)
    cluster.settle()
    assert cluster.last["message"] == "Job mnist has failed because it was active longer than specified deadline"
    assert cluster.status["completionTime"] == "2025-01-31T12:01:40Z"
    assert not cluster.living and not cluster.services and cluster.counts("Worker") == {}


def test_a_job_that_succeeds_at_its_deadline_has_succeeded() -> None:
    cluster = running(manifest(PLAIN, run_policy={"activeDeadlineSeconds": 100}))
    cluster.end("worker-0", 0)
    cluster.pass_seconds(100)
    cluster.settle()
    assert cluster.state == "Succeeded"
