"""Without an arbiter: what one has allowed before is taken back, or jobs would be held to the last word of nobody."""

from __future__ import annotations

import asyncio
import logging

from deeprec_ext.errors import UnreachableError
from tfjob.api.client import Api, ApiError, ConflictError, NotFoundError
from tfjob.model import names
from tfjob.model.kinds import TFJOBS
from tfjob.operator.controller import Controller
from tfjob.operator.informer import Key, version_of

log = logging.getLogger(__name__)
LOOK_SECONDS = 10.0


async def undo(api: Api, controller: Controller) -> None:
    """For ever; only while we lead. Looks at what is known already: where nothing is to be done, nothing is asked."""
    await controller.listed.wait()
    while True:
        for key in list(controller.jobs):
            await take_back(api, controller, key, "there is no arbiter any more")
        await asyncio.sleep(LOOK_SECONDS)


async def take_back(api: Api, controller: Controller, key: Key, why: str) -> None:
    """What a job was allowed, if it was; what fails is told, and is for the next look."""
    manifest = controller.jobs.get(key)
    if manifest is None or names.ALLOWANCE_ANNOTATION not in (manifest["metadata"].get("annotations") or {}):
        return
    metadata = {"annotations": {names.ALLOWANCE_ANNOTATION: None}, "resourceVersion": version_of(manifest)}
    try:
        controller.job_changed(await api.patch(TFJOBS, *key, {"metadata": metadata}))
        log.info("%s/%s may have what it wants: %s", *key, why)
    except (ConflictError, NotFoundError):  # the watch shows what it is now
        return
    except (ApiError, UnreachableError, asyncio.TimeoutError) as error:
        log.warning("%s/%s: its allowance could not be taken back: %s; trying again", *key, error)
