"""Whether a cluster knows a kind yet."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from deeprec_ext.errors import UnreachableError
from tfjob.api.client import Api, ApiError, ForbiddenError, NotFoundError
from tfjob.model.kinds import Resource

log = logging.getLogger(__name__)


async def kind_is_known(
    api: Api, resource: Resource, namespaces: Sequence[str | None], hint: str, every_seconds: float,
    missing: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Waits until somebody has installed it. Where nothing may be asked it counts as known: whoever watches it says so.

    Args:
        namespaces: the first in which it may be asked for says it.
        hint: logged once where it is not.
        missing: called each time that it is not.
    """
    told = False
    while True:
        try:
            for namespace in namespaces:
                with contextlib.suppress(ForbiddenError):
                    await api.request("GET", resource.path(namespace), query={"limit": "1"})
                    break
            return
        except NotFoundError:
            if not told:
                log.warning("%s", hint)
            told = True
            missing()
        except (ApiError, UnreachableError) as error:
            log.warning("%s; trying again", error)
        await asyncio.sleep(every_seconds)
