"""Watches TrainingJobs, ScaleOuts and ScaleIns where the cluster knows them, and carries out what is decided for each name.

Every write names the version that it was decided for: what is decided from what was seen too late ends in a conflict, and is
decided anew. Nothing is kept here, so another operator goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timezone

from tfjob.api.client import Api, ApiError, ConflictError, ForbiddenError
from tfjob.api.known import kind_is_known
from tfjob.model.events import FORBIDDEN, Event
from tfjob.model.kinds import TFJOBS, Manifest
from tfjob.operator.controller import Controller
from tfjob.operator.informer import Informer, Key, name_of, version_of
from tfjob.operator.queue import WorkQueue
from tfjob.operator.running import together, worked_off
from tfjob.operator.sight import Namespaces
from tfjob.reconciling.et import looking, words
from tfjob.reconciling.et.scalers import selector_of

log = logging.getLogger(__name__)

WORKERS = 2
KIND_SECONDS = 30.0
"""How often to look whether a kind has been installed."""


NEVER = (400, 422)
"""What the server says of a manifest that it will not take however often it is sent."""


class Taking:
    """`watch` sees, `act` acts; both for ever. `own_pods`: TFJobs' pods are made here; else by Kubeflow's operator."""

    def __init__(self, api: Api, controller: Controller, namespaces: Namespaces, *, own_pods: bool = True) -> None:
        self._api, self._controller, self._namespaces, self._own_pods = api, controller, namespaces, own_pods
        self.queue: WorkQueue[Key] = WorkQueue()
        self._informers = {
            kind: Informer(
                api, resource, "", namespaces, _name_in(kind), self.queue.add, controller.missing,
                "of the ET operator's kinds nothing is done there", self._sight_changed,
            )
            for kind, resource in words.RESOURCES.items()
        }  # fmt: skip
        self._asked = {kind: asyncio.Event() for kind in words.RESOURCES}
        """Whether it is known, or not."""
        self._watched: set[str] = set()  # known

        controller.also.append(self._job_changed)

    # ------------------------------------------------------------------------------------------------ what is there

    async def watch(self) -> None:
        """A kind that is not installed is waited for, and keeps the others from nothing."""
        await together(self._watch(kind) for kind in words.RESOURCES)

    async def _watch(self, kind: str) -> None:
        resource = words.RESOURCES[kind]
        hint = f"this cluster does not know {kind}s ({words.API_VERSION}), of which --et would make something; waiting for them"
        await kind_is_known(self._api, resource, self._namespaces, hint, KIND_SECONDS, self._asked[kind].set)
        seen = asyncio.ensure_future(self._see(kind))
        try:
            await self._informers[kind].run()
        finally:
            seen.cancel()

    async def _see(self, kind: str) -> None:
        self._watched.add(kind)
        await self._informers[kind].sight.asked.wait()
        self._asked[kind].set()

    def _sees(self, namespace: str) -> bool:
        """All that there may be of a name: else a job would look as if it had no TrainingJob."""
        return all(self._informers[kind].sight.sees(namespace) for kind in self._watched)

    def _sight_changed(self, namespace: str | None) -> None:
        for informer in self._informers.values():
            for key in informer.jobs(namespace):
                self.queue.add(key)

    def _job_changed(self, key: Key) -> None:
        if any(informer.of(key) for informer in self._informers.values()):
            self.queue.add(key)

    def named(self, key: Key) -> looking.Named:
        training_jobs = self._informers[words.TRAINING_JOB].of(key)
        scalers = [
            {**one, "kind": kind, "apiVersion": words.API_VERSION}
            for kind in (words.SCALE_OUT, words.SCALE_IN) for one in self._informers[kind].of(key)
        ]  # fmt: skip
        return looking.Named(
            {**training_jobs[0], "kind": words.TRAINING_JOB, "apiVersion": words.API_VERSION} if training_jobs else None,
            self._controller.jobs.get(key), tuple(scalers), self._controller.pods_of(key), self._own_pods,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------ acting

    async def act(self) -> None:
        """Only while we lead. Begins when all kinds that there are have been seen: else a job would look as if it had no
        TrainingJob."""
        for asked in self._asked.values():
            await asked.wait()
        await together(worked_off(self.queue, self.look, log, lambda failed: None) for _ in range(WORKERS))

    async def look(self, key: Key) -> looking.Steps:
        """One look at one name. Raises ApiError and UnreachableError: then look again."""
        if not self._sees(key[0]):
            return looking.Steps()
        named, now = self.named(key), datetime.now(timezone.utc)
        steps = looking.decide(named, now)
        try:
            if steps.create is not None and named.training_job is not None:
                refusal = await self._create(key, steps.create)
                steps = looking.refuse(named.training_job, refusal, now) if refusal else steps
            await self._carry_out(key, steps)
        except ForbiddenError as error:
            about = [*(one for one, _ in (*steps.own, *steps.statuses)), named.training_job, named.tfjob]
            for one in [one for one in about if one is not None][:1]:
                await self._controller.recorder.state(one, Event("Warning", FORBIDDEN, str(error)))
            raise
        if steps.again_seconds is not None:
            self.queue.add_after(key, steps.again_seconds)
        return steps

    async def _create(self, key: Key, body: Manifest) -> str:
        """The TFJob; why the server will never take it, or nothing."""
        try:
            made = await self._api.create(TFJOBS, key[0], body)
        except ConflictError:  # an operator before us, or somebody else's
            made = await self._api.get(TFJOBS, *key)
        except ApiError as error:
            if error.status not in NEVER:
                raise
            return str(error)
        self._controller.job_changed(made)
        return ""

    async def _carry_out(self, key: Key, steps: looking.Steps) -> None:
        namespace = key[0]
        newer: dict[tuple[str, str], Manifest] = {}
        for one, owner in steps.own:
            newer[_ref(one)] = await self._own(namespace, one, owner)
        await self._patch(key, steps.take_back)
        for one, status in steps.statuses:
            body = {**newer.get(_ref(one), one), "apiVersion": words.API_VERSION, "kind": one["kind"], "status": status}
            await self._api.replace(words.RESOURCES[one["kind"]], namespace, body, "status")
        await self._patch(key, steps.patch)
        for one, event in steps.events:
            await self._controller.recorder.state(one, event)

    async def _patch(self, key: Key, patch: Manifest | None) -> None:
        if patch is not None:
            metadata = {**(patch.get("metadata") or {}), "resourceVersion": version_of(self._controller.jobs[key])}
            self._controller.job_changed(await self._api.patch(TFJOBS, *key, {**patch, "metadata": metadata}))

    async def _own(self, namespace: str, one: Manifest, owner: Manifest) -> Manifest:
        """So that it is deleted with its job, and the ET operator leaves it to us."""
        kind, version = owner.get("kind") or "TFJob", owner.get("apiVersion") or "kubeflow.org/v1"
        references = words.controller_of(owner, kind, version)
        body = {"metadata": {"ownerReferences": references, "resourceVersion": version_of(one)}}
        return await self._api.patch(words.RESOURCES[one["kind"]], namespace, name_of(one)[1], body)


def _ref(one: Manifest) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


def _name_in(kind: str) -> Callable[[Manifest], Key | None]:
    """Which name an object is looked at under."""
    if kind == words.TRAINING_JOB:
        return name_of

    def selected(found: Manifest) -> Key | None:
        name = selector_of(found)
        return (name_of(found)[0], name) if name else None

    return selected
