"""The checks of manifests find what they are there for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.tfjob_manifests.pods import injected, ordinary
from tests.unit.tfjob_manifests.schema import errors, pod_spec, violations


def first(pod: Any) -> Any:
    return pod["spec"]["containers"][0]


@pytest.mark.parametrize("spoil, path", [
    (lambda pod: pod.update(apiVersion="v2"), "kind Pod of v2"),
    (lambda pod: pod.update(specs={}), "Pod.specs: there is no such field"),
    (lambda pod: first(pod).update(comand=[]), "Pod.spec.containers[0].comand: there is no such field"),
    (lambda pod: first(pod).update(command="python"), "Pod.spec.containers[0].command: must be a list"),
    (lambda pod: first(pod).pop("name"), "Pod.spec.containers[0].name: is required"),
    (lambda pod: first(pod)["ports"][0].update(containerPort="2222"), "containerPort: must be of type int"),
    (lambda pod: first(pod)["env"].append({"name": "A", "value": 1}), "env[1].value: must be of type str"),
    (lambda pod: first(pod)["env"].append({"name": "TF_CONFIG"}), "env: 'TF_CONFIG' is there twice"),
    (lambda pod: first(pod).update(resources={"limits": {"memory": "4 GB"}}), "limits[memory]: '4 GB' is no quantity"),
    (lambda pod: pod["metadata"].update(name="Ctr_1"), "Pod.metadata.name: 'Ctr_1' is no name"),
    (lambda pod: pod["metadata"]["labels"].update(a="b/c"), "labels[a]: 'b/c' cannot be the value of a label"),
    (lambda pod: pod["spec"].update(nodeName=None), "Pod.spec.nodeName: is null"),
    (lambda pod: pod["spec"].update(hostNetwork=1), "Pod.spec.hostNetwork: must be of type bool"),
    (lambda pod: pod["spec"].update(priority=True), "Pod.spec.priority: must be of type int"),
])  # fmt: skip
def test_a_mistake_is_found_and_its_place_named(spoil: Callable[[Any], None], path: str):
    pod = ordinary()
    assert errors(pod) == []
    spoil(pod)
    assert path in "\n".join(errors(pod))


RESTRICTED = {
    "containers": [{
        "name": "a", "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }],
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
}  # fmt: skip


@pytest.mark.parametrize("spoil, broken", [
    (lambda spec: spec.update(hostNetwork=True), "hostNetwork"),
    (lambda spec: spec.update(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), "volume v"),
    (lambda spec: spec["securityContext"].pop("runAsNonRoot"), "a: runs as root"),
    (lambda spec: spec["securityContext"].update(runAsUser=0), "a: runs as root"),
    (lambda spec: spec["securityContext"].pop("seccompProfile"), "a: has no seccomp profile"),
    (lambda spec: spec["securityContext"].update(sysctls=[{"name": "a", "value": "b"}]), "sysctls"),
    (lambda spec: spec["containers"][0]["securityContext"].pop("capabilities"), "a: keeps capabilities"),
    (lambda spec: spec["containers"][0]["securityContext"]["capabilities"].update(add=["SYS_ADMIN"]), "a: adds capabilities"),
    (lambda spec: spec["containers"][0]["securityContext"].pop("allowPrivilegeEscalation"), "a: may gain privileges"),
    (lambda spec: spec["containers"][0].update(ports=[{"hostPort": 1}]), "a: uses a port of the node"),
    (lambda spec: spec["containers"][0]["securityContext"].update(procMount="Unmasked"), "a: has /proc unmasked"),
    (lambda spec: spec.update(initContainers=[{"name": "i"}]), "i: keeps capabilities"),
])  # fmt: skip
def test_a_breach_of_the_restricted_profile_is_found(spoil: Callable[[Any], None], broken: str):
    spec = copy.deepcopy(RESTRICTED)
    assert violations(spec) == []
    spoil(spec)
    assert broken in violations(spec)


def test_pods_are_found_in_what_makes_them():
    pod = injected()
    assert pod_spec(pod) is pod["spec"]
    assert pod_spec({"kind": "Deployment", "spec": {"template": {"spec": RESTRICTED}}}) is RESTRICTED
    assert pod_spec({"kind": "Service", "spec": {}}) is None
