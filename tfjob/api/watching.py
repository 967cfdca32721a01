"""A list, then every change of it, for ever: how anything of the cluster is followed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from deeprec_ext.errors import UnreachableError
from deeprec_ext.retries import Sleep, pauses
from tfjob.api.client import Api, ApiError, ExpiredError, ForbiddenError
from tfjob.model.kinds import Manifest, Resource

log = logging.getLogger(__name__)

LISTED = "LISTED"
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 0.5, 10.0
"""After an error, and where watches end at once with nothing new, from the second on: doubled while nothing comes."""

Rights = Callable[[str, ForbiddenError | None], None]
"""(verb, what the server says of it): the right is missing, each time; None: it is there, likewise."""

AT_ONCE_SECONDS = 1.0
"""A watch that was over sooner was not ended by the server's own limit, which is minutes."""


async def changes(
    api: Api, resource: Resource, namespace: str | None, *, labels: str = "", fields: str = "",
    sleep: Sleep = asyncio.sleep, clock: Callable[[], float] = time.monotonic,
    rights: Rights | None = None, shrink: Callable[[Manifest], Any] | None = None,
) -> AsyncIterator[tuple[str, list[Any] | Manifest]]:  # fmt: skip
    """("LISTED", all objects) first, and again where changes may have been missed; ("ADDED" | "MODIFIED" | "DELETED", object).

    Args:
        shrink: what is listed of each object; those of the watch come whole.
        rights: told which are missing, which are waited for, and which are there; without it ForbiddenError is raised.

    Everything else is tried again.
    """
    given = rights or (lambda *_: None)
    version, nothing, waits = "", 0, pauses(PAUSE_SECONDS, PAUSE_MAX_SECONDS)
    while True:
        began, news, failed = clock(), False, False
        try:
            if not version:
                found, version = await api.list_all(resource, namespace, labels=labels, fields=fields, shrink=shrink)
                given("list", None)
                yield LISTED, found
                began = clock()
            async for kind, one in api.watch(resource, namespace, version, labels=labels, fields=fields):
                given("watch", None)
                news = news or one["metadata"]["resourceVersion"] != version
                version = one["metadata"]["resourceVersion"]
                if kind != "BOOKMARK":
                    yield kind, one
            given("watch", None)
        except ExpiredError:
            version = ""
        except (UnreachableError, ApiError) as error:
            if not isinstance(error, ForbiddenError):
                log.warning("%s cannot be watched: %s; trying again", resource.plural, error)
            elif rights is None:
                raise
            else:
                rights("watch" if version else "list", error)
            failed = True
        if news or (not failed and clock() - began >= AT_ONCE_SECONDS):
            nothing, waits = 0, pauses(PAUSE_SECONDS, PAUSE_MAX_SECONDS)
        else:
            nothing += 1
        if failed or nothing > 1:
            await sleep(next(waits))
