"""Without an arbiter: what one has allowed before is taken back, or jobs would be held to the last word of nobody."""

from __future__ import annotations

import asyncio
import logging

from deeprec_ext.errors import UnreachableError
from tfjob.api.client import Api, ApiError, ConflictError, NotFoundError
from tfjob.model import names
from tfjob.model.kinds import TFJOBS
from tfjob.operator.controller import Controller
from tfjob.operator.informer import version_of

log = logging.getLogger(__name__)
LOOK_SECONDS = 10.0


async def undo(api: Api, controller: Controller) -> None:
    """For ever; only while we lead. Looks at what is known already: where nothing is to be done, nothing is asked."""
    await controller.listed.wait()
    while True:
        for key, manifest in list(controller.jobs.items()):
            if names.ALLOWANCE_ANNOTATION not in (manifest["metadata"].get("annotations") or {}):
                continue
            metadata = {"annotations": {names.ALLOWANCE_ANNOTATION: None}, "resourceVersion": version_of(manifest)}
            try:
                controller.job_changed(await api.patch(TFJOBS, *key, {"metadata": metadata}))
                log.info("%s/%s may have what it wants: there is no arbiter any more", *key)
            except (ConflictError, NotFoundError):  # the watch shows what it is now
                continue
            except (ApiError, UnreachableError, asyncio.TimeoutError) as error:
                log.warning("%s/%s: its allowance could not be taken back: %s; trying again", *key, error)
        await asyncio.sleep(LOOK_SECONDS)
