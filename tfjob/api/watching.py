"""A list, then every change of it, for ever: how anything of the cluster is followed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from deeprec_ext.errors import UnreachableError
from tfjob.api.client import Api, ApiError, ExpiredError, ForbiddenError
from tfjob.model.kinds import Manifest, Resource

log = logging.getLogger(__name__)

LISTED = "LISTED"
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.5, 10.0
"""After a broken watch: doubled while nothing comes."""

Sleep = Callable[[float], Awaitable[None]]


async def changes(
    api: Api, resource: Resource, namespace: str | None, *, labels: str = "", fields: str = "",
    sleep: Sleep = asyncio.sleep,
) -> AsyncIterator[tuple[str, list[Manifest] | Manifest]]:  # fmt: skip
    """("LISTED", all objects) first, and again where changes may have been missed; ("ADDED" | "MODIFIED" | "DELETED", object).

    Raises ForbiddenError: waiting does not help. Everything else is tried again.
    """
    version, pause = "", PAUSE_SECONDS
    while True:
        try:
            if not version:
                found, version = await api.list_all(resource, namespace, labels=labels, fields=fields)
                yield LISTED, found
            async for kind, one in api.watch(resource, namespace, version, labels=labels, fields=fields):
                version, pause = one["metadata"]["resourceVersion"], PAUSE_SECONDS
                if kind != "BOOKMARK":
                    yield kind, one
        except ForbiddenError:
            raise
        except ExpiredError:
            version = ""
            continue
        except (UnreachableError, ApiError) as error:
            log.warning("%s cannot be watched: %s", resource.plural, error)
        await sleep(pause)
        pause = min(2 * pause, PAUSE_MAX_SECONDS)
