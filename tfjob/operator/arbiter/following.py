"""How objects of one kind are followed, and kept as little as is needed of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from tfjob.api.client import Api
from tfjob.api.watching import changes
from tfjob.arbiting.seen import Key
from tfjob.model.kinds import Manifest, Resource
from tfjob.operator.informer import name_of
from tfjob.operator.sight import Sight, within


class Keyed(Protocol):
    @property
    def key(self) -> Key: ...


T = TypeVar("T", bound=Keyed)


T_contra = TypeVar("T_contra", bound=Keyed, contravariant=True)


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

    def clear(self) -> None:
        self._all.clear()

    def all(self) -> list[T]:
        return list(self._all.values())


async def follow(
    api: Api, resource: Resource, namespace: str | None, see: Callable[[Manifest], T | None], store: Store[T],
    changed: Callable[[], None], sight: Sight, *, fields: str = "", gone_ends: bool = False,
) -> None:  # fmt: skip
    """For ever.

    Args:
      see: what is kept of an object; None: it does not count.
      changed: called when something in the store has.
      sight: told what has been listed, and which rights are missing.
      gone_ends: raises NotFoundError where there is no such kind (any more).
    """
    begun, rights = False, sight.rights(namespace)
    watched = changes(api, resource, namespace, fields=fields, rights=rights, shrink=see, gone_ends=gone_ends)
    async for kind, found in watched:
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
