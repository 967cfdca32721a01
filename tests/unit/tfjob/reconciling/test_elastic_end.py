"""An elastic job as the operator sees it: the AIMaster makes the pods, the operator keeps status, limits and order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.tfjob.world import ELASTIC, Cluster, manifest, template
from tfjob.model.spec import TFJob
from tfjob.pods import replica
from tfjob.reconciling.elastic_end import FINISH_SECONDS
from tfjob.reconciling.observed import Options

PREFIX = "aimaster.deeprec.io/"
PLAIN = {"PS": 2, "Worker": 2}
CHIEF = {"Chief": 1, "PS": 1, "Worker": 1}


def _elastic(replicas: dict[str, int] | None = None, run_policy: Any = None, **options: str) -> Cluster:
    given = {PREFIX + key.replace("_", "-"): value for key, value in options.items()}
    return Cluster(
        manifest(PLAIN if replicas is None else replicas, annotations={**ELASTIC, **given}, run_policy=run_policy or {})
    )


def _training(replicas: dict[str, int] | None = None, run_policy: Any = None) -> Cluster:
    """The AIMaster has made everything, and all runs."""
    cluster = _elastic(replicas, run_policy)
    cluster.settle()
    cluster.aimaster("Running")
    job = TFJob.parse(cluster.manifest)
    for type_, spec in job.specs.items():
        for index in range(spec.replicas):
            cluster._create(cluster.pods, {**replica.pod(job, type_, index), "status": {"phase": "Pending"}})
            cluster._create(cluster.services, replica.service(job, type_, index))
    cluster.run()
    cluster.settle()
    cluster.pass_seconds(1)
    return cluster


def test_the_operator_makes_only_the_aimaster_and_notes_the_first_sizes() -> None:
    cluster = _elastic()
    actions = cluster.look()
    assert actions.aimaster is not None and (actions.aimaster.ps, actions.aimaster.workers) == (2, 1)
    assert not cluster.pods and not cluster.services
    assert json.loads(cluster.manifest["metadata"]["annotations"][PREFIX + "started-with"]) == PLAIN
    again = cluster.decide()
    assert again.aimaster is not None and not again.writes


def test_the_aimaster_is_wanted_while_the_job_runs_and_no_longer() -> None:
    cluster = _training()
    assert cluster.look().aimaster is not None and cluster.state == "Running"
    cluster.manifest["spec"]["runPolicy"]["suspend"] = True
    assert cluster.look().aimaster is None
    cluster.manifest["spec"]["runPolicy"]["suspend"] = False
    assert cluster.look().aimaster is not None
    cluster.reap()
    cluster.aimaster("Failed", code=1, message="worker-0 exited with code 3")
    cluster.look()
    assert cluster.state == "Failed" and cluster.look().aimaster is None


@pytest.mark.parametrize("code", [1, 137, None])
@pytest.mark.parametrize("short", ["ps-1", "worker-1", "worker-0"])
def test_a_lost_pod_is_the_aimasters_matter(short: str, code: int | None) -> None:
    cluster = _training()
    cluster.end(short, code)
    actions = cluster.look()
    assert not actions.delete_pods and not actions.create_pods and cluster.state == "Running"
    type_ = "PS" if short.startswith("ps") else "Worker"
    assert cluster.counts(type_) == {"active": 1, "failed": 1}


def test_a_pod_that_the_aimaster_removes_or_adds_is_the_aimasters_matter() -> None:
    cluster = _training()
    cluster.delete("mnist-ps-1")
    cluster.settle()
    assert cluster.state == "Running"
    cluster.reap()
    cluster.settle()
    assert cluster.living == {"aimaster", "ps-0", "worker-0", "worker-1"}
    cluster.manifest["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 1  # a user asks for fewer: the AIMaster does it
    cluster.settle()
    assert "worker-1" in cluster.living and cluster.counts("Worker") == {"active": 2}


@pytest.mark.parametrize(("replicas", "chief"), [(PLAIN, "worker-0"), (CHIEF, "chief-0")])
def test_it_succeeds_when_its_chief_has(replicas: dict[str, int], chief: str) -> None:
    cluster = _training(replicas)
    cluster.end("worker-0" if chief != "worker-0" else "worker-1", 0)
    cluster.settle()
    assert cluster.state == "Running"
    cluster.end(chief, 0)
    cluster.look()
    assert (cluster.last["type"], cluster.last["message"]) == ("Succeeded", "TFJob ml/mnist successfully completed.")


def test_it_succeeds_when_the_aimaster_has_ended_well_even_if_the_chiefs_pod_is_gone_already() -> None:
    cluster = _training()
    del cluster.pods["mnist-worker-0"]
    cluster.aimaster("Succeeded", code=0)
    cluster.look()
    assert cluster.state == "Succeeded"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"phase": "Failed", "code": 1, "message": "ps-0 is lost and not started again\n"},
            "ps-0 is lost and not started again",
        ),
        ({"phase": "Failed", "code": 2}, "the AIMaster exited with code 2; see its log"),
        ({"phase": "Running", "code": 1, "message": "no data", "last": True}, "no data"),
    ],
)
def test_it_fails_when_the_aimaster_says_so(how: dict[str, Any], message: str) -> None:
    cluster = _training()
    cluster.aimaster(**how)
    cluster.look()
    assert (cluster.last["type"], cluster.last["reason"]) == ("Failed", "TFJobFailed")
    assert cluster.last["message"] == f"TFJob ml/mnist has failed: {message}"


@pytest.mark.parametrize(
    "how",
    [
        {"phase": "Failed"},  # evicted, or its node is lost
        {"phase": "Failed", "code": 137},
        {"phase": "Failed", "code": 143, "message": "some log line"},
    ],
)
def test_an_aimaster_that_was_killed_or_lost_is_made_again(how: dict[str, Any]) -> None:
    cluster = _training()
    cluster.aimaster(**how)
    actions = cluster.look()
    assert [one.name for one in actions.delete_pods] == ["mnist-aimaster"] and actions.aimaster is not None
    assert cluster.state == "Running"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_aimaster_that_somebody_deletes_says_nothing_with_its_exit_code(phase: str) -> None:
    cluster = _training()
    cluster.aimaster(phase, code=0 if phase == "Succeeded" else 1, message="stopped")
    cluster.delete("mnist-aimaster")
    assert not cluster.look().delete_pods and cluster.state == "Running"


def test_an_aimaster_that_crashed_and_is_restarted_in_place_has_not_failed_the_job() -> None:
    cluster = _training()
    cluster.aimaster("Running", code=1, last=True)
    cluster.look()
    assert cluster.state == "Running"


def test_the_aimaster_may_finish_before_everything_is_cleaned_up() -> None:
    cluster = _training(run_policy={"cleanPodPolicy": "All"})
    cluster.end("worker-0", 0)
    cluster.look()
    assert cluster.look().again_seconds == FINISH_SECONDS and "aimaster" in cluster.living
    cluster.aimaster("Succeeded", code=0)
    cluster.settle()
    assert not cluster.living and not cluster.services


def test_an_aimaster_that_does_not_finish_is_not_waited_for_without_end() -> None:
    cluster = _training(run_policy={"cleanPodPolicy": "Running"})
    cluster.end("worker-0", 0)
    cluster.look()
    cluster.pass_seconds(FINISH_SECONDS)
    cluster.settle()
    assert cluster.living == {"worker-0"}


@pytest.mark.parametrize(("phase", "stays"), [("Running", False), ("Failed", True)])
def test_no_aimaster_outlives_its_job_and_one_that_has_ended_stays_for_its_log(phase: str, stays: bool) -> None:
    cluster = _training()
    cluster.aimaster(phase, code=1, message="no data", last=phase == "Running")
    cluster.settle()
    assert cluster.state == "Failed" and ("aimaster" in cluster.living) is stays
    assert {"ps-0", "ps-1", "worker-0", "worker-1"} <= cluster.living, "cleanPodPolicy None"


def test_suspension_and_deadlines_take_the_aimaster_too() -> None:
    cluster = _training(run_policy={"suspend": True})
    assert not cluster.living and cluster.state == "Suspended"
    cluster = _training(run_policy={"activeDeadlineSeconds": 60})
    cluster.pass_seconds(60)
    cluster.settle()
    assert not cluster.living and cluster.state == "Failed"


def test_contradictory_annotations_fail_a_job_that_has_not_started() -> None:
    cluster = _elastic(min_ps="3", max_ps="1")
    cluster.look()
    assert (cluster.last["type"], cluster.last["reason"]) == ("Failed", "TFJobFailedValidation")
    assert "aimaster.deeprec.io/min-ps" in cluster.last["message"] and not cluster.aimaster_wanted


def test_contradictory_annotations_do_not_fail_a_job_that_runs() -> None:
    cluster = _training()
    cluster.manifest["metadata"]["annotations"][PREFIX + "max-ps"] = "1"
    actions = cluster.look()
    assert actions.aimaster is None and cluster.state == "Running" and not actions.delete_pods
    assert "goes on as it is" in actions.events[0].message
    cluster.end("worker-0", 0)
    cluster.look()
    assert cluster.state == "Succeeded", "its status is kept all the same"


def test_unknown_keys_are_warned_of() -> None:
    cluster = _elastic(max_pss="3")
    cluster.look()
    assert [(one.type, one.reason) for one in cluster.events] == [("Warning", "UnknownAnnotation")]


def test_a_job_that_runs_cannot_become_elastic() -> None:
    cluster = Cluster(manifest(PLAIN))
    cluster.settle()
    cluster.manifest["metadata"]["annotations"].update(ELASTIC)
    actions = cluster.look()
    assert actions.aimaster is None and "NotElastic" in cluster.reasons()
    del cluster.pods["mnist-ps-0"]
    assert cluster.look().create_pods, "it is kept as the ordinary job that it is"


def test_a_gang_of_an_elastic_job_is_what_it_needs_at_least() -> None:
    cluster = _elastic(CHIEF, min_ps="1", max_ps="4")
    cluster.options = Options(scheduler="coscheduler")
    cluster.look()
    assert cluster.pod_group is not None and cluster.pod_group["spec"]["minMember"] == 2
    container = {"name": "tensorflow", "image": "i", "resources": {"requests": {"cpu": "3"}}}
    cluster.manifest["spec"]["tfReplicaSpecs"]["PS"]["template"] = template(containers=[container])
    cluster.manifest["spec"]["tfReplicaSpecs"]["PS"]["replicas"] = 3
    cluster.look()
    assert cluster.pod_group["spec"]["minMember"] == 2, "not what it runs at the moment"
    assert cluster.pod_group["spec"]["minResources"] == {"cpu": "3"}, "of one PS and one chief"
    cluster.manifest["metadata"]["annotations"][PREFIX + "min-ps"] = "none"
    assert cluster.look().write_pod_group is None, "nobody knows what it needs: it stays as it is"


def test_the_aimaster_waits_for_the_group_to_be_admitted_as_it_asks_for_pods_at_once() -> None:
    cluster = _elastic(PLAIN, min_workers="2")
    cluster.options = Options(scheduler="volcano")
    cluster.look()
    assert (
        cluster.pod_group is not None and cluster.pod_group["spec"]["minMember"] == 3
    )  # 1 PS, 2 workers, one the chief
    assert cluster.look().aimaster is None and cluster.decide().again_seconds
    cluster.pod_group["status"] = {"phase": "Inqueue"}
    assert cluster.look().aimaster is not None
    cluster.aimaster("Running")
    cluster.pod_group["status"] = {"phase": "Pending"}
    assert cluster.look().aimaster is not None, "one that is there stays"


def test_a_template_of_an_elastic_job_is_checked_as_any_other() -> None:
    cluster = _elastic()
    cluster.manifest["spec"]["tfReplicaSpecs"]["PS"]["template"] = template(containers=[{"name": "x", "image": "y"}])
    cluster.look()
    assert cluster.last["reason"] == "TFJobFailedValidation"
