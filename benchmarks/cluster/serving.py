"""Training beside serving that comes and goes, and a job of high priority that arrives in a full cluster.

    sudo python -m benchmarks.cluster.serving             # five minutes; real pods on a node in this machine
    sudo python -m benchmarks.cluster.serving --hpa       # seven: scaled by a HorizontalPodAutoscaler, of real requests

A job without PS has all slots but one, which a Deployment of model servers of higher priority has. The Deployment grows and
shrinks: by this script, or by the HorizontalPodAutoscaler of the controller manager as clients come and go, each of whom has a
request in a server all the time (`load.py`); a server (`model_server.py`) is meant to have two. At last a job of high priority
comes. How long a serving pod waits for its node is the API server's own account of it: created, scheduled.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from benchmarks.cluster import load
from benchmarks.cluster.pods import NAMESPACE, SLOT, World, run_as_program, world
from tests.cluster.e2e import ROOT, pod_spec
from tfjob.api.client import Api
from tfjob.model.kinds import PODS, SERVICES, Manifest, Resource

DEPLOYMENTS = Resource("deployments", group="apps")
PRIORITY_CLASSES = Resource("priorityclasses", group="scheduling.k8s.io")
PRIORITIES = {"serving": 1000, "urgent": 500, "training": 0}
AUTOSCALERS = Resource("horizontalpodautoscalers", "v2beta2", "autoscaling")
REPLICAS, REPLICAS_OF_LOAD = (1, 3, 6, 2), (1, 6, 2)
CLIENTS_OF_A_SERVER = 2
LABELS = {"app": "serving"}


def deployment(replicas: int) -> Manifest:
    spec = pod_spec()
    (container,) = spec["containers"]
    container.update(
        command=["python", "-m", "benchmarks.cluster.model_server", "--port", str(load.PORT)],
        resources={"limits": {SLOT: "1"}, "requests": {SLOT: "1"}},
        readinessProbe={"httpGet": {"path": "/load", "port": load.PORT}, "periodSeconds": 1},
    )
    container["env"].append({"name": "PYTHONPATH", "value": str(ROOT)})
    pod = {
        "containers": [container], "volumes": spec["volumes"], "priorityClassName": "serving",
        "terminationGracePeriodSeconds": 3,
    }  # fmt: skip
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "serving", "labels": LABELS},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }  # fmt: skip


def autoscaler() -> Manifest:
    """As many replicas as there are `CLIENTS_OF_A_SERVER` in flight; down as soon as that says so, else as the defaults are."""
    target = {"type": "AverageValue", "averageValue": str(CLIENTS_OF_A_SERVER)}
    return {
        "metadata": {"name": "serving"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "serving"},
            "minReplicas": min(REPLICAS_OF_LOAD), "maxReplicas": max(REPLICAS_OF_LOAD),
            "metrics": [{"type": "External", "external": {"metric": {"name": load.METRIC}, "target": target}}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }  # fmt: skip


class Serving:
    """How long its pods waited for a node, by uid."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.waited: dict[str, float] = {}

    async def scale(self, replicas: int) -> None:
        await self._api.patch(DEPLOYMENTS, NAMESPACE, "serving", {"spec": {"replicas": replicas}})

    async def run(self, replicas: int) -> bool:
        """Whether so many run, and no others are there."""
        found, _ = await self._api.list_all(PODS, NAMESPACE, labels="app=serving")
        for pod in found:
            for one in pod.get("status", {}).get("conditions") or []:
                if one["type"] == "PodScheduled" and one["status"] == "True":
                    made, scheduled = (
                        datetime.fromisoformat(text.replace("Z", "+00:00"))
                        for text in (pod["metadata"]["creationTimestamp"], one["lastTransitionTime"])
                    )
                    self.waited[pod["metadata"]["uid"]] = (scheduled - made).total_seconds()
        return [pod["status"].get("phase") for pod in found] == ["Running"] * replicas


class ByScript:
    """The script says how many replicas there are."""

    levels = REPLICAS

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def go_to(self, replicas: int) -> None:
        await self._serving.scale(replicas)

    def told(self, since: float) -> dict[str, Any]:
        return {}


class ByLoad:
    """Clients come and go, and the HorizontalPodAutoscaler says how many replicas there are."""

    levels = REPLICAS_OF_LOAD

    def __init__(self, clients: load.Clients, adapter: load.Adapter) -> None:
        self._clients, self._adapter = clients, adapter

    async def go_to(self, replicas: int) -> None:
        await self._clients.be(replicas * CLIENTS_OF_A_SERVER)

    def told(self, since: float) -> dict[str, Any]:
        return {
            "requests": {**self._clients.told(since), "failed, of all": self._clients.failed},
            "autoscaler has asked for the load": self._adapter.asked,
        }  # fmt: skip


@contextlib.asynccontextmanager
async def by_load(here: World) -> AsyncIterator[ByLoad]:
    ports = [{"port": load.PORT, "targetPort": load.PORT}]
    made = await here.api.create(
        SERVICES, NAMESPACE, {"metadata": {"name": "serving"}, "spec": {"selector": LABELS, "ports": ports}}
    )
    clients = load.Clients(f"http://{made['spec']['clusterIP']}:{load.PORT}/predict")
    async with load.told(here.api, NAMESPACE, here.address, here.base) as adapter:
        try:
            await clients.be(min(REPLICAS_OF_LOAD) * CLIENTS_OF_A_SERVER)
            await here.until("the servers are asked", lambda: len(clients.answers) > 10, 60.0)
            await here.api.create(AUTOSCALERS, NAMESPACE, autoscaler())
            await here.until("the autoscaler has asked for the load", lambda: adapter.asked, 120.0)
            yield ByLoad(clients, adapter)
        finally:
            await clients.be(0)


async def play(here: World, slots: int, seconds: float, *, hpa: bool) -> dict[str, Any]:
    for name, value in PRIORITIES.items():
        await here.api.create(PRIORITY_CLASSES, None, {"metadata": {"name": name}, "value": value})
    await here.api.create(DEPLOYMENTS, NAMESPACE, deployment(REPLICAS[0]))
    serving = Serving(here.api)
    await here.until("serving runs", lambda: serving.run(REPLICAS[0]))
    if not hpa:
        return await beside(here, slots, seconds, serving, ByScript(serving))
    async with by_load(here) as way:
        return await beside(here, slots, seconds, serving, way)


async def beside(here: World, slots: int, seconds: float, serving: Serving, way: ByScript | ByLoad) -> dict[str, Any]:
    await here.submit(here.job("training", slots - 1, 10**7, priority="training"))

    def full(replicas: int) -> bool:
        return sum(here.seen.samples[-1][1].values()) == slots and here.seen.samples[-1][1].get("serving") == replicas

    await here.until("all slots are used", lambda: full(way.levels[0]), 180.0)
    began, changes = time.time(), []
    for replicas in way.levels[1:]:
        asked = time.time()
        await way.go_to(replicas)
        await here.until(f"{replicas} pods serve", lambda count=replicas: serving.run(count))
        after = round(time.time() - asked, 1)
        await asyncio.sleep(seconds)
        free = here.seen.first("training", slots - replicas, asked)
        changes.append({
            "replicas": replicas, "training had left after, s": None if free is None else round(free - asked, 1),
            "they serve after, s": after, **way.told(asked),
        })  # fmt: skip
    served = time.time()
    use = here.seen.used_share(began, served)
    urgent = here.job("urgent", 1, 2_000, least=1, priority="urgent")
    asked = await here.submit(urgent)

    def both() -> bool:
        return here.seen.samples[-1][1].get("urgent", 0) == 2

    await here.until("the urgent job has its least", both)
    least = time.time() - asked
    await here.until("the urgent job trains", lambda: here.trains("urgent"))
    await here.until("the urgent job has succeeded", lambda: here.ended("urgent"))
    return {
        "slots": slots, "use beside serving": round(use, 4), "serving": changes, "serving pods": len(serving.waited),
        "longest wait of a serving pod for its node, s": max(serving.waited.values()),
        "urgent job until its least runs, s": round(least, 1),
    }  # fmt: skip


async def measure(arguments: argparse.Namespace) -> Any:
    async with world(arguments.slots, "--arbiter") as here:
        return await play(here, arguments.slots, arguments.seconds, hpa=arguments.hpa)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=40.0, help="that each number of replicas stays")
    parser.add_argument(
        "--hpa",
        action="store_true",
        help="a HorizontalPodAutoscaler scales by the load of real requests; else the script",
    )
    return run_as_program(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
