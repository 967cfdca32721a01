"""The arbiter against a real API server and scheduler. Nodes are objects that nobody runs; pods are bound to them by hand."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from deeprec_ext.arbiter.observed import Allowance
from tests.cluster.kube import set_phase, until
from tests.unit.tfjob.arbiting.clusters import containers, pods_of, tfjob
from tfjob.api.client import Api, ConflictError
from tfjob.model.arbitrated import allowance_of
from tfjob.model.kinds import EVENTS, NODES, PODS, PRIORITY_CLASSES, TFJOBS, Manifest

pytestmark = [pytest.mark.usefixtures("crd"), pytest.mark.slow]
Conversation = Callable[[Api, str], Awaitable[None]]

OURS = {"key": "deeprec.io/test", "value": "arbiter", "effect": "NoSchedule"}
"""So that pods of other tests do not go there."""

TOLERATED = {"tolerations": [{"key": OURS["key"], "operator": "Exists"}]}


async def node(api: Api, name: str, cpu: int) -> None:
    """Ready, as its kubelet would say it."""
    body = {"metadata": {"name": name, "labels": {"deeprec.io/test": "arbiter"}}, "spec": {"taints": [OURS]}}
    await api.create(NODES, None, body)
    allocatable = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": None}
    await api.patch(
        NODES,
        None,
        name,
        {"status": {"allocatable": allocatable, "capacity": allocatable, "conditions": [ready]}},
        "status",
    )

    async def taken() -> bool:
        taints = (await api.get(NODES, None, name))["spec"].get("taints") or []
        return [one["key"] for one in taints] == [OURS["key"]]

    await until(api, taken, f"the node {name} takes pods")


async def priority_class(api: Api, name: str, value: int) -> None:
    """Who waits does not evict: that is for the arbiter to make room."""
    body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"}
    with contextlib.suppress(ConflictError):
        await api.create(PRIORITY_CLASSES, None, body)


async def elastic_job(api: Api, namespace: str, name: str, priority: str, on: str) -> Manifest:
    """It runs with 1 PS and 2 workers; nobody is its AIMaster."""
    made = tfjob(name, ps=1, workers=2, namespace=namespace, priority=priority, template=TOLERATED)
    job = await api.create(TFJOBS, namespace, made)
    for one in pods_of(job, on, ps=1, workers=2):
        owner = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "name": name,
            "uid": job["metadata"]["uid"],
            "controller": True,
        }
        one["metadata"]["ownerReferences"] = [owner]
        one["spec"].update(priorityClassName=priority, **TOLERATED)
        del one["spec"]["priority"]
        await api.create(PODS, namespace, one)
        await set_phase(api, namespace, one["metadata"]["name"], "Running")
    return job


def test_a_pod_of_higher_priority_has_room_made_and_the_next_operator_goes_on_without_a_write(
    operators: Any, play: Callable[[Conversation], None], free_port: Callable[[], int]
) -> None:
    async def scenario(api: Api, namespace: str) -> None:
        name = f"{namespace}-node"
        await node(api, name, 10)
        try:
            await full_cluster(api, namespace, name)
        finally:
            await api.delete(NODES, None, name)

    async def full_cluster(api: Api, namespace: str, on: str) -> None:
        for class_, value in (("arbiter-low", 10), ("arbiter-middle", 20), ("arbiter-high", 1000)):
            await priority_class(api, class_, value)
        port = free_port()
        words = ("--no-leader-election", "--image", "example/deeprec-ext:1", "--arbiter")
        first = operators(*words, "--metrics-port", str(port))
        await elastic_job(api, namespace, "low", "arbiter-low", on)
        await elastic_job(api, namespace, "middle", "arbiter-middle", on)

        async def allowance(job: str) -> Allowance | None:
            found = await api.get(TFJOBS, namespace, job)
            return allowance_of(found["metadata"]["annotations"], job)[0]

        def has(job: str, workers: int) -> Callable[[], Awaitable[bool]]:
            async def asked() -> bool:
                found = await allowance(job)
                return found is not None and (found.runs, found.ps, found.workers) == (True, 1, workers)

            return asked

        for job in ("low", "middle"):
            await until(api, has(job, 2), f"{job} is allowed what it has")
        serving = {
            "metadata": {"name": "serving"},
            "spec": {"containers": containers("2400m"), "priorityClassName": "arbiter-high", **TOLERATED},
        }
        serving["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "2400m"}  # type: ignore[index]
        began = time.monotonic()
        await api.create(PODS, namespace, serving)
        await until(api, has("low", 1), "the lower one gives a worker back", 20, every=0.05)
        assert time.monotonic() - began < 15 and await has("middle", 2)()
        found = await allowance("low")
        assert found is not None and "serving" in found.why
        events, _ = await api.list_all(EVENTS, namespace, fields="involvedObject.name=low")
        assert any(one["reason"] == "ArbiterAllowed" and "1 PS, 1 worker" in one["message"] for one in events)

        await asyncio.sleep(1.5)  # whatever else follows has been written
        first.kill()
        before = {job: await allowance(job) for job in ("low", "middle")}
        operators(*words, "--metrics-port", str(port := free_port()))

        async def queue() -> dict[str, Any]:
            try:
                async with aiohttp.ClientSession() as session:
                    async with session.get(f"http://127.0.0.1:{port}/queue.json") as answer:
                        return dict(json.loads(await answer.text()))
            except aiohttp.ClientConnectionError:
                return {}

        async def has_decided() -> bool:
            return (await queue()).get("decisions", 0) >= 2

        await until(api, has_decided, "the second operator has decided", every=0.3)
        assert {job: await allowance(job) for job in ("low", "middle")} == before
        assert (await queue())["writes"] == 0

    play(scenario)
