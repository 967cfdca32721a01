"""A list, then every change of it, for ever: how anything of the cluster is followed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from deeprec_ext.errors import UnreachableError
from deeprec_ext.retries import Sleep, pauses
from tfjob.api.client import Api, ApiError, ExpiredError, ForbiddenError
from tfjob.model.kinds import Manifest, Resource

log = logging.getLogger(__name__)

LISTED = "LISTED"
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.5, 10.0
"""Between two watches: doubled while nothing comes."""


async def changes(
    api: Api, resource: Resource, namespace: str | None, *, labels: str = "", fields: str = "",
    sleep: Sleep = asyncio.sleep, forbidden_ends: bool = True,
) -> AsyncIterator[tuple[str, list[Manifest] | Manifest]]:  # fmt: skip
    """("LISTED", all objects) first, and again where changes may have been missed; ("ADDED" | "MODIFIED" | "DELETED", object).

    Args:
        forbidden_ends: raises ForbiddenError where rights are missing; else it waits for them.

    Everything else is tried again.
    """
    version, waits = "", pauses(PAUSE_SECONDS, PAUSE_MAX_SECONDS)
    while True:
        try:
            if not version:
                found, version = await api.list_all(resource, namespace, labels=labels, fields=fields)
                yield LISTED, found
            async for kind, one in api.watch(resource, namespace, version, labels=labels, fields=fields):
                version, waits = one["metadata"]["resourceVersion"], pauses(PAUSE_SECONDS, PAUSE_MAX_SECONDS)
                if kind != "BOOKMARK":
                    yield kind, one
        except ExpiredError:
            version = ""
            continue
        except (UnreachableError, ApiError) as error:
            if forbidden_ends and isinstance(error, ForbiddenError):
                raise
            level = logging.ERROR if isinstance(error, ForbiddenError) else logging.WARNING
            log.log(level, "%s cannot be watched: %s; trying again", resource.plural, error)
        await sleep(next(waits))
