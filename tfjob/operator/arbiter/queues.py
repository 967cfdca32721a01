"""Queues of Kueue and Volcano, followed where a cluster has them.

Whether it has is asked seldom, once for each of the two: who has neither is asked nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from deeprec_ext.errors import UnreachableError
from tfjob.api.client import Api, ApiError, ForbiddenError, NotFoundError
from tfjob.arbiting.kueue import (
    ClusterQueueSeen,
    CohortSeen,
    FlavorSeen,
    KueueSeen,
    LocalQueueSeen,
    cluster_queue_seen,
    cohort_seen,
    flavor_seen,
    local_queue_seen,
)  # fmt: skip
from tfjob.arbiting.volcano import VolcanoQueueSeen, volcano_queue_seen
from tfjob.model.kinds import KUEUE, VOLCANO, Manifest, Resource
from tfjob.operator.arbiter.following import Shelf, follow
from tfjob.operator.running import together
from tfjob.operator.sight import EVERYWHERE, Missing, Namespaces, Right, Sight

log = logging.getLogger(__name__)
ASK_SECONDS = 600.0
"""How often it is asked whether a cluster has them by now."""

AGAIN_SECONDS = 5.0
"""After a server that does not answer."""


class Kind(NamedTuple):
    """Of objects of a group."""

    plural: str
    see: Callable[[Manifest], Any]
    shelf: Shelf[Any]
    in_namespaces: bool = False


class Group:
    """Of kinds, which a cluster has or not."""

    def __init__(
        self, api: Api, name: str, versions: tuple[str, ...], kinds: list[Kind], called: str, missing: Missing
    ) -> None:
        """`versions`: those that we know, the best first."""
        self._api, self.name, self._versions, self._kinds, self._called = api, name, versions, kinds, called
        self._missing = missing
        self._so = f"{called} is there, and allowances may exceed what its queues admit"
        self._asked = asyncio.Event()
        self._sights: list[Sight] = []
        self._said = ""

    @property
    def synced(self) -> bool:
        """What there is has been seen once, if there is any."""
        return self._asked.is_set() and all(sight.asked.is_set() for sight in self._sights)

    async def wait(self) -> None:
        await self._asked.wait()
        for sight in self._sights:
            await sight.asked.wait()

    async def run(self, namespaces: Namespaces, changed: Callable[[], None]) -> None:
        """For ever. `namespaces`: those of the jobs."""
        while True:
            work, self._sights = [], []
            for kind, resource in await self._there(namespaces):
                where = namespaces if kind.in_namespaces else EVERYWHERE
                sight = Sight(
                    self._missing,
                    resource,
                    where,
                    f"{self._called}'s queues are as they were seen last",
                    lambda _: changed(),
                )
                self._sights.append(sight)
                work += [
                    follow(self._api, resource, one, kind.see, kind.shelf, changed, sight, gone_ends=True)
                    for one in where
                ]
            self._asked.set()
            if work:
                try:
                    await together(work)
                except NotFoundError:
                    log.warning("%s is gone: its queues limit nothing any more", self._called)
                for kind in self._kinds:
                    kind.shelf.clear()
                for sight in self._sights:  # who waits for them waits for nothing
                    sight.asked.set()
                changed()
            await asyncio.sleep(ASK_SECONDS)

    async def _there(self, namespaces: Namespaces) -> list[tuple[Kind, Resource]]:
        """Of the kinds those that the server has and shows; waits for one that does not answer, which nobody else does."""
        while True:
            try:
                version = await self._version()
                if not version:
                    return []
                served = await self._api.request("GET", f"/apis/{self.name}/{version}")
                names = {str(one.get("name")) for one in served.get("resources") or ()}
                found = [
                    (kind, Resource(kind.plural, version, self.name)) for kind in self._kinds if kind.plural in names
                ]
                may = [await self._may_see(kind, resource, namespaces) for kind, resource in found]
                return found if all(may) else []
            except NotFoundError:
                return []
            except ForbiddenError as error:
                self._say(f"whether the cluster has {self._called} may not be asked: {error}")
                return []
            except (ApiError, UnreachableError) as error:
                log.warning(
                    "%s: whether the server has it, or what, is not known: %s; its queues limit nothing until it is",
                    self.name, error,
                )  # fmt: skip
                self._asked.set()
                await asyncio.sleep(AGAIN_SECONDS)

    async def _may_see(self, kind: Kind, resource: Resource, namespaces: Namespaces) -> bool:
        """Raises ApiError, UnreachableError."""
        may = True
        for one in namespaces if kind.in_namespaces else EVERYWHERE:
            try:
                await self._api.list_all(resource, one, fields="metadata.name=-", shrink=lambda _: None)
                self._missing.given(Right(one or "", resource, "list"))
            except ForbiddenError as error:
                self._missing.add(Right(one or "", resource, "list"), error, self._so)
                may = False
        return may

    async def _version(self) -> str:
        """The best that both know; empty: none. Raises NotFoundError where the server has no such group."""
        found = await self._api.request("GET", f"/apis/{self.name}")
        served = {str(one.get("version")) for one in found.get("versions") or ()}
        best = next((one for one in self._versions if one in served), "")
        if served and not best:
            self._say(
                f"{self._called} has versions {', '.join(sorted(served))} of its queues, and none that is known here"
            )
        return best

    def _say(self, text: str) -> None:
        """Once, as long as it is the same."""
        if text != self._said:
            log.error("%s", text)
        self._said = text


class Queues:
    """What there is of both."""

    def __init__(self, api: Api, namespaces: Namespaces, changed: Callable[[], None], missing: Missing) -> None:
        self._namespaces, self._changed = namespaces, changed
        self._local: Shelf[LocalQueueSeen] = Shelf()
        self._cluster: Shelf[ClusterQueueSeen] = Shelf()
        self._flavors: Shelf[FlavorSeen] = Shelf()
        self._cohorts: Shelf[CohortSeen] = Shelf()
        self._volcano: Shelf[VolcanoQueueSeen] = Shelf()
        kueue = [
            Kind("clusterqueues", cluster_queue_seen, self._cluster),
            Kind("localqueues", local_queue_seen, self._local, in_namespaces=True),
            Kind("resourceflavors", flavor_seen, self._flavors), Kind("cohorts", cohort_seen, self._cohorts),
        ]  # fmt: skip
        self.groups = (
            Group(api, KUEUE, ("v1beta2", "v1beta1"), kueue, "Kueue", missing),
            Group(api, VOLCANO, ("v1beta1",), [Kind("queues", volcano_queue_seen, self._volcano)], "Volcano", missing),
        )

    @property
    def synced(self) -> bool:
        return all(group.synced for group in self.groups)

    async def wait(self) -> None:
        for group in self.groups:
            await group.wait()

    def kueue(self) -> KueueSeen:
        if not self.groups[0].synced:  # a part of it would be wrong
            return KueueSeen()
        return KueueSeen(self._local.all(), self._cluster.all(), self._flavors.all(), self._cohorts.all())

    def volcano(self) -> list[VolcanoQueueSeen]:
        return self._volcano.all() if self.groups[1].synced else []

    def work(self) -> list[Awaitable[None]]:
        return [group.run(self._namespaces, self._changed) for group in self.groups]
