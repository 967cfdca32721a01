"""Nodes, all pods, quotas and priority classes, followed: of each only what the arbiter needs is kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from deeprec_ext.errors import UnreachableError
from tfjob.api.client import Api, ApiError, ForbiddenError
from tfjob.api.watching import changes
from tfjob.arbiting.bidders import Bidder, Classes
from tfjob.arbiting.observing import Labels, Seen
from tfjob.arbiting.seen import ClassSeen, Key, NodeSeen, QuotaSeen, class_seen, node_seen, pod_seen, quota_seen
from tfjob.arbiting.tally import Pods
from tfjob.model.kinds import NODES, PODS, PRIORITY_CLASSES, RESOURCE_QUOTAS, Manifest, Resource
from tfjob.operator.informer import name_of
from tfjob.operator.running import together

log = logging.getLogger(__name__)
NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
"""Fields of the pods that are sent at all."""

AGAIN_SECONDS = 5.0


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
    changed: Callable[[], None], listed: asyncio.Event, *, fields: str = "",
) -> None:  # fmt: skip
    """For ever.

    Args:
      see: what is kept of an object; None: it does not count.
      changed: called when something in the store has.
      listed: set once all there are have been seen.
    """
    watched = changes(api, resource, namespace, fields=fields, forbidden_ends=False, shrink=see)
    async for kind, found in watched:
        if isinstance(found, list):
            there: list[T] = [one for one in found if one is not None]
            gone = store.keys() - {one.key for one in there}
            news = any([*(store.drop(key) for key in gone), *(store.put(one) for one in there)])
            news = news or not listed.is_set()
            listed.set()
        else:
            one = None if kind == "DELETED" else see(found)
            news = store.drop(name_of(found)) if one is None else store.put(one)
        if news:
            changed()


class Watch:
    """What there is in the cluster beside TFJobs, or as much of it as the operator may see."""

    def __init__(self, api: Api, namespace: str | None, labels: Labels, changed: Callable[[], None]) -> None:
        """`namespace`: of the TFJobs that are run; None: all."""
        self._api, self._namespace, self._labels, self._changed = api, namespace, labels, changed
        self.pods = Pods()
        self._nodes: Shelf[NodeSeen] = Shelf()
        self._quotas: Shelf[QuotaSeen] = Shelf()
        self._classes: Shelf[ClassSeen] = Shelf()
        self._listed: dict[str, asyncio.Event] = {}
        self.confined = ""
        """Why only the namespace of the jobs can be seen; empty: all can."""

        self._classes_known = True
        self._asked = asyncio.Event()

    @property
    def synced(self) -> bool:
        return self._asked.is_set() and all(event.is_set() for event in self._listed.values())

    async def wait(self) -> None:
        """Until all there is has been seen once."""
        await self._asked.wait()
        for event in self._listed.values():
            await event.wait()

    def seen(self, bidders: list[Bidder]) -> Seen:
        nodes = None if self.confined else self._nodes.all()
        classes = Classes(self._classes.all(), self._classes_known)
        return Seen(bidders, self.pods, nodes, self._quotas.all(), classes, self._labels)

    async def run(self) -> None:
        """For ever. Rights that come later count when the operator is started anew."""
        self.confined = await self._refusal(NODES) or await self._refusal(PODS)
        self._classes_known = not await self._refusal(PRIORITY_CLASSES)
        if self.confined:
            log.error(
                "the arbiter sees no nodes: %s. Only jobs in namespaces with a ResourceQuota of CPU and memory are decided "
                "about, as if that were all the room there is; for the whole cluster give the operator the rights of "
                "tfjob/manifests/components/arbiter", self.confined,
            )  # fmt: skip
        where = self._namespace if self.confined else None
        work = [self._follow(PODS, where, pod_seen, self.pods, NOT_ENDED)]
        if why := await self._refusal(RESOURCE_QUOTAS, self._namespace):
            log.error("the arbiter does not look at quotas: %s", why)
        else:
            work.append(self._follow(RESOURCE_QUOTAS, self._namespace, quota_seen, self._quotas))
        if not self.confined:
            work.append(self._follow(NODES, None, node_seen, self._nodes))
        if self._classes_known:
            work.append(self._follow(PRIORITY_CLASSES, None, class_seen, self._classes))
        self._asked.set()
        await together(work)

    def _follow(
        self, resource: Resource, namespace: str | None, see: Callable[[Manifest], T | None], store: Store[T],
        fields: str = "",
    ) -> Awaitable[None]:  # fmt: skip
        listed = self._listed[resource.plural] = asyncio.Event()
        return follow(self._api, resource, namespace, see, store, self._changed, listed, fields=fields)

    async def _refusal(self, resource: Resource, namespace: str | None = None) -> str:
        """Why objects of a namespace, or of all, may not be seen; empty: they may. Waits for a server that does not answer."""
        while True:
            try:
                await self._api.list_all(resource, namespace, fields="metadata.name=-", shrink=lambda _: None)
                return ""
            except ForbiddenError as error:
                return str(error)
            except (ApiError, UnreachableError) as error:
                log.warning("%s cannot be listed: %s; trying again", resource.plural, error)
                await asyncio.sleep(AGAIN_SECONDS)
