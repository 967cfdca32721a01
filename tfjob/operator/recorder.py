"""Kubernetes Events about TFJobs: what `kubectl describe tfjob` shows.

Two kinds: of a state (a name is taken, rights are missing), which comes with every look at the job and is written again only
after a while; and of what has just been done (a pod was created), which is written each time. Not worth an error: a job must
not wait for its events.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timezone

from deeprec_ext.errors import DeepRecError
from tfjob.api.client import Api, ForbiddenError
from tfjob.model import names
from tfjob.model.events import Event
from tfjob.model.kinds import EVENTS, Manifest
from tfjob.operator.sight import Missing, Right, verb_of
from tfjob.reconciling.observed import name_of

log = logging.getLogger(__name__)

AGAIN_SECONDS, REMEMBERED = 3600.0, 10_000

SINGLE = 20
"""Of more objects at once one Event tells: a job of 1 000 pods must not cost 2 000 Events. (client-go keeps back what is more
than 25 of one object, so Kubeflow's controller does not tell each of them either.)"""


class EventRecorder:
    """For one event loop. `writes` bounds requests at the same time, together with others'."""

    def __init__(self, api: Api, writes: asyncio.Semaphore, missing: Missing) -> None:
        self._api, self._writes, self._missing = api, writes, missing
        self._told: OrderedDict[tuple[str, Event], float] = OrderedDict()

    async def state(self, job: Manifest, event: Event) -> None:
        """The same one again only after a while."""
        told, now = (job["metadata"].get("uid", ""), event), time.monotonic()
        if now - self._told.get(told, -AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        self._told[told] = now
        self._told.move_to_end(told)
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        await self._write(job, event)

    async def done(self, job: Manifest, events: Sequence[Event]) -> None:
        """What has happened just now, see `created_or_deleted`."""
        await asyncio.gather(*(self._write(job, event) for event in events))

    async def _write(self, job: Manifest, event: Event) -> None:
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        metadata = {"generateName": f"{name}.", "namespace": namespace}
        body = event.manifest(metadata, about(job), names.CONTROLLER, datetime.now(timezone.utc))
        right = Right(namespace, EVENTS, "create")
        try:
            async with self._writes:
                await self._api.create(EVENTS, namespace, body)
            self._missing.given(right)
        except DeepRecError as error:
            if isinstance(error, ForbiddenError) and verb_of(error):
                self._missing.add(right, error, "Events are not written there")
                return
            log.warning("the event %s of %s was not written: %s", event.reason, name_of(job), error)


def created_or_deleted(verb: str, kind: str, objects: Sequence[str]) -> tuple[Event, ...]:
    """("Create", "Pod", names) → Events with reason and message as Kubeflow's controller has them."""
    reason, what = f"Successful{verb}{kind}", f"{verb}d {kind.lower()}"
    if len(objects) <= SINGLE:
        return tuple(Event("Normal", reason, f"{what}: {name}") for name in objects)
    shown = ", ".join(objects[:SINGLE])
    return (Event("Normal", reason, f"{what}s: {shown} and {len(objects) - SINGLE} more"),)


def about(job: Manifest) -> Manifest:
    """The job, or whatever else is told of, as an Event names it."""
    metadata = job["metadata"]
    return {
        "apiVersion": job.get("apiVersion") or names.API_VERSION, "kind": job.get("kind") or names.KIND,
        "name": metadata["name"], "namespace": metadata["namespace"],
        "uid": metadata.get("uid", ""), "resourceVersion": metadata.get("resourceVersion", ""),
    }  # fmt: skip
