"""What is wrong in a pod template is told before anything is made of it, with its place."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from deeprec_ext.cli.cluster.documents import check as check_document
from tests.unit.tfjob.world import manifest
from tests.unit.tfjob.wrong_templates import CLIENT_ONLY, ISSUE, KEYS, TYPES, Wrong, changed
from tests.unit.tfjob_manifests.pods import tfjob
from tfjob.model import templates
from tfjob.model.spec import InvalidError, TFJob

ALL = (*ISSUE, *TYPES, *CLIENT_ONLY, *KEYS)
WHERE = "spec.tfReplicaSpecs.Worker.template"


def test_the_table_has_as_many_rows_as_it_is_said_to_have() -> None:
    assert len(ISSUE) == 6 and len(TYPES) >= 50
    assert len({wrong.name for wrong in ALL}) == len(ALL)


@pytest.mark.parametrize("wrong", ALL, ids=lambda wrong: wrong.name)
def test_a_wrong_template_is_refused_by_submit_with_its_place(wrong: Wrong) -> None:
    check_document(manifest(), None, "default")
    with pytest.raises(InvalidError) as caught:
        check_document(changed(manifest(), wrong), None, "default")
    assert str(caught.value).startswith(WHERE) and wrong.says in str(caught.value)


def test_all_mistakes_are_told_at_once() -> None:
    job = manifest()
    for wrong in (ISSUE[0], TYPES[1], KEYS[0]):
        job = changed(job, wrong)
    with pytest.raises(InvalidError) as caught:
        templates.check(job)
    assert str(caught.value).count(WHERE) == 3


def test_what_a_pod_may_have_passes() -> None:
    template: dict[str, Any] = {
        "metadata": {"creationTimestamp": None, "labels": {"a": "b"}, "annotations": None, "finalizers": ["a.b/c"]},
        "spec": {
            "containers": [{
                "name": "tensorflow", "image": "a:1", "command": ["python"], "args": None,
                "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                "resources": {"requests": {"cpu": 1, "memory": "2Gi"}, "limits": {"nvidia.com/gpu": "1", "cpu": "1500m"}},
                "ports": [{"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}],
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}}, "volumeMounts": [{"name": "d", "mountPath": "/d"}],
            }],
            "initContainers": [{"name": "i", "image": "b", "restartPolicy": "Always"}],
            "volumes": [
                {"name": "d", "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
                {"name": "e", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 600}}]}},
            ],
            "tolerations": [{"operator": "Exists"}], "nodeSelector": {"gpu": "true"}, "hostUsers": False,
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}}},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}],
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, "fsGroup": 100},
        },
    }  # fmt: skip
    job = manifest()
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"] = template
    before = copy.deepcopy(job)
    templates.check(job)
    templates.check(tfjob())
    assert job == before and TFJob.parse(job)


@pytest.mark.parametrize("odd", [
    {}, {"spec": None}, {"spec": []}, {"spec": {"tfReplicaSpecs": []}}, {"spec": {"tfReplicaSpecs": {"Worker": None}}},
    {"spec": {"tfReplicaSpecs": {"Worker": {"template": None}}}},
])  # fmt: skip
def test_what_is_no_tfjob_is_not_for_this_check_to_say(odd: dict[str, Any]) -> None:
    templates.check(odd)
