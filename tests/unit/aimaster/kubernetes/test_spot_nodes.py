"""A pod that asks for a spot node and finds none is made without that wish, and later ones ask again after a while."""

from __future__ import annotations

from typing import Any

from deeprec_ext.aimaster.kubernetes import backend
from tests.unit.aimaster.kubernetes.fake_api import manifests
from tests.unit.aimaster.kubernetes.pretended import Cluster, run
from tests.unit.aimaster.kubernetes.test_estimates import unscheduled
from tfjob.model.kinds import Manifest

KEY, VALUE = "cloud.example/spot", "true"


def wishing(name: str, requests: Any = None) -> tuple[Manifest, Manifest]:
    service, pod = manifests(name, requests)
    pod["spec"]["nodeSelector"] = {KEY: VALUE}
    pod["spec"].pop("nodeName", None)
    return service, pod


def selector(cluster: Cluster, name: str) -> Any:
    return cluster.api.objects["pods", f"ctr-{name}"]["spec"].get("nodeSelector")


def prepared(cluster: Cluster, seconds: float = 20.0) -> list[str]:
    told: list[str] = []
    cluster.backend._maker._factory = wishing
    cluster.backend.spot, cluster.backend.spot_seconds = (KEY, VALUE), seconds
    cluster.backend.fell_back = lambda name, why: told.append(f"{name}: {why}")
    return told


def test_a_pod_without_a_spot_node_is_made_without_that_wish_and_others_after_it() -> None:
    async def test(cluster: Cluster) -> None:
        told, now = prepared(cluster), [1000.0]
        cluster.backend.monotonic = lambda: now[0]
        await cluster.backend.create("worker-0")
        unscheduled(cluster, "worker-0")
        assert selector(cluster, "worker-0") == {KEY: VALUE}
        await cluster.settle()
        assert 20.0 in cluster.clock.slept and selector(cluster, "worker-0") is None
        [line] = told
        assert line.startswith("worker-0: no spot node for 20") and "Insufficient cpu" in line
        await cluster.backend.create("worker-1")
        assert selector(cluster, "worker-1") is None
        now[0] += backend.SPOT_AGAIN_SECONDS
        await cluster.backend.create("worker-2")
        assert selector(cluster, "worker-2") == {KEY: VALUE}, "spot nodes are tried again"

    run(test)


def test_a_pod_that_gets_its_node_in_time_keeps_its_wish() -> None:
    async def test(cluster: Cluster) -> None:
        told = prepared(cluster)

        def placed(seconds: float) -> None:
            if seconds == 20.0:
                assert not cluster.backend.unplaced(), "it would do with another node: that is no want of room"
                cluster.api.objects["pods", "ctr-worker-0"]["spec"]["nodeName"] = "spot-1"
                cluster.api.run("ctr-worker-0")

        cluster.clock.on_sleep = placed
        await cluster.backend.create("worker-0")
        unscheduled(cluster, "worker-0")
        await cluster.settle()
        assert 20.0 in cluster.clock.slept and not told and selector(cluster, "worker-0") == {KEY: VALUE}

    run(test)


def test_with_no_limit_it_waits_for_ever() -> None:
    async def test(cluster: Cluster) -> None:
        prepared(cluster, 0.0)
        await cluster.backend.create("worker-0")
        unscheduled(cluster, "worker-0")
        await cluster.settle()
        assert selector(cluster, "worker-0") == {KEY: VALUE} and list(cluster.backend.unplaced()) == ["worker-0"]

    run(test)
