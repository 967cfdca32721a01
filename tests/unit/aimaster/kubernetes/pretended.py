"""A backend on an API that pretends, and a clock on which sleeps take no time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from deeprec_ext.aimaster.kubernetes.backend import KubernetesBackend
from deeprec_ext.aimaster.kubernetes.naming import Naming
from deeprec_ext.aimaster.pods.backend import PodState
from tests.unit.aimaster.kubernetes.fake_api import NAMESPACE, OWNER, PODS, FakeApi, manifests
from tfjob.model.kinds import Resource

NAMING = Naming("ctr", "Chief")


class Clock:
    """Sleeps take no time; how long they were to be is remembered. `gate`: sleeps of a second and more wait for it."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.on_sleep: Callable[[float], None] = lambda seconds: None

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.on_sleep(seconds)
        if seconds >= 30.0:  # services that are to be forgotten
            await asyncio.Event().wait()
        await asyncio.sleep(0)


class Cluster:
    def __init__(self, *, restarts_max: int = 10) -> None:
        self.api, self.clock = FakeApi(), Clock()
        self.backend = KubernetesBackend(
            self.api, NAMESPACE, NAMING, manifests, OWNER, restarts_max=restarts_max, sleep=self.clock.sleep
        )  # type: ignore[arg-type]
        self.told: list[PodState] = []
        self.reclaimed: list[tuple[str, str]] = []
        self.backend.reclaimed = lambda name, why: self.reclaimed.append((name, why))

    async def settle(self) -> list[PodState]:
        """Until nothing happens any more; what was told meanwhile."""
        before = len(self.told)
        for _ in range(50):
            await asyncio.sleep(0)
        return self.told[before:]

    async def listen(self) -> None:
        async for state in self.backend.watch():
            self.told.append(state)


def run(test: Callable[[Cluster], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        cluster = Cluster(**options)
        await cluster.backend.begin()
        listening = asyncio.ensure_future(cluster.listen())
        try:
            await cluster.settle()
            await test(cluster)
        finally:
            listening.cancel()
            await cluster.backend.close()

    asyncio.run(main())


async def running(cluster: Cluster, *names: str) -> None:
    for name in names:
        await cluster.backend.create(name)
        cluster.api.run(f"ctr-{name}", container=f"{name}/first")
    await cluster.settle()


def vanish(cluster: Cluster, name: str, uid: str, resource: Resource = PODS) -> None:
    """At the end of its grace, if it is this one."""
    if cluster.api.objects.get((resource.plural, name), {"metadata": {"uid": ""}})["metadata"]["uid"] == uid:
        cluster.api.vanish(resource, name)
