"""The ET operator's kinds on a real API server: what its users create and read. AIMaster and kubelet are played."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import yaml

from tests.cluster.kube import CRDS, ROOT, _established, set_phase, talk, until  # fmt: skip
from tfjob.api.client import Api, ApiError, ConflictError
from tfjob.model.kinds import PODS, SCALE_INS, SCALE_OUTS, TFJOBS, TRAINING_JOBS, Manifest, Resource
from tfjob.model.names import SCALED_TO_ANNOTATION
from tfjob.model.spec import TFJob
from tfjob.pods import replica

pytestmark = [pytest.mark.usefixtures("crd"), pytest.mark.slow]
NAME = "elastic-training"
[JOB, OUT, IN] = list(yaml.safe_load_all((ROOT / "examples" / "et_operator" / "job.yaml").read_text()))


async def install(api: Api) -> None:
    for body in yaml.safe_load_all((ROOT / "tfjob" / "manifests" / "et" / "crds.yaml").read_text()):
        with contextlib.suppress(ConflictError):
            await api.create(CRDS, None, body)
        await until(api, lambda name=body["metadata"]["name"]: _established(api, name), "the kind is established")  # type: ignore[misc]


async def phase_is(api: Api, namespace: str, resource: Resource, name: str, phase: str) -> Manifest:
    async def so() -> Manifest | None:
        found = await api.get(resource, namespace, name)
        return found if (found.get("status") or {}).get("phase") == phase else None

    found = await until(api, so, f"{resource.plural} {name} is {phase}")
    assert found is not None
    return found


async def aimaster_makes(api: Api, namespace: str, *indices: int) -> None:
    """The workers that are wanted, as the AIMaster would, and its note of them."""
    tfjob = await api.get(TFJOBS, namespace, NAME)
    there = {one["metadata"]["name"] for one in (await api.list_all(PODS, namespace))[0]}
    for index in indices:
        pod = replica.pod(TFJob.parse(tfjob), "Worker", index)
        if pod["metadata"]["name"] not in there:
            await api.create(PODS, namespace, pod)
            await set_phase(api, namespace, pod["metadata"]["name"], "Running")
    for name in there - {f"{NAME}-worker-{index}" for index in indices} - {f"{NAME}-aimaster"}:
        await api.delete(PODS, namespace, name, grace_seconds=0)
    note = {SCALED_TO_ANNOTATION: json.dumps({"Worker": len(indices)})}
    await api.patch(TFJOBS, namespace, NAME, {"metadata": {"annotations": note}})


def test_a_training_job_is_run_scaled_out_and_in_and_kubectl_scale_finds_its_tfjob(
    operators: Any, play: Callable[[Callable[[Api, str], Awaitable[None]]], None], kubeconfig: str
) -> None:
    talk(kubeconfig, install)
    operators("--no-leader-election", "--et", "--image", "registry.example/deeprec-ext:1")

    async def scenario(api: Api, namespace: str) -> None:
        await api.create(TRAINING_JOBS, namespace, JOB)
        await phase_is(api, namespace, TRAINING_JOBS, NAME, "Created")

        async def aimaster() -> bool:
            return any(
                one["metadata"]["name"] == f"{NAME}-aimaster" for one in (await api.list_all(PODS, namespace))[0]
            )

        await until(api, aimaster, "the TFJob's AIMaster")
        await aimaster_makes(api, namespace, 0, 1)
        running = await phase_is(api, namespace, TRAINING_JOBS, NAME, "Running")
        assert running["status"]["replicaStatuses"]["Launcher"] == {"active": 1}
        made = await api.create(SCALE_OUTS, namespace, OUT)
        name = made["metadata"]["name"]
        begun = await phase_is(api, namespace, SCALE_OUTS, name, "Scaling")
        assert begun["status"]["addPods"] == [f"{NAME}-worker-2", f"{NAME}-worker-3"]

        async def scaled(count: int, key: str) -> bool:
            scale = await api.request("GET", TFJOBS.path(namespace, NAME, "scale"))
            return scale[key]["replicas"] == count

        await until(api, lambda: scaled(4, "spec"), "4 replicas by the subresource scale")
        await aimaster_makes(api, namespace, 0, 1, 2, 3)
        await phase_is(api, namespace, SCALE_OUTS, name, "ScaleSucceeded")

        async def current() -> bool:
            status = (await api.get(TRAINING_JOBS, namespace, NAME))["status"]
            return (status["phase"], status["currentWorkers"]) == (
                "Running",
                [f"{NAME}-worker-{index}" for index in range(4)],
            )

        await until(api, current, "the TrainingJob runs with 4 workers")
        await until(api, lambda: scaled(4, "status"), "4 workers that run by the subresource scale")

        name = (await api.create(SCALE_INS, namespace, IN))["metadata"]["name"]
        await phase_is(api, namespace, SCALE_INS, name, "Scaling")
        await until(api, lambda: scaled(3, "spec"), "the AIMaster is asked")
        await aimaster_makes(api, namespace, 0, 2, 3)
        await phase_is(api, namespace, SCALE_INS, name, "ScaleSucceeded")
        scale = await api.request("GET", TFJOBS.path(namespace, NAME, "scale"))
        assert "replica-type=worker" in scale["status"]["selector"]
        scale["spec"]["replicas"] = 2
        scale["metadata"].pop("resourceVersion", None)
        await api.request("PUT", TFJOBS.path(namespace, NAME, "scale"), scale)
        found = await api.get(TFJOBS, namespace, NAME)
        assert found["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 2, "as kubectl scale does it"
        with pytest.raises(ApiError, match=r"toAdd\.count"):
            await api.create(SCALE_OUTS, namespace, {**OUT, "spec": {**OUT["spec"], "toAdd": {"count": 0}}})

    play(scenario)
