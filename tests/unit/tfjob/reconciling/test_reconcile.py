"""A TFJob from its creation to its end, in a namespace that does as it is told (TFJOB.md, Scaling and ends)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.tfjob.world import Cluster, manifest, running, tf_config_of
from tfjob.reconciling.observed import Options

PLAIN = {"PS": 1, "Worker": 2}
EVERYTHING = {"ps-0", "worker-0", "worker-1"}


# ---------------------------------------------------------------------------------------------------- creation


def test_a_new_job_gets_all_its_pods_and_services_and_then_there_is_nothing_left_to_do() -> None:
    cluster = Cluster(manifest({"Chief": 1, "PS": 2, "Worker": 2, "Evaluator": 1}))
    cluster.look()
    expected = {f"mnist-{one}" for one in ("chief-0", "ps-0", "ps-1", "worker-0", "worker-1", "evaluator-0")}
    assert set(cluster.pods) == set(cluster.services) == expected
    assert not cluster.decide().writes


def test_only_what_is_missing_is_created() -> None:
    cluster = running(manifest(PLAIN))
    del cluster.pods["mnist-worker-1"], cluster.services["mnist-ps-0"]
    actions = cluster.look()
    assert [one["metadata"]["name"] for one in actions.create_pods] == ["mnist-worker-1"]
    assert [one["metadata"]["name"] for one in actions.create_services] == ["mnist-ps-0"]


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    cluster = Cluster(manifest(PLAIN))
    cluster.manifest["metadata"]["deletionTimestamp"] = "2025-01-31T12:00:00Z"
    assert not cluster.decide().writes


@pytest.mark.parametrize(
    ("manager", "ours"),
    [
        (None, True),
        ("kubeflow.org/training-operator", True),
        ("kueue.x-k8s.io/multikueue", False),
        ("", False),
        ("x", False),
    ],
)
def test_a_job_that_another_controller_manages_is_left_alone(manager: str | None, ours: bool) -> None:
    actions = Cluster(manifest(PLAIN, run_policy={"managedBy": manager})).decide()
    assert actions.writes is ours and not [event for event in actions.events if event.type == "Warning"]


def test_a_job_that_runs_here_goes_on_when_another_controller_is_named() -> None:
    cluster = running(manifest(PLAIN))
    cluster.manifest["spec"]["runPolicy"] = {"managedBy": "kueue.x-k8s.io/multikueue"}
    cluster.end("worker-0", 0)
    cluster.settle()
    assert cluster.state == "Succeeded"
    assert any("managedBy: is immutable" in event.message for event in cluster.events if event.type == "Warning")


def _foreign(kind: str) -> dict[str, Any]:
    owner = [{"kind": kind, "name": "other", "uid": "another", "controller": True}] if kind else []
    return {"metadata": {"name": "mnist-ps-0", "uid": "u", "ownerReferences": owner}, "status": {"phase": "Running"}}


@pytest.mark.parametrize(("kind", "says"), [("ReplicaSet", "belongs to ReplicaSet other"), ("", "belongs to nobody")])
def test_a_pod_of_the_right_name_that_is_not_ours_is_not_touched_and_not_counted(kind: str, says: str) -> None:
    cluster = Cluster(manifest(PLAIN), pods={"mnist-ps-0": _foreign(kind)})
    actions = cluster.look()
    assert {name for name, pod in cluster.pods.items() if pod["status"]["phase"] == "Pending"} == {
        "mnist-worker-0", "mnist-worker-1"
    }  # fmt: skip
    assert cluster.counts("PS") == {} and not actions.delete_pods
    warning = next(event for event in actions.events if event.reason == "NameTaken")
    assert warning.type == "Warning" and f"pod mnist-ps-0 {says}" in warning.message and "delete it" in warning.message
    assert actions.again_seconds


def test_leftovers_of_a_job_of_the_same_name_are_waited_for_in_silence() -> None:
    left = _foreign("TFJob")
    left["metadata"]["ownerReferences"][0]["name"] = "mnist"
    cluster = Cluster(manifest(PLAIN), pods={"mnist-ps-0": left})
    actions = cluster.look()
    assert not actions.events and actions.again_seconds
    del cluster.pods["mnist-ps-0"]
    cluster.settle()
    assert cluster.living == EVERYTHING


def test_a_service_of_the_right_name_that_is_not_ours_is_not_touched() -> None:
    cluster = Cluster(manifest(PLAIN), services={"mnist-ps-0": _foreign("Deployment")})
    actions = cluster.look()
    assert len(actions.create_services) == 2 and not actions.delete_services and len(actions.create_pods) == 3
    assert "service mnist-ps-0 belongs to Deployment other" in actions.events[0].message


def test_a_restart_policy_in_a_template_is_warned_of_when_pods_are_made_of_it() -> None:
    written = manifest(PLAIN)
    written["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["restartPolicy"] = "Always"
    cluster = Cluster(written)
    cluster.settle()
    assert cluster.reasons() == ["SetPodTemplateRestartPolicy"]


def test_the_cluster_domain_of_the_operator_is_written_in_tf_config() -> None:
    cluster = Cluster(manifest(PLAIN), options=Options(domain="cluster.local"))
    cluster.settle()
    assert tf_config_of(cluster.pods["mnist-ps-0"])["cluster"]["ps"] == ["mnist-ps-0.ml.svc.cluster.local:2222"]


# ---------------------------------------------------------------------------------------------------- restarts


@pytest.mark.parametrize(
    ("policy", "code"),
    [("OnFailure", 1), ("OnFailure", None), ("Always", 1), ("ExitCode", 137), ("ExitCode", 128), ("ExitCode", None)],
)
def test_a_pod_that_may_be_restarted_is_deleted_and_recreated_under_its_name(policy: str, code: int | None) -> None:
    cluster = running(manifest(PLAIN, policy=policy))
    old = cluster.pods["mnist-worker-1"]["metadata"]["uid"]
    cluster.end("worker-1", code)
    cluster.settle()
    assert cluster.living == EVERYTHING - {"worker-1"} and cluster.state == "Restarting"
    cluster.reap()
    cluster.look()
    assert cluster.living == EVERYTHING and cluster.pods["mnist-worker-1"]["metadata"]["uid"] != old
    cluster.run()
    cluster.settle()
    assert cluster.conditions == [("Created", "True"), ("Running", "True")]
    assert cluster.reasons().count("TFJobRestarting") == 1


def test_an_exit_code_that_is_known_is_told() -> None:
    cluster = running(manifest(PLAIN, policy="ExitCode"))
    cluster.end("worker-1", 137)
    cluster.settle()
    assert "Pod: ml.mnist-worker-1 exited with code 137" in [event.message for event in cluster.events]


def test_a_succeeded_pod_is_not_run_again() -> None:
    cluster = running(manifest({"Chief": 1, "Worker": 2}, policy="Always"))
    cluster.end("worker-0", 0)
    assert not cluster.look().delete_pods and len(cluster.pods) == 3


# ---------------------------------------------------------------------------------------------------- scaling


def test_lower_replicas_delete_the_indices_beyond_and_higher_ones_create_the_missing() -> None:
    cluster = running(manifest({"PS": 1, "Worker": 4}))
    written = tf_config_of(cluster.pods["mnist-worker-0"])
    cluster.manifest["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 2
    cluster.settle()
    assert cluster.living == EVERYTHING and set(cluster.services) == {f"mnist-{one}" for one in EVERYTHING}
    cluster.reap()
    cluster.manifest["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 3
    cluster.settle()
    assert cluster.living == EVERYTHING | {"worker-2"}
    assert len(tf_config_of(cluster.pods["mnist-worker-2"])["cluster"]["worker"]) == 3
    assert tf_config_of(cluster.pods["mnist-worker-0"]) == written, "TF_CONFIG of living pods is never refreshed"


def test_scaling_down_does_not_fail_the_job() -> None:
    cluster = running(manifest({"PS": 1, "Worker": 3}))
    cluster.manifest["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 1
    cluster.settle()
    assert cluster.state == "Running" and cluster.counts("Worker") == {"active": 1}


# ---------------------------------------------------------------------------------------------------- the end


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize(
    ("policy", "left"), [(None, EVERYTHING), ("None", EVERYTHING), ("Running", {"worker-0"}), ("All", set())]
)
def test_clean_pod_policy_at_the_end(policy: str | None, left: set[str], code: int) -> None:
    cluster = running(manifest(PLAIN, run_policy={} if policy is None else {"cleanPodPolicy": policy}))
    cluster.end("worker-0", code)
    actions = cluster.look()
    assert not actions.delete_pods and cluster.status["completionTime"], (
        "first the end is written, then it is cleaned up"
    )
    cluster.settle()
    assert cluster.living == left and set(cluster.services) == {f"mnist-{one}" for one in left}
    cluster.reap()
    assert not cluster.decide().writes and len(cluster.pods) == len(left), "nothing is created any more"


def test_running_takes_pending_pods_too() -> None:
    cluster = Cluster(manifest(PLAIN, run_policy={"cleanPodPolicy": "Running"}))
    cluster.settle()
    cluster.run("worker-0")
    cluster.end("worker-0", 0)
    cluster.settle()
    assert cluster.living == {"worker-0"}


@pytest.mark.parametrize("ttl", [0, 90])
def test_ttl_deletes_the_job(ttl: int) -> None:
    cluster = running(manifest(PLAIN, run_policy={"ttlSecondsAfterFinished": ttl}))
    cluster.pass_seconds(1000)
    cluster.settle()
    assert not cluster.gone
    cluster.end("worker-0", 0)
    cluster.look()
    if ttl:
        assert cluster.look().again_seconds == 90 and not cluster.gone
        cluster.pass_seconds(90)
    cluster.look()
    assert cluster.gone


@pytest.mark.parametrize("code", [0, 1])
def test_ttl_counts_from_the_last_condition_where_another_controller_has_left_no_completion_time(code: int) -> None:
    cluster = running(manifest(PLAIN, run_policy={"ttlSecondsAfterFinished": 90}))
    cluster.end("worker-0", code)
    cluster.look()
    del cluster.status["completionTime"]
    assert cluster.look().again_seconds == 90


# ---------------------------------------------------------------------------------------------------- suspend


def _suspend(cluster: Cluster, value: bool) -> None:
    cluster.manifest["spec"]["runPolicy"]["suspend"] = value


def test_suspend_deletes_pods_and_services_and_turns_running_false() -> None:
    cluster = running(manifest(PLAIN, run_policy={"suspend": False}))
    _suspend(cluster, True)
    cluster.settle()
    assert not cluster.living and not cluster.services and cluster.counts("Worker") == {}
    assert cluster.conditions == [("Created", "True"), ("Running", "False"), ("Suspended", "True")]
    assert (cluster.last["reason"], cluster.last["message"]) == ("TFJobSuspended", "TFJob mnist is suspended.")
    assert cluster.reasons() == ["TFJobSuspended"]


def test_resume_resets_the_start_time_and_makes_everything_anew() -> None:
    cluster = running(manifest(PLAIN, run_policy={"suspend": False, "activeDeadlineSeconds": 100}))
    _suspend(cluster, True)
    cluster.settle()
    cluster.pass_seconds(500)  # no deadline runs while it is suspended
    cluster.reap()
    cluster.settle()
    _suspend(cluster, False)
    cluster.settle()
    assert cluster.status["startTime"] == "2025-01-31T12:08:21Z" and cluster.living == EVERYTHING
    resumed = next(one for one in cluster.status["conditions"] if one["type"] == "Suspended")
    assert (resumed["status"], resumed["reason"], resumed["message"]) == (
        "False", "TFJobResumed", "TFJob mnist is resumed."
    )  # fmt: skip
    cluster.run()
    cluster.settle()
    assert cluster.state == "Running" and cluster.reasons() == ["TFJobSuspended", "TFJobResumed"]


def test_pods_that_still_go_when_the_job_is_resumed_are_no_failures() -> None:
    cluster = running(manifest(PLAIN, run_policy={"suspend": False}))
    _suspend(cluster, True)
    cluster.settle()
    cluster.pass_seconds(1)
    _suspend(cluster, False)
    cluster.settle()
    assert cluster.state == "Suspended" and cluster.counts("Worker") == {}
    cluster.reap()
    cluster.settle()
    assert cluster.living == EVERYTHING


def test_a_job_that_is_created_suspended_makes_nothing_and_has_not_started() -> None:
    cluster = Cluster(manifest(PLAIN, run_policy={"suspend": True}))
    cluster.settle()
    assert not cluster.pods and "startTime" not in cluster.status
    assert cluster.conditions == [("Created", "True"), ("Suspended", "True")]


# ---------------------------------------------------------------------------------------------------- gangs


def test_volcano_pods_wait_for_the_group_to_be_admitted() -> None:
    cluster = Cluster(manifest(PLAIN), options=Options(scheduler="volcano"))
    cluster.settle()
    assert cluster.pod_group is not None and cluster.pod_group["spec"]["minMember"] == 3 and not cluster.pods
    cluster.pod_group["status"] = {"phase": "Pending"}
    cluster.settle()
    assert not cluster.pods and cluster.decide().again_seconds
    cluster.pod_group["status"] = {"phase": "Inqueue"}
    cluster.settle()
    assert cluster.living == EVERYTHING and cluster.events == []


def test_the_group_follows_the_size_and_goes_with_the_job() -> None:
    cluster = Cluster(manifest(PLAIN), options=Options(scheduler="coscheduler"))
    cluster.settle()
    assert cluster.living == EVERYTHING
    cluster.manifest["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 4
    cluster.settle()
    assert cluster.pod_group is not None and cluster.pod_group["spec"]["minMember"] == 5
    cluster.run()
    cluster.end("worker-0", 0)
    cluster.settle()
    assert cluster.pod_group is None


def test_another_scheduler_in_a_template_is_warned_of() -> None:
    written = manifest(PLAIN)
    written["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["schedulerName"] = "mine"
    cluster = Cluster(written, options=Options(scheduler="coscheduler"))
    cluster.settle()
    assert set(cluster.reasons()) == {"SetPodTemplateSchedulerName"}


def test_a_group_that_the_user_has_made_is_not_touched() -> None:
    own = {"metadata": {"name": "mnist"}, "spec": {"minMember": 1}}
    cluster = Cluster(manifest(PLAIN), options=Options(scheduler="coscheduler"), pod_group=own)
    cluster.settle()
    assert cluster.pod_group is own and cluster.living == EVERYTHING


# ---------------------------------------------------------------------------------------------------- bad input


def test_an_invalid_job_fails_with_the_name_of_the_field_and_makes_nothing() -> None:
    written = manifest(PLAIN)
    written["spec"]["tfReplicaSpecs"]["PS"]["replicas"] = -1
    cluster = Cluster(written)
    cluster.settle()
    message = "spec.tfReplicaSpecs.PS.replicas: is -1; must be a whole number, 0 or more"
    assert cluster.conditions == [("Created", "True"), ("Failed", "True")]
    assert (cluster.last["reason"], cluster.last["message"]) == ("TFJobFailedValidation", message)
    assert not cluster.pods and cluster.status["completionTime"]
    assert [(one.type, one.reason, one.message) for one in cluster.events] == [
        ("Warning", "TFJobFailedValidation", message)
    ]


def test_a_running_job_is_not_taken_down_by_an_invalid_edit() -> None:
    cluster = running(manifest(PLAIN))
    cluster.manifest["spec"]["tfReplicaSpecs"]["PS"]["replicas"] = -1
    actions = cluster.look()
    assert not actions.writes and cluster.state == "Running"
    assert actions.events[0].reason == "TFJobFailedValidation" and "goes on as it is" in actions.events[0].message
    cluster.manifest["spec"]["tfReplicaSpecs"]["PS"]["replicas"] = 2
    cluster.settle()
    assert "ps-1" in cluster.living


# ---------------------------------------------------------------------------------------------------- no writes


def test_a_resync_without_a_change_writes_nothing_in_any_state() -> None:
    cluster = running(manifest({"Chief": 1, "PS": 1, "Worker": 2}, policy="ExitCode", run_policy={"backoffLimit": 9}))
    for step in ("running", "failing", "gone", "again", "done"):
        if step == "failing":
            cluster.end("worker-0", 137)
        elif step == "gone":
            cluster.reap()
        elif step == "again":
            cluster.run()
        elif step == "done":
            cluster.end("chief-0", 0)
        cluster.settle()
        cluster.pass_seconds(300)
        assert not cluster.decide().writes, step


# ---------------------------------------------------------------------------------------------------- killed anywhere


def _fail_one(cluster: Cluster) -> None:
    cluster.end("worker-1", 137)


def _succeed(cluster: Cluster) -> None:
    cluster.end("worker-0", 0)


def _scale(cluster: Cluster) -> None:
    cluster.manifest["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 3
    cluster.manifest["spec"]["tfReplicaSpecs"]["PS"]["replicas"] = 0


def _suspend_it(cluster: Cluster) -> None:
    _suspend(cluster, True)


def _let_it_expire(cluster: Cluster) -> None:
    cluster.pass_seconds(1000)


def _nothing(_: Cluster) -> None:
    pass


def _live_on(cluster: Cluster, most: int | None) -> Cluster:
    """To the end of all changes; the first time, the operator is killed after `most` steps."""
    cluster.carry_out(cluster.decide(), most)
    for _ in range(3):
        cluster.settle()
        cluster.reap()
    return cluster


@pytest.mark.parametrize("happens", [_nothing, _fail_one, _succeed, _scale, _suspend_it, _let_it_expire])
def test_an_operator_that_is_killed_at_any_point_leaves_what_another_brings_to_the_same_end(
    happens: Callable[[Cluster], None],
) -> None:
    policy = {"backoffLimit": 3, "cleanPodPolicy": "All", "activeDeadlineSeconds": 500, "suspend": False}

    def start() -> Cluster:
        written = manifest({"PS": 1, "Worker": 2}, policy="ExitCode", run_policy=policy)
        cluster = Cluster(written) if happens is _nothing else running(written)
        happens(cluster)
        return cluster

    expected = _live_on(start(), None)
    steps = len(list(start()._steps(start().decide())))
    assert steps > 1
    for most in range(steps):
        found = _live_on(start(), most)
        assert found.living == expected.living and set(found.services) == set(expected.services), most
        assert found.conditions == expected.conditions and found.last["message"] == expected.last["message"], most
        assert found.manifest["metadata"]["annotations"] == expected.manifest["metadata"]["annotations"], most
