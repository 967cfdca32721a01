"""Kubeflow's Python SDK (`kubeflow-training` 1.9) on our jobs, unchanged, against a real API server.

As in `test_operator` there is no node: what kubelet would say is written into the pods' status. Logs need one (`make e2e`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.cluster.kube import TFJOB, conditions_of, pods_of, set_phase, until
from tfjob.api.client import Api

sdk = pytest.importorskip("kubeflow.training", reason="the SDK is not installed: pip install kubeflow-training")

pytestmark = [pytest.mark.usefixtures("crd"), pytest.mark.slow]
Play = Callable[[Callable[[Api, str], Awaitable[None]]], None]
LABELS = {"PS": "ps", "Worker": "worker"}


def as_model(name: str) -> Any:
    """The job as users of the SDK build it."""
    from kubernetes import client

    specs = {}
    for type_ in LABELS:
        spec = TFJOB["spec"]["tfReplicaSpecs"][type_]
        (container,) = spec["template"]["spec"]["containers"]
        template = client.V1PodTemplateSpec(
            spec=client.V1PodSpec(containers=[client.V1Container(name="tensorflow", image=container["image"])])
        )
        specs[type_] = sdk.KubeflowOrgV1ReplicaSpec(replicas=1, restart_policy="Never", template=template)
    return sdk.KubeflowOrgV1TFJob(
        api_version="kubeflow.org/v1", kind="TFJob", metadata=client.V1ObjectMeta(name=name),
        spec=sdk.KubeflowOrgV1TFJobSpec(
            run_policy=sdk.KubeflowOrgV1RunPolicy(clean_pod_policy="None"), tf_replica_specs=specs,
        ),
    )  # fmt: skip


def test_the_sdk_creates_follows_and_deletes_a_job(kubeconfig: str, operators: Any, play: Play) -> None:
    operators()

    async def scenario(api: Api, namespace: str) -> None:
        client = sdk.TrainingClient(config_file=kubeconfig, namespace=namespace, job_kind="TFJob")

        async def ask(method: str, *values: Any, **options: Any) -> Any:
            return await asyncio.to_thread(getattr(client, method), *values, **options)

        await ask("create_job", as_model("job"))

        async def both() -> bool:
            return len(await pods_of(api, namespace, "job")) == 2

        await until(api, both, "two pods")
        assert sorted(await ask("get_job_pod_names", "job")) == ["job-ps-0", "job-worker-0"]
        for label in LABELS.values():
            assert await ask("get_job_pod_names", "job", replica_type=label) == [f"job-{label}-0"]
        assert await ask("get_job_pod_names", "job", is_master=True) == ["job-worker-0"]

        for name in ("job-ps-0", "job-worker-0"):
            await set_phase(api, namespace, name, "Running")
        running = await ask("wait_for_job_conditions", "job", expected_conditions={"Running"}, wait_timeout=60,
                            polling_interval=1)  # fmt: skip
        assert await ask("is_job_running", job=running)

        await set_phase(api, namespace, "job-worker-0", "Succeeded", exit_code=0)
        ended = await ask("wait_for_job_conditions", "job", wait_timeout=60, polling_interval=1)
        assert await ask("is_job_succeeded", job=ended)
        assert ended.status.completion_time is not None and ended.status.replica_statuses["Worker"].succeeded == 1
        assert "Succeeded" in await conditions_of(api, namespace, "job")
        assert [one.metadata.name for one in await ask("list_jobs")] == ["job"]
        await ask("delete_job", "job")

        async def gone() -> bool:
            return not await ask("list_jobs")

        await until(api, gone, "the job is deleted")

    play(scenario)
