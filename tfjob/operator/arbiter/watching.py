"""Nodes, all pods, quotas and priority classes, followed: of each only what the arbiter needs is kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from deeprec_ext.errors import UnreachableError
from tfjob.api.client import Api, ApiError, ForbiddenError
from tfjob.arbiting.bidders import Bidder, Classes
from tfjob.arbiting.observing import Labels, Seen, is_room
from tfjob.arbiting.seen import ClassSeen, NodeSeen, QuotaSeen, class_seen, node_seen, pod_seen, quota_seen
from tfjob.arbiting.tally import Pods
from tfjob.model.kinds import NODES, PODS, PRIORITY_CLASSES, RESOURCE_QUOTAS, Manifest, Resource
from tfjob.operator.arbiter.following import Keyed, Shelf, Store, follow
from tfjob.operator.arbiter.queues import Queues
from tfjob.operator.running import together
from tfjob.operator.sight import EVERYWHERE, Missing, Namespaces, Right, Sight, verb_of

log = logging.getLogger(__name__)
NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
"""Fields of the pods that are sent at all."""

AGAIN_SECONDS = 5.0
NO_NODES = (
    "the arbiter sees no nodes: ResourceQuotas (CPU and memory) of the jobs' namespaces are all the room that it knows, and "
    "where there is none it decides nothing and jobs have what they want; prices of nodes, and nodes that go, are not seen"
)
PODS_SO = "pods are as they were seen last; of a namespace whose pods were never seen no job is decided about"

T = TypeVar("T", bound=Keyed)


class Watch:
    """What there is in the cluster beside TFJobs, or as much of it as the operator may see."""

    def __init__(
        self, api: Api, namespaces: Namespaces, labels: Labels, changed: Callable[[], None], missing: Missing
    ) -> None:
        """`namespaces`: of the TFJobs that are run."""
        self._api, self._namespaces, self._labels, self._changed = api, namespaces, labels, changed
        self._missing = missing
        self.pods = Pods()
        self._nodes: Shelf[NodeSeen] = Shelf()
        self._quotas: Shelf[QuotaSeen] = Shelf()
        self._classes: Shelf[ClassSeen] = Shelf()
        self._sights: list[Sight] = []
        self.queues = Queues(api, namespaces, changed, missing)
        self.confined = ""
        """Why only the namespaces of the jobs can be seen; empty: all can."""

        self._classes_known = True
        self._asked = asyncio.Event()

    @property
    def synced(self) -> bool:
        return self._asked.is_set() and all(sight.asked.is_set() for sight in self._sights) and self.queues.synced

    async def wait(self) -> None:
        """Until all there is has been seen once, where it may be."""
        await self._asked.wait()
        for sight in self._sights:
            await sight.asked.wait()
        await self.queues.wait()

    def seen(self, bidders: list[Bidder]) -> Seen:
        nodes = None if self.confined else self._nodes.all()
        classes = Classes(self._classes.all(), self._classes_known)
        kueue, volcano = self.queues.kueue(), self.queues.volcano()
        return Seen(bidders, self.pods, nodes, self._quotas.all(), classes, self._labels, kueue, volcano)

    def knows_room(self, namespace: str) -> bool:
        """Of the jobs of a namespace."""
        return not self.confined or is_room(one for one in self._quotas.all() if one.namespace == namespace)

    async def run(self) -> None:
        """For ever. Rights in the whole cluster that come later count when the operator is started anew."""
        self.confined = await self._refusal(NODES, NO_NODES) or await self._refusal(PODS, NO_NODES)
        self._classes_known = not await self._refusal(
            PRIORITY_CLASSES, "jobs have the priority of their pods, and those without pods 0"
        )
        where = self._namespaces if self.confined else EVERYWHERE
        work = [
            *self._follow(PODS, where, pod_seen, self.pods, PODS_SO, NOT_ENDED),
            *self._follow(
                RESOURCE_QUOTAS,
                self._namespaces,
                quota_seen,
                self._quotas,
                "quotas there are as they were seen last, if ever",
            ),
        ]
        if not self.confined:
            work += self._follow(NODES, EVERYWHERE, node_seen, self._nodes, "nodes are as they were seen last")
        if self._classes_known:
            work += self._follow(
                PRIORITY_CLASSES, EVERYWHERE, class_seen, self._classes, "priorities are as they were seen last"
            )
        self._asked.set()
        await together([*work, *self.queues.work()])

    def _follow(
        self, resource: Resource, namespaces: Namespaces, see: Callable[[Manifest], T | None], store: Store[T], so: str,
        fields: str = "",
    ) -> list[Coroutine[Any, Any, None]]:  # fmt: skip
        sight = Sight(self._missing, resource, namespaces, so, lambda _: self._changed())
        self._sights.append(sight)
        return [
            follow(self._api, resource, namespace, see, store, self._changed, sight, fields=fields)
            for namespace in namespaces
        ]

    async def _refusal(self, resource: Resource, so: str) -> str:
        """Why objects of all namespaces may not be seen; empty: they may. Waits for a server that does not answer."""
        while True:
            try:
                await self._api.list_all(resource, None, fields="metadata.name=-", shrink=lambda _: None)
                return ""
            except ForbiddenError as error:
                self._missing.add(Right("", resource, verb_of(error) or "list"), error, so)
                return str(error)
            except (ApiError, UnreachableError) as error:
                log.warning("%s cannot be listed: %s; trying again", resource.plural, error)
                await asyncio.sleep(AGAIN_SECONDS)
