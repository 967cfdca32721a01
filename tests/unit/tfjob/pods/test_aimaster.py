"""What the operator makes for an elastic job."""

from __future__ import annotations

import argparse
import base64
import json
import os
from typing import Any
from unittest import mock

import pytest

from deeprec_ext.aimaster.main import parse as parse_command
from deeprec_ext.autoscaler.loop.observing import limits_of
from deeprec_ext.options import JobSpec
from tests.unit.tfjob_manifests.pods import tfjob
from tests.unit.tfjob_manifests.schema import errors, pod_spec, violations
from tfjob.model import annotations
from tfjob.model.spec import InvalidError, TFJob
from tfjob.pods import aimaster, certificates

IMAGE = "example/deeprec-ext:1"
FILES = {"ca.pem": b"ca", "aimaster.pem": b"certificate", "aimaster-key.pem": b"key"}


def made(options: aimaster.Options | None = None, /, **job: Any) -> dict[str, Any]:
    """By kind, policies by name."""
    parsed = TFJob.parse(tfjob(**job))
    elastic, warnings = annotations.parse(parsed)
    assert elastic and not warnings
    found = aimaster.manifests(parsed, elastic, FILES, options or aimaster.Options(image=IMAGE))
    return {one["kind"] if one["kind"] != "NetworkPolicy" else one["metadata"]["name"]: one for one in found}


def command(**job: Any) -> list[str]:
    words: list[str] = made(**job)["Pod"]["spec"]["containers"][0]["command"]
    return words


def told(pod: dict[str, Any]) -> tuple[argparse.Namespace, JobSpec]:
    """As the AIMaster in it reads it."""
    container = pod["spec"]["containers"][0]
    with mock.patch.dict(os.environ, {one["name"]: one["value"] for one in container["env"]}):
        return parse_command(container["command"][3:])


def flags(words: list[str]) -> dict[str, str]:
    return {words[at]: words[at + 1] for at in range(len(words) - 1) if words[at].startswith("--")}


@pytest.mark.parametrize("job", [
    {}, {"PS": 1, "Worker": 1}, {"PS": 3, "Master": 1, "Evaluator": 1},
    {"annotations": {"aimaster.deeprec.io/state-volume": "disk", "aimaster.deeprec.io/backup": "peer,disk=s3://b/x"}},
])  # fmt: skip
def test_every_manifest_is_as_the_api_wants_it_restricted_and_owned_by_the_job(job: Any):
    for manifest in made(**job).values():
        assert errors(manifest) == []
        metadata = manifest["metadata"]
        assert [owner["uid"] for owner in metadata["ownerReferences"]] == ["0123456789ab-cdef"]
        assert (metadata["namespace"], metadata["labels"]["training.kubeflow.org/job-name"]) == ("ads", "ctr")
        spec = pod_spec(manifest)
        assert spec is None or violations(spec) == []


@pytest.mark.parametrize(
    ("job", "workers"), [({"Chief": 1, "Worker": 2}, 2), ({"Worker": 3}, 2), ({"Master": 1, "Worker": 1}, 1)]
)
def test_of_a_job_without_ps_there_is_no_budget_and_the_aimaster_knows_of_no_slots(job: Any, workers: int):
    found = made(**job, annotations={"aimaster.deeprec.io/strategy": "allreduce"})
    assert "PodDisruptionBudget" not in found
    _, spec = told(found["Pod"])
    assert spec.sums and (spec.ps, spec.slots, spec.workers, spec.min_workers) == (0, 0, workers, 0)


def test_what_the_pod_needs_is_made_before_it():
    assert list(made()) == [
        "ServiceAccount", "Role", "RoleBinding", "Secret", "ctr", "ctr-aimaster", "PodDisruptionBudget", "Service", "Pod",
    ]  # fmt: skip


def test_budgets_and_policies_can_be_left_out():
    found = made(aimaster.Options(image=IMAGE, budgets=False, network_policies=False))
    assert list(found) == ["ServiceAccount", "Role", "RoleBinding", "Secret", "Service", "Pod"]


# ------------------------------------------------------------------------------------------------------------- rights


def test_the_aimaster_may_do_this_and_nothing_else():
    """Verb by verb: a review of the Role starts here."""
    rules = {
        (rule["apiGroups"][0], rule["resources"][0], tuple(rule.get("resourceNames", ()))): " ".join(rule["verbs"])
        for rule in made()["Role"]["rules"]
    }
    assert rules == {
        ("", "pods", ()): "create get list watch delete",
        ("", "services", ()): "create get list delete",
        ("kubeflow.org", "tfjobs", ("ctr",)): "get list watch patch",
        ("kubeflow.org", "tfjobs/finalizers", ("ctr",)): "update",
        ("", "configmaps", ()): "create",
        ("", "configmaps", ("ctr-aimaster-state",)): "get update",
        ("", "events", ()): "create",
    }


def test_without_an_operator_the_config_map_stands_where_the_tfjob_stood():
    found = made(aimaster.Options(image=IMAGE, budgets=False, operator=False))
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "ctr-tfjob", "uid": "0123456789ab-cdef"}
    for manifest in found.values():
        assert errors(manifest) == []
        assert manifest["metadata"]["ownerReferences"] == [{**owner, "controller": True, "blockOwnerDeletion": True}]
    rules = {
        (rule["resources"][0], tuple(rule.get("resourceNames", ()))): rule["verbs"] for rule in found["Role"]["rules"]
    }
    assert rules["configmaps", ("ctr-tfjob",)] == ["get"]
    assert rules["configmaps/finalizers", ("ctr-tfjob",)] == ["update"]
    assert not [resource for resource, _ in rules if resource.startswith("tfjobs")]
    options, spec = told(found["Pod"])
    assert not spec.operator and options.tfjob == "ads/ctr"


def test_the_config_map_of_a_job_without_an_operator_has_the_whole_manifest():
    job = TFJob.parse(tfjob())
    found = aimaster.config_map(job, tfjob())
    assert json.loads(found["data"]["tfjob.json"]) == tfjob()
    assert (found["metadata"]["name"], found["metadata"]["namespace"]) == ("ctr-tfjob", "ads")


def test_beside_kubeflow_it_makes_no_pods_and_keeps_their_sizes():
    given = {"aimaster.deeprec.io/max-ps-memory": "8Gi", "aimaster.deeprec.io/total-memory": "64Gi"}
    found = made(aimaster.Options(image=IMAGE, beside_kubeflow=True), annotations=given)
    rules = found["Role"]["rules"]
    assert [rule["verbs"] for rule in rules if rule["resources"] == ["pods"]] == [["get", "list", "watch", "delete"]]
    assert not [rule for rule in rules if rule["resources"] == ["services"]]
    alone = made(annotations=given)["Role"]["rules"]
    assert [rule for rule in rules if rule not in alone] == [rule for rule in rules if rule["resources"] == ["pods"]]
    assert all(errors(manifest) == [] for manifest in found.values())
    _, spec = told(found["Pod"])
    assert not spec.own_pods and spec.max_ps_memory_bytes == 0 and spec.total_memory_bytes == 64 << 30
    assert not limits_of(spec).resizable, "the autoscaler proposes no other size of pods"
    _, spec = told(made(annotations=given)["Pod"])
    assert spec.own_pods and limits_of(spec).resizable


def test_the_role_is_bound_to_the_aimasters_own_account_which_only_its_pod_uses():
    found = made()
    assert found["RoleBinding"]["roleRef"]["name"] == found["Role"]["metadata"]["name"] == "ctr-aimaster"
    assert found["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": "ctr-aimaster", "namespace": "ads"}]
    assert found["ServiceAccount"]["automountServiceAccountToken"] is False
    spec = found["Pod"]["spec"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("ctr-aimaster", True)


# ------------------------------------------------------------------------------------------------------- certificates


def test_the_pod_mounts_its_own_certificates_and_the_secret_has_all():
    found = made()
    assert base64.b64decode(found["Secret"]["data"]["aimaster.pem"]) == b"certificate"
    volume = next(volume["secret"] for volume in found["Pod"]["spec"]["volumes"] if "secret" in volume)
    assert volume["secretName"] == found["Secret"]["metadata"]["name"] == "ctr-aimaster-certs"
    assert [item["key"] for item in volume["items"]] == [
        "ca.pem",
        "aimaster.pem",
        "aimaster-key.pem",
        "admin.pem",  # for commands that are run in the pod
        "admin-key.pem",
        "dashboard.token",
    ]
    assert volume["defaultMode"] == 0o440
    assert found["Pod"]["spec"]["securityContext"]["fsGroup"]


def test_issued_files_are_all_that_any_role_mounts():
    files = certificates.issue("ads", "ctr")
    for role in ("ps", "trainer", "aimaster", "admin"):
        assert set(certificates.role_files(role)) <= set(files)
    assert "ca-key.pem" in files
    assert b"BEGIN CERTIFICATE" in files["ca.pem"]


# ------------------------------------------------------------------------------------------------- service and network


def test_the_service_finds_the_pod_and_the_ports_its_container():
    found = made()
    service, spec = found["Service"]["spec"], found["Pod"]["spec"]
    assert service["selector"].items() <= found["Pod"]["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in spec["containers"][0]["ports"]}
    assert {port["name"]: port["port"] for port in service["ports"]} == ports == {"grpc": 2223, "http": 8000}
    assert {port["targetPort"] for port in service["ports"]} == set(ports)
    assert "clusterIP" not in service


def test_a_controller_does_not_take_the_aimaster_for_a_replica():
    labels = made()["Pod"]["metadata"]["labels"]
    assert not {"training.kubeflow.org/replica-type", "training.kubeflow.org/operator-name"} & set(labels)


def test_only_pods_of_the_job_reach_tensorflows_port_and_the_aimasters():
    board = {"ports": [{"name": "tfjob-port", "containerPort": 2222}, {"name": "board", "containerPort": 6006}]}
    found = made(container=board)
    own = [{"podSelector": {"matchLabels": {"training.kubeflow.org/job-name": "ctr"}}}]
    training = found["ctr"]["spec"]
    assert training["podSelector"]["matchExpressions"] == [
        {"key": "training.kubeflow.org/replica-type", "operator": "Exists"}
    ]
    assert training["ingress"] == [{"from": own}]
    master = found["ctr-aimaster"]["spec"]
    assert master["podSelector"]["matchLabels"].items() <= found["Pod"]["metadata"]["labels"].items()
    assert master["ingress"] == [{"from": own, "ports": [{"protocol": "TCP", "port": port} for port in (2223, 8000)]}]


def test_namespaces_that_are_named_reach_the_page_and_what_containers_serve_and_no_more():
    board = {"ports": [{"name": "tfjob-port", "containerPort": 2222}, {"name": "board", "containerPort": 6006}]}
    found = made(container=board, annotations={"aimaster.deeprec.io/reachable-from": "monitoring, ingress"})
    namespaces = [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
        for name in ("monitoring", "ingress")
    ]
    for name, port in (("ctr", 6006), ("ctr-aimaster", 8000)):
        assert found[name]["spec"]["ingress"][1:] == [
            {"from": namespaces, "ports": [{"protocol": "TCP", "port": port}]}
        ]


def test_without_ports_of_its_own_nothing_of_the_job_is_open():
    """An ingress rule without `from` and `ports` would open everything."""
    assert all(rule.get("from") for rule in made()["ctr"]["spec"]["ingress"])


@pytest.mark.parametrize("ps, least", [(1, 0), (2, 1), (4, 3)])
def test_all_but_one_ps_stay_in_a_drain(ps: int, least: int):
    spec = made(PS=ps, Chief=1)["PodDisruptionBudget"]["spec"]
    assert spec["minAvailable"] == least
    assert spec["selector"]["matchLabels"]["training.kubeflow.org/replica-type"] == "ps"


# ------------------------------------------------------------------------------------------------------------ command


def test_the_command_says_which_job_and_where():
    found = flags(command())
    assert {name: found[f"--{name}"] for name in ("tfjob", "listen", "http", "certs", "workdir")} == {
        "tfjob": "ads/ctr", "listen": "[::]:2223", "http": "[::]:8000",
        "certs": "/etc/deeprec-ext/certs", "workdir": "/var/lib/deeprec-ext/ctr-01234567",
    }  # fmt: skip
    _, spec = told(made()["Pod"])
    assert (spec.name, spec.package_image) == ("ads.ctr", IMAGE)


def test_the_command_is_one_that_the_aimaster_understands():
    prefix = "aimaster.deeprec.io/"
    found = made(
        PS=2, Chief=1, Worker=3, Evaluator=1,
        container={"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "2Gi"}}},
        annotations={
            prefix + "max-ps": "4", prefix + "slots": "16", prefix + "min-workers": "1", prefix + "max-workers": "9",
            prefix + "backup": "peer,disk=/data/backup", prefix + "autoscale": "true", prefix + "deadline": "2h",
            prefix + "max-ps-memory": "8Gi", prefix + "max-worker-cpu": "1500m", prefix + "total-cpu": "64",
        },
    )  # fmt: skip
    options, spec = told(found["Pod"])
    assert options.tfjob == "ads/ctr" and spec.operator and not spec.gang_scheduler
    assert (spec.ps, spec.workers, spec.evaluator, spec.slots) == (2, 3, True, 16)
    assert (spec.min_ps, spec.max_ps, spec.min_workers, spec.max_workers) == (1, 4, 1, 9)
    assert (spec.ps_cpu, spec.ps_memory_bytes, spec.worker_cpu) == (0.5, 2 << 30, 0.5)
    assert (spec.max_ps_memory_bytes, spec.max_worker_cpu, spec.total_cpu) == (8 << 30, 1.5, 64)
    settings = spec.settings
    assert (settings.autoscale, settings.objective, settings.deadline_seconds) == (True, "deadline", 7200)
    assert (settings.peer_backup, settings.disk_backup) == ("on", "/data/backup")


def test_the_aimaster_is_told_the_gang_scheduler_of_its_pods():
    pod = made(aimaster.Options(image=IMAGE, scheduler="volcano"))["Pod"]
    _, spec = told(pod)
    assert spec.gang_scheduler == "volcano"
    assert "schedulerName" not in pod["spec"], "the AIMaster itself is none of the gang"


def test_worker_zero_of_a_job_without_chief_is_the_chief():
    assert told(made(PS=1, Worker=3)["Pod"])[1].workers == 2


def test_a_request_that_is_no_quantity_is_named():
    with pytest.raises(InvalidError, match=r"spec\.tfReplicaSpecs\.PS\.template.*resources.*'two' is no quantity"):
        command(PS=1, Chief=1, container={"resources": {"limits": {"cpu": "two"}}})


# ---------------------------------------------------------------------------------------------------------------- pod


@pytest.mark.parametrize("value, volume", [
    (None, {"name": "state", "emptyDir": {}}),
    ("disk", {"name": "state", "persistentVolumeClaim": {"claimName": "disk"}}),
])  # fmt: skip
def test_state_is_kept_on_the_claim_if_there_is_one(value: str | None, volume: dict[str, Any]):
    spec = made(annotations={"aimaster.deeprec.io/state-volume": value} if value else {})["Pod"]["spec"]
    assert volume in spec["volumes"]
    assert flags(spec["containers"][0]["command"])["--workdir"].startswith(
        spec["containers"][0]["volumeMounts"][1]["mountPath"]
    )


def test_it_is_restarted_in_place_and_its_last_word_is_its_own():
    """A message that Kubernetes makes up from a log would look like the AIMaster's verdict on the job."""
    spec = made()["Pod"]["spec"]
    assert spec["restartPolicy"] == "OnFailure"
    assert "terminationMessagePolicy" not in spec["containers"][0]


def test_an_overlay_is_laid_over_the_pod():
    overlay = {"spec": {
        "nodeSelector": {"pool": "masters"}, "imagePullSecrets": [{"name": "pull"}],
        "containers": [{"name": "aimaster", "env": [{"name": "A", "value": "1"}]}],
    }}  # fmt: skip
    pod = made(aimaster.Options(image=IMAGE, overlay=overlay))["Pod"]
    assert errors(pod) == []
    assert pod["spec"]["nodeSelector"] == {"pool": "masters"}
    assert pod["spec"]["containers"][0]["env"][1:] == [{"name": "A", "value": "1"}], "beside the specification"
    assert pod["spec"]["containers"][0]["image"] == IMAGE
