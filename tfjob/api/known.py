"""Whether a cluster knows a kind yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from deeprec_ext.errors import UnreachableError
from tfjob.api.client import Api, ApiError, NotFoundError
from tfjob.model.kinds import Resource

log = logging.getLogger(__name__)


async def kind_is_known(
    api: Api, resource: Resource, namespace: str | None, hint: str, every_seconds: float,
    missing: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Waits until somebody has installed it.

    Args:
        hint: logged once where it is not.
        missing: called each time that it is not.
    """
    told = False
    while True:
        try:
            await api.request("GET", resource.path(namespace), query={"limit": "1"})
            return
        except NotFoundError:
            if not told:
                log.warning("%s", hint)
            told = True
            missing()
        except (ApiError, UnreachableError) as error:
            log.warning("%s; trying again", error)
        await asyncio.sleep(every_seconds)
