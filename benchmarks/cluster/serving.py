"""Training beside serving that comes and goes, and a job of high priority that arrives in a full cluster.

    sudo python -m benchmarks.cluster.serving             # five minutes; real pods on a node in this machine

A job without PS has all slots but one, which a Deployment of higher priority has. The Deployment grows and shrinks as a
HorizontalPodAutoscaler would have it (by this script: no metrics server is here), and at last a job of high priority comes. How
long a serving pod waits for its node is the API server's own account of it: created, scheduled.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from datetime import datetime
from typing import Any

from benchmarks.cluster.pods import NAMESPACE, SLOT, World, run_as_program, world
from tests.cluster.e2e import pod_spec
from tfjob.api.client import Api
from tfjob.model.kinds import PODS, Manifest, Resource

DEPLOYMENTS = Resource("deployments", group="apps")
PRIORITY_CLASSES = Resource("priorityclasses", group="scheduling.k8s.io")
PRIORITIES = {"serving": 1000, "urgent": 500, "training": 0}
REPLICAS = (1, 3, 6, 2)


def deployment(replicas: int) -> Manifest:
    spec = pod_spec()
    (container,) = spec["containers"]
    container.update(
        command=["python", "-m", "http.server", "8000"], resources={"limits": {SLOT: "1"}, "requests": {SLOT: "1"}}
    )
    labels = {"app": "serving"}
    pod = {
        "containers": [container], "volumes": spec["volumes"], "priorityClassName": "serving",
        "terminationGracePeriodSeconds": 1,
    }  # fmt: skip
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "serving", "labels": labels},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
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


async def play(here: World, slots: int, seconds: float) -> dict[str, Any]:
    for name, value in PRIORITIES.items():
        await here.api.create(PRIORITY_CLASSES, None, {"metadata": {"name": name}, "value": value})
    await here.api.create(DEPLOYMENTS, NAMESPACE, deployment(REPLICAS[0]))
    serving = Serving(here.api)
    await here.until("serving runs", lambda: serving.run(REPLICAS[0]))
    await here.submit(here.job("training", slots - 1, 10**7, priority="training"))

    def full(replicas: int) -> bool:
        return sum(here.seen.samples[-1][1].values()) == slots and here.seen.samples[-1][1].get("serving") == replicas

    await here.until("all slots are used", lambda: full(REPLICAS[0]), 180.0)
    began = time.time()
    for replicas in REPLICAS[1:]:
        await serving.scale(replicas)
        await here.until(f"{replicas} pods serve", lambda count=replicas: serving.run(count))
        await asyncio.sleep(seconds)
    served = time.time()
    use = here.seen.used_share(began, served)
    urgent = here.job("urgent", 1, 2_000, least=1, priority="urgent")
    asked = await here.submit(urgent)

    def both() -> bool:
        return here.seen.samples[-1][1].get("urgent", 0) == 2

    least = await here.until("the urgent job has its least", both) or time.time()
    least = time.time() - asked
    await here.until("the urgent job trains", lambda: here.first_step("urgent"))
    await here.until("the urgent job has succeeded", lambda: here.ended("urgent"))
    return {
        "slots": slots, "use beside serving": round(use, 4), "serving pods": len(serving.waited),
        "longest wait of a serving pod for its node, s": max(serving.waited.values()),
        "urgent job until its least runs, s": round(least, 1),
    }  # fmt: skip


async def measure(arguments: argparse.Namespace) -> Any:
    async with world(arguments.slots, "--arbiter") as here:
        return await play(here, arguments.slots, arguments.seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=40.0, help="that each number of replicas stays")
    return run_as_program(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
