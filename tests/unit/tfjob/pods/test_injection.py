"""What an elastic pod gets on top of the user's, and what it keeps."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from deeprec_ext.errors import UsageError
from tests.unit.tfjob_manifests.pods import environment, injected, ordinary, training
from tests.unit.tfjob_manifests.schema import errors, violations
from tfjob.pods.injection import elastic_service

OURS = "/deeprec-ext/deeprec_ext/_autoload:/deeprec-ext"
PATH_FROM_A_MAP = {"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "paths", "key": "python"}}}


def test_the_process_knows_its_job_its_aimaster_and_where_others_reach_it():
    found = environment(training(injected(role="worker", index=3)))
    assert {name: value for name, value in found.items() if name.startswith("DEEPREC_EXT_")} == {
        "DEEPREC_EXT_AIMASTER": "ctr-aimaster.ads.svc:2223", "DEEPREC_EXT_JOB": "ads.ctr", "DEEPREC_EXT_ROLE": "worker",
        "DEEPREC_EXT_INDEX": "3", "DEEPREC_EXT_SLOTS": "8", "DEEPREC_EXT_CERTS": "/etc/deeprec-ext/certs",
        "DEEPREC_EXT_CHIEF": "chief", "DEEPREC_EXT_ADDRESS": "$(DEEPREC_EXT_POD_IP):2222",
        "DEEPREC_EXT_POD_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
    }  # fmt: skip


def test_tf_config_is_left_to_autoload():
    assert "TF_CONFIG" not in environment(training(injected()))


@pytest.mark.parametrize("ports, port", [
    ([{"name": "tfjob-port", "containerPort": 7000}], 7000),
    ([{"name": "board", "containerPort": 6006}], 2222),
    ([], 2222),
])  # fmt: skip
def test_the_port_is_the_one_named_tfjob_port(ports: Any, port: int):
    pod = injected(ordinary(container={"ports": ports}), cluster_domain="cluster.local")
    assert environment(training(pod))["DEEPREC_EXT_ADDRESS"] == f"$(DEEPREC_EXT_POD_IP):{port}"
    assert environment(training(pod))["DEEPREC_EXT_AIMASTER"] == "ctr-aimaster.ads.svc.cluster.local:2223"


@pytest.mark.parametrize("users, expected", [
    ([], {"PYTHONPATH": OURS}),
    ([{"name": "PYTHONPATH", "value": "/code:/lib"}], {"PYTHONPATH": f"/code:/lib:{OURS}"}),
    ([{"name": "PYTHONPATH", "value": ""}], {"PYTHONPATH": OURS}),
    ([{"name": "PYTHONPATH", "value": "/code::"}], {"PYTHONPATH": f"/code:{OURS}"}),  # empty would mean: here
    ([{"name": "HOME", "value": "/h"}, {"name": "PYTHONPATH", "value": "$(HOME)/x"}],
     {"HOME": "/h", "PYTHONPATH": f"$(HOME)/x:{OURS}"}),
    ([PATH_FROM_A_MAP],
     {"PYTHONPATH_IN_THE_POD": PATH_FROM_A_MAP["valueFrom"], "PYTHONPATH": f"$(PYTHONPATH_IN_THE_POD):{OURS}"}),
])  # fmt: skip
def test_the_users_python_path_comes_before_ours(users: Any, expected: dict[str, Any]):
    found = environment(training(injected(ordinary(container={"env": users}))))
    assert {name: found[name] for name in expected} == expected


def test_a_variable_stands_after_those_that_it_refers_to():
    pod = injected(ordinary(container={"env": [PATH_FROM_A_MAP]}))
    names = [entry["name"] for entry in training(pod)["env"]]
    assert names.index("PYTHONPATH_IN_THE_POD") < names.index("PYTHONPATH")
    assert names.index("DEEPREC_EXT_POD_IP") < names.index("DEEPREC_EXT_ADDRESS")


def test_defaults_give_way_to_the_users_values():
    found = environment(
        training(injected(ordinary(container={"env": [{"name": "TF_CPP_MIN_LOG_LEVEL", "value": "0"}]})))
    )
    assert (found["TF_CPP_MIN_LOG_LEVEL"], found["PYTHONUNBUFFERED"]) == ("0", "1")


@pytest.mark.parametrize("role", ["chief", "worker", "evaluator"])
def test_a_trainer_runs_the_users_command_and_has_the_certificate_of_its_role(role: str):
    pod = injected(role=role)
    assert training(pod)["command"] == ["python", "/train.py"]
    secret = next(volume["secret"] for volume in pod["spec"]["volumes"] if "secret" in volume)
    assert secret["secretName"] == "ctr-aimaster-certs"
    assert [item["key"] for item in secret["items"]] == ["ca.pem", f"{role}.pem", f"{role}-key.pem"]


def test_a_ps_keeps_the_users_command_too_and_autoload_makes_a_server_of_it():
    container = training(injected(ordinary("ps"), role="ps"))
    assert container["command"] == ["python", "/train.py"] and environment(container)["DEEPREC_EXT_ROLE"] == "ps"


def test_a_ps_has_its_own_certificate():
    volume = next(volume for volume in injected(role="ps")["spec"]["volumes"] if "secret" in volume)
    assert [item["path"] for item in volume["secret"]["items"]] == ["ca.pem", "ps.pem", "ps-key.pem"]


@pytest.mark.parametrize("users, seconds", [(None, 60), (10, 60), (600, 600)])
def test_a_ps_has_the_time_to_drain(users: int | None, seconds: int):
    spec = {} if users is None else {"terminationGracePeriodSeconds": users}
    pod = injected(ordinary("ps", spec=spec), role="ps")
    assert pod["spec"]["terminationGracePeriodSeconds"] == seconds
    assert injected(ordinary(spec=spec))["spec"].get("terminationGracePeriodSeconds") == users


def test_ps_of_a_job_keep_apart_beside_what_the_user_wants():
    node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": []}]}}
    other = {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}
    users = {"nodeAffinity": node, "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [other]}}
    affinity = injected(ordinary("ps", spec={"affinity": users}), role="ps")["spec"]["affinity"]
    assert affinity["nodeAffinity"] == node
    first, second = affinity["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert first == other
    assert second["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert second["podAffinityTerm"]["labelSelector"]["matchLabels"] == {
        "training.kubeflow.org/job-name": "ctr", "training.kubeflow.org/replica-type": "ps",
    }  # fmt: skip
    assert "affinity" not in injected()["spec"]


def test_pods_are_restarted_in_place_and_have_no_sidecar():
    pod = injected(ordinary(annotations={"sidecar.istio.io/inject": "true", "team": "ads"}))
    assert pod["spec"]["restartPolicy"] == "OnFailure"
    assert pod["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false", "team": "ads"}


def test_only_the_training_container_is_changed():
    sidecar = {"name": "logs", "image": "logs:1", "env": [{"name": "TF_CONFIG", "value": "mine"}]}
    pod = ordinary()
    pod["spec"]["containers"].insert(0, sidecar)
    assert injected(pod)["spec"]["containers"][0] == sidecar


def test_the_argument_is_not_changed():
    pod = ordinary("ps", spec={"affinity": {}, "volumes": []}, annotations={"a": "b"})
    before = copy.deepcopy(pod)
    injected(pod, role="ps", resources={"cpu": "1"})
    assert pod == before


def test_resources_replace_the_users_and_leave_others():
    users = {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    pod = injected(ordinary(container={"resources": users}), resources={"cpu": "2", "memory": "4Gi"})
    wanted = {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"}
    assert training(pod)["resources"] == {"requests": wanted, "limits": wanted}
    assert training(injected(ordinary(container={"resources": users})))["resources"] == users


def test_the_package_comes_from_our_image_into_a_volume():
    pod = injected(ordinary(spec={"initContainers": [{"name": "data", "image": "data:1"}]}))
    first, init = pod["spec"]["initContainers"]
    assert first["name"] == "data"
    assert (init["image"], init["command"]) == (
        "example/deeprec-ext:1", ["python", "-m", "deeprec_ext.inject", "/deeprec-ext"],
    )  # fmt: skip
    assert init["volumeMounts"] == [{"name": "deeprec-ext", "mountPath": "/deeprec-ext"}]
    assert {"name": "deeprec-ext", "mountPath": "/deeprec-ext", "readOnly": True} in training(pod)["volumeMounts"]


def test_with_package_image_the_init_container_is_the_users_image_as_the_training_sees_it():
    mounts = [{"name": "venv", "mountPath": "/venv"}]
    pod = injected(package="image", pod=ordinary(container={
        "command": ["/venv/bin/python", "t.py"], "volumeMounts": mounts, "imagePullPolicy": "Never",
        "env": [{"name": "PYTHONPATH", "value": "/code"}, {"name": "TF_CONFIG", "value": "{}"}],
        "envFrom": [{"configMapRef": {"name": "all"}}],
    }))  # fmt: skip
    init = pod["spec"]["initContainers"][0]
    assert init["image"] == "example/ctr:1"
    assert init["command"] == ["/venv/bin/python", "-m", "deeprec_ext.inject", "/deeprec-ext", "--keep-python-path"]
    assert environment(init) == {"PYTHONPATH": "/code"}
    assert init["volumeMounts"][:1] == mounts
    assert (init["imagePullPolicy"], init["envFrom"]) == ("Never", [{"configMapRef": {"name": "all"}}])


def test_the_init_container_asks_for_no_more_than_the_training_container():
    """A pod asks for the largest of its init containers or the sum of the others, and its quality of service counts all."""
    resources = {
        "requests": {"cpu": "2", "memory": "1Gi"},
        "limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"},
    }
    init = injected(ordinary(container={"resources": resources}))["spec"]["initContainers"][0]
    assert init["resources"] == {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    assert injected()["spec"]["initContainers"][0]["resources"] == {}


@pytest.mark.parametrize("pod, container, user", [
    ({}, {}, 65532), ({"runAsUser": 0}, {}, 65532), ({"runAsUser": 1000}, {}, 1000),
    ({"runAsUser": 1000}, {"runAsUser": 7}, 7), ({"runAsUser": 1000}, {"runAsUser": 0}, 65532),
])  # fmt: skip
@pytest.mark.parametrize("package", ["inject", "image"])
def test_the_init_container_is_restricted_whoever_runs_the_training(pod: Any, container: Any, user: int, package: str):
    made = injected(ordinary(spec={"securityContext": pod}, container={"securityContext": container}), package=package)
    assert violations(made["spec"], {"deeprec-ext"}) == []
    assert made["spec"]["initContainers"][0]["securityContext"]["runAsUser"] == user
    assert made["spec"]["securityContext"] == pod


@pytest.mark.parametrize("context, mode", [({}, 0o444), ({"runAsUser": 1000}, 0o444), ({"fsGroup": 5}, 0o440)])
def test_certificates_can_be_read_by_whoever_runs_in_the_container(context: Any, mode: int):
    pod = injected(ordinary(spec={"securityContext": context}))
    assert next(volume["secret"]["defaultMode"] for volume in pod["spec"]["volumes"] if "secret" in volume) == mode


def test_a_pod_that_is_restricted_stays_so():
    context = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    container = {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
    pod = ordinary("ps", spec={"securityContext": context}, container=container)
    assert violations(injected(pod, role="ps")["spec"]) == []


@pytest.mark.parametrize("package", ["inject", "image"])
@pytest.mark.parametrize("variables", [
    [], [{"name": "PYTHONPATH", "value": "/code"}, {"name": "A", "value": "1"}], [PATH_FROM_A_MAP],
])  # fmt: skip
@pytest.mark.parametrize("role", ["ps", "worker"])
def test_injecting_twice_is_the_same_as_once(package: str, variables: Any, role: str):
    once = injected(ordinary(role, container={"env": variables}), role=role, package=package)
    assert injected(once, role=role, package=package) == once


@pytest.mark.parametrize("package", ["inject", "image"])
@pytest.mark.parametrize("role", ["ps", "chief", "worker", "evaluator"])
def test_the_pod_is_as_the_api_wants_it(role: str, package: str):
    assert errors(injected(role=role, package=package, resources={"cpu": "500m", "memory": "2Gi"})) == []


def test_the_name_of_a_pod_can_be_resolved_before_it_is_ready():
    service = {"spec": {"clusterIP": "None", "selector": {"a": "b"}}}
    made = elastic_service(service)
    assert made == {"spec": {"clusterIP": "None", "selector": {"a": "b"}, "publishNotReadyAddresses": True}}
    assert "publishNotReadyAddresses" not in service["spec"]


def test_a_pod_without_a_training_container_is_refused():
    pod = ordinary()
    pod["spec"]["containers"][0]["name"] = "main"
    with pytest.raises(UsageError, match="ctr-worker-0: no container is named tensorflow"):
        injected(pod)
