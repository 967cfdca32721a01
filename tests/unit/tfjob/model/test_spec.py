"""Parsing a TFJob: defaults, and what is refused (TFJOB.md, Spec)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.tfjob.world import manifest, template
from tfjob.model.kinds import Manifest
from tfjob.model.spec import MULTIKUEUE, InvalidError, RunPolicy, SchedulingPolicy, TFJob, check_manager, check_update


def test_defaults_are_applied_in_memory_and_the_manifest_stays_as_it_is() -> None:
    written = {
        "metadata": {"name": "mnist", "namespace": "ml", "uid": "u"},
        "spec": {"tfReplicaSpecs": {"Worker": {"template": template()}}},
    }
    before = copy.deepcopy(written)
    job = TFJob.parse(written)
    worker = job.specs["Worker"]
    assert (worker.replicas, worker.restart_policy, worker.port) == (1, "Never", 2222)
    assert job.run_policy == RunPolicy(clean_pod_policy="None") and job.success_policy == "" and not job.dynamic_worker
    assert written == before


def test_everything_that_can_be_said_is_read() -> None:
    policy = {
        "cleanPodPolicy": "Running", "ttlSecondsAfterFinished": 60, "activeDeadlineSeconds": 3600, "backoffLimit": 3,
        "suspend": True, "managedBy": "kubeflow.org/training-operator",
        "schedulingPolicy": {"minAvailable": 2, "queue": "q", "minResources": {"cpu": 4}, "priorityClass": "high",
                             "scheduleTimeoutSeconds": 30},
    }  # fmt: skip
    job = TFJob.parse(manifest(run_policy=policy, successPolicy="AllWorkers", enableDynamicWorker=True))
    assert job.run_policy == RunPolicy(
        "Running", 60, 3600, 3, True, "kubeflow.org/training-operator", SchedulingPolicy(2, "q", {"cpu": 4}, "high", 30)
    )
    assert job.success_policy == "AllWorkers" and job.dynamic_worker
    assert (job.namespace, job.name, job.uid, job.generation) == ("ml", "mnist", "uid-of-mnist", 1)


@pytest.mark.parametrize(
    ("written", "type_"),
    [("ps", "PS"), ("PS", "PS"), ("worker", "Worker"), ("WORKER", "Worker"), ("chief", "Chief"), ("master", "Master"),
     ("evaluator", "Evaluator"), ("Evaluator", "Evaluator")],
)  # fmt: skip
def test_keys_of_tf_replica_specs_are_case_insensitive(written: str, type_: str) -> None:
    assert set(TFJob.parse(manifest({written: 1})).specs) == {type_}


def _at(path: str, value: Any) -> Callable[[Manifest], None]:
    """Sets one field; None removes it."""

    def change(found: Manifest) -> None:
        *way, last = path.split("/")
        target: Any = found
        for key in way:
            target = target[int(key)] if isinstance(target, list) else target.setdefault(key, {})
        if value is None:
            del target[last]
        else:
            target[last] = value

    return change


SPECS, WORKER = "spec/tfReplicaSpecs", "spec/tfReplicaSpecs/Worker"
CONTAINERS = f"{WORKER}/template/spec/containers"
POLICY = "spec/runPolicy"
REFUSED = [
    ("a DNS-1035 name", _at("metadata/name", "Mnist_1"), "metadata.name", "DNS-1035"),
    ("a name short enough for its pods", _at("metadata/name", "m" * 60), "metadata.name", "too long"),
    ("spec is an object", _at("spec", "x"), "spec", "must be an object"),
    ("tfReplicaSpecs is required", _at(SPECS, None), "spec.tfReplicaSpecs", "required"),
    ("tfReplicaSpecs is not empty", _at(SPECS, {}), "spec.tfReplicaSpecs", "required"),
    ("a known replica type", _at(f"{SPECS}/Server", {}), "spec.tfReplicaSpecs.Server", "no such replica type"),
    ("a type is an object", _at(WORKER, 2), "spec.tfReplicaSpecs.Worker", "replicas, restartPolicy and template"),
    ("no type twice", _at(f"{SPECS}/ps", {"template": template()}), "spec.tfReplicaSpecs.ps", "twice"),
    ("replicas not negative", _at(f"{WORKER}/replicas", -1), "spec.tfReplicaSpecs.Worker.replicas", "0 or more"),
    ("replicas within reason", _at(f"{WORKER}/replicas", 10**9), "spec.tfReplicaSpecs.Worker.replicas", "10000 or less"),
    ("replicas a number", _at(f"{WORKER}/replicas", "2"), "spec.tfReplicaSpecs.Worker.replicas", "whole number"),
    ("a known restart policy", _at(f"{WORKER}/restartPolicy", "Sometimes"),
     "spec.tfReplicaSpecs.Worker.restartPolicy", "Never, OnFailure, Always, ExitCode"),
    ("a template", _at(f"{WORKER}/template", None), "spec.tfReplicaSpecs.Worker.template.spec.containers", "tensorflow"),
    ("a container named tensorflow", _at(f"{CONTAINERS}/0/name", "main"),
     "spec.tfReplicaSpecs.Worker.template.spec.containers", "tensorflow"),
    ("an image in each container", _at(f"{CONTAINERS}/0/image", ""),
     "spec.tfReplicaSpecs.Worker.template.spec.containers[0].image", "required"),
    ("containers are a list", _at(CONTAINERS, "x"), "spec.tfReplicaSpecs.Worker.template.spec.containers", "list"),
    ("a port in range", _at(f"{CONTAINERS}/0/ports", [{"name": "tfjob-port", "containerPort": 70000}]),
     "spec.tfReplicaSpecs.Worker.template.spec.containers[0].ports[0].containerPort", "65535"),
    ("port names differ", _at(f"{CONTAINERS}/0/ports", [{"name": "a", "containerPort": 1}, {"name": "a", "containerPort": 2}]),
     "spec.tfReplicaSpecs.Worker.template.spec.containers[0].ports[1].name", "twice"),
    ("one name a port", _at(f"{CONTAINERS}/0/ports", [{"name": "grpc", "containerPort": 2222}]),
     "spec.tfReplicaSpecs.Worker.template.spec.containers[0].ports", "call that port tfjob-port"),
    ("at most one of Chief and Master", _at(SPECS, {"Chief": {"template": template()}, "master": {"template": template()}}),
     "spec.tfReplicaSpecs.master", "not both"),
    ("one chief", _at(f"{SPECS}/Chief", {"replicas": 2, "template": template()}),
     "spec.tfReplicaSpecs.Chief.replicas", "has 1 Chief"),
    ("a known success policy", _at("spec/successPolicy", "Most"), "spec.successPolicy", "AllWorkers"),
    ("enableDynamicWorker is true or false", _at("spec/enableDynamicWorker", "yes"), "spec.enableDynamicWorker", "true"),
    ("a known cleanPodPolicy", _at(f"{POLICY}/cleanPodPolicy", "Some"), "spec.runPolicy.cleanPodPolicy", "Running"),
    ("ttl not negative", _at(f"{POLICY}/ttlSecondsAfterFinished", -1), "spec.runPolicy.ttlSecondsAfterFinished", "0 or"),
    ("a deadline not negative", _at(f"{POLICY}/activeDeadlineSeconds", -1), "spec.runPolicy.activeDeadlineSeconds", "0 or"),
    ("backoffLimit not negative", _at(f"{POLICY}/backoffLimit", -1), "spec.runPolicy.backoffLimit", "0 or more"),
    ("suspend is true or false", _at(f"{POLICY}/suspend", 1), "spec.runPolicy.suspend", "true or false"),
    ("minAvailable a number", _at(f"{POLICY}/schedulingPolicy", {"minAvailable": "all"}),
     "spec.runPolicy.schedulingPolicy.minAvailable", "whole number"),
    ("runPolicy is an object", _at(POLICY, "x"), "spec.runPolicy", "object"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "field", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_wrong_is_refused_by_the_name_of_the_field(
    change: Callable[[Manifest], None], field: str, says: str
) -> None:
    written = manifest()
    change(written)
    with pytest.raises(InvalidError) as caught:
        TFJob.parse(written)
    assert caught.value.field == field
    assert says in str(caught.value) and str(caught.value).startswith(f"{field}: ")


def test_the_field_is_named_as_the_user_wrote_it() -> None:
    written = manifest({"worker": 1})
    written["spec"]["tfReplicaSpecs"]["worker"]["replicas"] = -1
    with pytest.raises(InvalidError, match=r"^spec\.tfReplicaSpecs\.worker\.replicas: is -1; must be"):
        TFJob.parse(written)


@pytest.mark.parametrize("manager", ["", "me"])
def test_a_new_job_names_a_controller_that_there_is(manager: str) -> None:
    with pytest.raises(InvalidError, match=r"spec\.runPolicy\.managedBy: is .*multikueue"):
        check_manager(manifest(run_policy={"managedBy": manager}))
    assert not TFJob.parse(manifest(run_policy={"managedBy": manager})).ours, "one that is there is left alone"
    check_manager(manifest(run_policy={"managedBy": MULTIKUEUE}))
    check_manager(manifest())


def test_managed_by_is_immutable() -> None:
    ours, theirs = manifest(), manifest(run_policy={"managedBy": "kueue.x-k8s.io/multikueue"})
    check_update(ours, ours)
    check_update(theirs, theirs)
    for old, new in ((ours, theirs), (theirs, ours)):
        with pytest.raises(InvalidError, match=r"spec\.runPolicy\.managedBy: is immutable"):
            check_update(old, new)


def test_nulls_are_as_good_as_nothing() -> None:
    written = manifest(run_policy={"schedulingPolicy": None, "backoffLimit": None}, successPolicy=None)
    written["spec"]["tfReplicaSpecs"]["PS"].update(replicas=None, restartPolicy=None)
    assert TFJob.parse(written).replicas("PS") == 1


def test_one_number_may_be_a_port_of_two_protocols() -> None:
    written = manifest({"PS": 1, "Worker": 1})
    container = written["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["containers"][0]
    container["ports"] = [
        {"name": "dns", "containerPort": 53},
        {"name": "dns-udp", "containerPort": 53, "protocol": "UDP"},
    ]
    assert [port["name"] for port in TFJob.parse(written).specs["PS"].ports] == ["dns", "dns-udp", "tfjob-port"]
    container["ports"][1]["protocol"] = "TCP"
    with pytest.raises(InvalidError, match="dns and dns-udp are both 53"):
        TFJob.parse(written)
