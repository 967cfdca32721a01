"""Nodes, all pods, quotas and priority classes, followed: of each only what the arbiter needs is kept."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from deeprec_ext.errors import UnreachableError
from tfjob.api.client import Api, ApiError, ForbiddenError
from tfjob.api.watching import changes
from tfjob.arbiting.bidders import Bidder, Classes
from tfjob.arbiting.observing import Labels, Seen, is_room
from tfjob.arbiting.seen import ClassSeen, Key, NodeSeen, QuotaSeen, class_seen, node_seen, pod_seen, quota_seen
from tfjob.arbiting.tally import Pods
from tfjob.model.kinds import NODES, PODS, PRIORITY_CLASSES, RESOURCE_QUOTAS, Manifest, Resource
from tfjob.operator.informer import name_of
from tfjob.operator.running import together
from tfjob.operator.sight import EVERYWHERE, Missing, Namespaces, Right, Sight, verb_of, within

log = logging.getLogger(__name__)
NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
"""Fields of the pods that are sent at all."""

AGAIN_SECONDS = 5.0
NO_NODES = (
    "the arbiter sees no nodes: ResourceQuotas (CPU and memory) of the jobs' namespaces are all the room that it knows, and "
    "where there is none it decides nothing and jobs have what they want; prices of nodes, and nodes that go, are not seen"
)


class _Keyed(Protocol):
    @property
    def key(self) -> Key: ...


T = TypeVar("T", bound=_Keyed)


T_contra = TypeVar("T_contra", bound=_Keyed, contravariant=True)


class Store(Protocol[T_contra]):
    """Whether anything is another than before is what `put` and `drop` return."""

    def keys(self) -> set[Key]: ...

    def put(self, one: T_contra, /) -> bool: ...

    def drop(self, key: Key, /) -> bool: ...


class Shelf(Generic[T]):
    """A store that only keeps."""

    def __init__(self) -> None:
        self._all: dict[Key, T] = {}

    def keys(self) -> set[Key]:
        return set(self._all)

    def put(self, one: T) -> bool:
        changed = self._all.get(one.key) != one
        self._all[one.key] = one
        return changed

    def drop(self, key: Key) -> bool:
        return self._all.pop(key, None) is not None

    def all(self) -> list[T]:
        return list(self._all.values())


async def follow(
    api: Api, resource: Resource, namespace: str | None, see: Callable[[Manifest], T | None], store: Store[T],
    changed: Callable[[], None], sight: Sight, *, fields: str = "",
) -> None:  # fmt: skip
    """For ever.

    Args:
      see: what is kept of an object; None: it does not count.
      changed: called when something in the store has.
      sight: told what has been listed, and which rights are missing.
    """
    begun, rights = False, sight.rights(namespace)
    async for kind, found in changes(api, resource, namespace, fields=fields, rights=rights, shrink=see):
        if isinstance(found, list):
            there: list[T] = [one for one in found if one is not None]
            gone = set(filter(functools.partial(within, namespace), store.keys())) - {one.key for one in there}
            news = any([*(store.drop(key) for key in gone), *(store.put(one) for one in there)])
            news, begun = news or not begun, True
            sight.listed(namespace)
        else:
            one = None if kind == "DELETED" else see(found)
            news = store.drop(name_of(found)) if one is None else store.put(one)
        if news:
            changed()


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
        self.confined = ""
        """Why only the namespaces of the jobs can be seen; empty: all can."""

        self._classes_known = True
        self._asked = asyncio.Event()

    @property
    def synced(self) -> bool:
        return self._asked.is_set() and all(sight.asked.is_set() for sight in self._sights)

    async def wait(self) -> None:
        """Until all there is has been seen once, where it may be."""
        await self._asked.wait()
        for sight in self._sights:
            await sight.asked.wait()

    def seen(self, bidders: list[Bidder]) -> Seen:
        nodes = None if self.confined else self._nodes.all()
        classes = Classes(self._classes.all(), self._classes_known)
        return Seen(bidders, self.pods, nodes, self._quotas.all(), classes, self._labels)

    def knows_room(self, namespace: str) -> bool:
        """Of the jobs of a namespace."""
        return not self.confined or is_room(one for one in self._quotas.all() if one.namespace == namespace)

    async def run(self) -> None:
        """For ever. Rights in the whole cluster that come later count when the operator is started anew."""
        self.confined = await self._refusal(NODES, NO_NODES) or await self._refusal(PODS, NO_NODES)
        self._classes_known = not await self._refusal(PRIORITY_CLASSES, "all jobs have one priority")
        where = self._namespaces if self.confined else EVERYWHERE
        work = [
            *self._follow(PODS, where, pod_seen, self.pods, "no job is decided about there", NOT_ENDED),
            *self._follow(
                RESOURCE_QUOTAS, self._namespaces, quota_seen, self._quotas, "quotas are not looked at there"
            ),
        ]
        if not self.confined:
            work += self._follow(NODES, EVERYWHERE, node_seen, self._nodes, NO_NODES)
        if self._classes_known:
            work += self._follow(PRIORITY_CLASSES, EVERYWHERE, class_seen, self._classes, "as they were")
        self._asked.set()
        await together(work)

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
