"""What a job says when its pods cannot be made or cannot start, what protects it, and an operator with a Role only."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.kube import TFJOB, Operator, as_account, conditions_of, pods_of, until
from tests.unit.tfjob_manifests.building import CONFINED, MANIFESTS, kustomized
from tfjob.api.client import Api
from tfjob.model.kinds import EVENTS, PODS, TFJOBS, Manifest, Resource, resource_of

pytestmark = [pytest.mark.usefixtures("crd"), pytest.mark.slow]
Conversation = Callable[[Api, str], Awaitable[None]]
POLICIES = Resource("networkpolicies", group="networking.k8s.io")


def job(**annotations: str) -> Manifest:
    made = copy.deepcopy(TFJOB)
    made["metadata"]["annotations"] = {f"aimaster.deeprec.io/{key}": value for key, value in annotations.items()}
    for type_, count in (("PS", 1), ("Worker", 1)):
        made["spec"]["tfReplicaSpecs"][type_]["replicas"] = count
    return made


async def told(api: Api, namespace: str, reason: str) -> list[Manifest]:
    """Warnings about the job."""

    async def there() -> list[Manifest]:
        found, _ = await api.list_all(EVENTS, namespace, fields="involvedObject.name=job,involvedObject.kind=TFJob")
        return [one for one in found if one["reason"] == reason and one["type"] == "Warning"]

    return await until(api, there, f"the event {reason}")


def test_pods_that_the_server_refuses_are_told_and_the_job_is_created(
    operators: Any, play: Callable[[Conversation], None]
) -> None:
    operators()

    async def scenario(api: Api, namespace: str) -> None:
        body = job()
        container = body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
        container["volumeMounts"] = [{"name": "of-no-volume", "mountPath": "/data"}]
        await api.create(TFJOBS, namespace, body)
        found = await told(api, namespace, "FailedCreatePod")
        assert "of-no-volume" in found[0]["message"] and "job-worker-0" in found[0]["message"]
        assert "Created" in await conditions_of(api, namespace, "job")
        assert set(await pods_of(api, namespace, "job")) == {"job-ps-0", "job-chief-0"}, "the others are made"

    play(scenario)


def test_pods_that_cannot_start_are_told(operators: Any, play: Callable[[Conversation], None]) -> None:
    operators()

    async def scenario(api: Api, namespace: str) -> None:
        await api.create(TFJOBS, namespace, job())
        await until(api, lambda: pods_of(api, namespace, "job"), "the pods")
        waiting = {"reason": "ErrImagePull", "message": "no such image"}
        status = {
            "name": "tensorflow", "state": {"waiting": waiting}, "ready": False, "restartCount": 0, "image": "", "imageID": "",
        }  # fmt: skip
        await until(api, lambda: _has(api, namespace, "job-worker-0"), "worker 0")
        await api.patch(PODS, namespace, "job-worker-0", {"status": {"containerStatuses": [status]}}, "status")
        found = await told(api, namespace, "ErrImagePull")
        assert "job-worker-0" in found[0]["message"] and "no such image" in found[0]["message"]

    play(scenario)


async def _has(api: Api, namespace: str, name: str) -> bool:
    return name in await pods_of(api, namespace, "job")


def test_an_elastic_job_is_reached_by_its_own_pods_only(operators: Any, play: Callable[[Conversation], None]) -> None:
    """As an object: the network of these tests enforces no policies."""
    operators("--image", "deeprec-ext:1")

    async def scenario(api: Api, namespace: str) -> None:
        await api.create(TFJOBS, namespace, job(enabled="true"))

        async def policies() -> dict[str, Manifest]:
            found, _ = await api.list_all(POLICIES, namespace)
            return {one["metadata"]["name"]: one["spec"] for one in found} if len(found) == 2 else {}

        found = await until(api, policies, "two policies")
        own = [{"podSelector": {"matchLabels": {"training.kubeflow.org/job-name": "job"}}}]
        for name in ("job", "job-aimaster"):
            assert [rule["from"] for rule in found[name]["ingress"]] == [own] and found[name]["policyTypes"] == [
                "Ingress"
            ]
        assert {port["port"] for port in found["job-aimaster"]["ingress"][0]["ports"]} == {2223, 8000}

    play(scenario)


def test_an_operator_with_a_role_in_one_namespace_runs_its_jobs(
    kubeconfig: str, namespace: str, play: Callable[[Conversation], None], tmp_path: Path
) -> None:
    """With the rights of `overlays/one-namespace`, and no others."""

    async def install(api: Api, namespace: str) -> None:
        for (kind, _), one in kustomized(MANIFESTS / "overlays" / CONFINED).items():
            if kind in ("Role", "RoleBinding", "ServiceAccount"):
                body = yaml.safe_load(
                    yaml.safe_dump(one).replace("namespace: deeprec-ext\n", f"namespace: {namespace}\n")
                )
                await api.create(resource_of(body), namespace, body)

    play(install)
    confined = as_account(kubeconfig, namespace, "deeprec-ext-operator", tmp_path)
    words = ("--namespace", namespace, "--lease-namespace", namespace, "--image", "deeprec-ext:1")
    operator = Operator(confined, tmp_path / "operator.log", *words)
    try:

        async def scenario(api: Api, namespace: str) -> None:
            await api.create(TFJOBS, namespace, job(enabled="true"))
            await until(
                api, lambda: _has(api, namespace, "job-aimaster"), f"the AIMaster\n{operator.log.read_text()[-2000:]}"
            )
            await until(api, lambda: conditions_of(api, namespace, "job"), "a condition")

        play(scenario)
    finally:
        assert operator.stop() == 0
    assert "forbidden" not in operator.log.read_text().lower()
