"""Requests that are an estimate: as far as the template says nothing; and given up rather than that a pod cannot be."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from deeprec_ext.aimaster.kubernetes import backend
from deeprec_ext.aimaster.kubernetes.kept import Size
from deeprec_ext.aimaster.kubernetes.making import requesting
from tests.unit.aimaster.kubernetes.fake_api import PODS, ApiError, ForbiddenError, manifests, status
from tests.unit.aimaster.kubernetes.pretended import Cluster, run
from tfjob.model.kinds import Manifest, Resource

ESTIMATES = {"ps": Size(0.25, 1 << 30), "worker": Size(1.5)}


def bare(name: str, requests: Any = None) -> tuple[Manifest, Manifest]:
    """A template that names no amounts."""
    service, pod = manifests(name, requests)
    if requests is None:
        del pod["spec"]["containers"][0]["resources"]
    del pod["spec"]["nodeName"]
    return service, pod


def play(test: Any) -> list[str]:
    """What was given up, and why."""
    said: list[str] = []

    async def prepared(cluster: Cluster) -> None:
        cluster.backend._maker._factory = bare
        cluster.backend.estimates, cluster.backend.given_up = ESTIMATES, said.append
        await test(cluster)

    run(prepared)
    return said


def resources(cluster: Cluster, name: str) -> Any:
    return cluster.api.objects["pods", f"ctr-{name}"]["spec"]["containers"][0].get("resources")


def unscheduled(cluster: Cluster, name: str) -> None:
    waiting = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: 1 Insufficient cpu."}
    cluster.api.status(f"ctr-{name}", {"phase": "Pending", "conditions": [waiting]})


@pytest.mark.parametrize(
    ("named", "wanted"),
    [({}, {"cpu": "1500m", "memory": "64"}), ({"requests": {"cpu": "1"}}, {"cpu": "1", "memory": "64"}),
     ({"limits": {"memory": "2Gi"}}, {"cpu": "1500m"}),
     ({"limits": {"cpu": "1"}, "requests": {"memory": "1"}}, {"memory": "1"})],
)  # fmt: skip
def test_what_is_written_is_never_overridden(named: Any, wanted: Any) -> None:
    pod = {"spec": {"containers": [{"name": "sidecar"}, {"name": "tensorflow", "resources": named}]}}
    before = copy.deepcopy(pod)
    made = requesting(pod, {"cpu": "1500m", "memory": "64"})
    assert pod == before and "resources" not in made["spec"]["containers"][0]
    found = made["spec"]["containers"][1]["resources"]
    assert found["requests"] == wanted and found.get("limits") == named.get("limits")


def test_each_role_requests_its_own_and_is_held_to_nothing() -> None:
    async def test(cluster: Cluster) -> None:
        for name in ("ps-0", "chief-0", "worker-0", "evaluator-0"):
            await cluster.backend.create(name)
        assert resources(cluster, "ps-0") == {"requests": {"cpu": "250m", "memory": str(1 << 30)}}
        assert resources(cluster, "chief-0") == resources(cluster, "worker-0") == {"requests": {"cpu": "1500m"}}
        assert resources(cluster, "evaluator-0") is None, "the history knows nothing of it"
        await cluster.backend.resize("worker", 0.5, 0)  # the autoscaler's word counts
        await cluster.backend.create("worker-1")
        assert resources(cluster, "worker-1") == {"limits": {"cpu": "500m"}}

    assert play(test) == []


@pytest.mark.parametrize(
    "error", [ForbiddenError(403, "Forbidden", "exceeded quota"), ApiError(422, "Invalid", "limit")]
)
def test_a_pod_that_is_refused_with_them_is_made_without(error: ApiError) -> None:
    async def test(cluster: Cluster) -> None:
        create = cluster.api.create

        async def strict(resource: Resource, namespace: str | None, body: Manifest) -> Manifest:
            if resource is PODS and body["spec"]["containers"][0].get("resources"):
                raise error
            return await create(resource, namespace, body)

        cluster.api.create = strict  # type: ignore[method-assign]
        for name in ("ps-0", "worker-0"):
            await cluster.backend.create(name)
            assert resources(cluster, name) is None

    (why,) = play(test)
    assert why.startswith("ps-0 was refused with them: ") and str(error) in why


def test_pods_that_hold_what_others_lack_make_way_before_anybody_has_trained() -> None:
    """A quota of two cores, where a pod that requests nothing counts a tenth."""

    def cores(pod: Manifest) -> float:
        requests = (pod["spec"]["containers"][0].get("resources") or {}).get("requests") or {}
        return float(requests.get("cpu", "100m")[:-1]) / 1000

    async def test(cluster: Cluster) -> None:
        cluster.backend.estimates = {"ps": Size(0.95), "worker": Size(1.5)}
        cluster.backend.trained = lambda name: False
        create = cluster.api.create

        async def within_quota(resource: Resource, namespace: str | None, body: Manifest) -> Manifest:
            there = [one for (plural, _), one in cluster.api.objects.items() if plural == "pods"]
            if resource is PODS and sum(map(cores, [*there, body])) > 2:
                raise ForbiddenError(403, "Forbidden", "exceeded quota")
            return await create(resource, namespace, body)

        cluster.api.create = within_quota  # type: ignore[method-assign]
        names = ("ps-0", "ps-1", "chief-0", "worker-0")
        for name in names:
            await cluster.backend.create(name)
        await cluster.settle()
        assert [resources(cluster, name) for name in names] == [None] * 4
        for name in names:
            cluster.api.run(f"ctr-{name}")
        assert [(one.name, one.state) for one in await cluster.settle()] == [(name, "running") for name in names]
        assert not [one for one in cluster.told if one.state == "exited"], "nobody's process has ended"

    (why,) = play(test)
    assert why == "chief-0 was refused with them: exceeded quota"


def test_a_pod_that_finds_no_node_is_made_again_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "ROOM_SECONDS", 29.0)  # the longest sleep that ends here

    async def test(cluster: Cluster) -> None:
        await cluster.backend.create("ps-0")
        cluster.api.objects["pods", "ctr-ps-0"]["spec"]["nodeName"] = "node-1"
        cluster.api.run("ctr-ps-0")
        await cluster.backend.create("worker-0")
        unscheduled(cluster, "worker-0")
        await cluster.settle()
        assert resources(cluster, "worker-0") is None and 29.0 in cluster.clock.slept
        assert resources(cluster, "ps-0") is not None, "who has a node stays there"
        cluster.clock.slept.clear()
        unscheduled(cluster, "worker-0")
        await cluster.settle()
        assert not cluster.clock.slept, "now it waits like any other"

    (why,) = play(test)
    assert why == "worker-0 has found no node with them for 29 s: 0/1 nodes are available: 1 Insufficient cpu."


def test_a_pod_that_finds_a_node_in_time_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "ROOM_SECONDS", 29.0)

    async def test(cluster: Cluster) -> None:
        await cluster.backend.create("worker-0")
        cluster.api.objects["pods", "ctr-worker-0"]["spec"]["nodeName"] = "node-1"
        cluster.api.status("ctr-worker-0", status("Pending", {"waiting": {}}, "", 0))
        await cluster.settle()
        cluster.api.run("ctr-worker-0")
        await cluster.settle()
        assert resources(cluster, "worker-0") is not None and cluster.backend.runs("worker-0")

    assert play(test) == []
