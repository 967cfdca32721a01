"""Looks at everything there is of one job, lets `reconcile` decide, and carries that out."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from deeprec_ext.errors import DeepRecError, UsageError
from tfjob.api.client import Api, ApiError, ConflictError, ForbiddenError, NotFoundError
from tfjob.api.watching import changes
from tfjob.model import names
from tfjob.model.annotations import Elastic
from tfjob.model.events import FORBIDDEN, Event
from tfjob.model.kinds import PODS, SERVICES, TFJOBS, Manifest, Resource
from tfjob.operator.informer import Informer, Key, name_of, version_of
from tfjob.operator.job_counts import JobCounts
from tfjob.operator.priorities import Priorities
from tfjob.operator.queue import WorkQueue
from tfjob.operator.recorder import EventRecorder, created_or_deleted
from tfjob.operator.running import together, worked_off
from tfjob.operator.sight import Missing, Namespaces, Sight, within
from tfjob.reconciling.actions import Actions, Deletion
from tfjob.reconciling.observed import Observed, Options
from tfjob.reconciling.reconcile import reconcile

log = logging.getLogger(__name__)
WORKERS = 8
WRITES = 32
"""Requests at the same time that create or delete, of all jobs together."""

REFUSED_TOLD = 3
"""Of pods that the server refuses at once: they have one template, and the rest is the same again."""

TOLD = {PODS: "Pod", SERVICES: "Service"}
"""What is made and deleted with an Event each."""

NOT_RUN = "no job is run there"
SO = {TFJOBS: "no job is known there"}
"""What is done in a namespace where something may not be seen."""

MakeAIMaster = Callable[[Manifest, Elastic, Sequence[Manifest]], Awaitable[None]]
"""(TFJob, its options, its pods): sees to it that the AIMaster is there, with everything it needs."""

Decide = Callable[[Observed, datetime], Actions]


@dataclass
class Counts:
    """Since the start; shown as metrics."""

    reconciled: int = 0
    failed: int = 0
    created: dict[str, int] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    statuses: int = 0
    seconds: float = 0.0


class Controller:
    """`watch` sees, `act` acts; both for ever."""

    def __init__(
        self, api: Api, options: Options, namespaces: Namespaces, make_aimaster: MakeAIMaster,
        pod_groups: Resource | None = None, *, decide: Decide = reconcile, labels: str = names.JOB_LABEL,
    ) -> None:  # fmt: skip
        """`labels`: selector of the pods and services that are looked at; usually on replicas and on AIMasters."""
        self._decide = decide
        self._api, self._options, self._make_aimaster, self._pod_groups = api, options, make_aimaster, pod_groups
        self.jobs: dict[Key, Manifest] = {}
        self.queue: WorkQueue[Key] = WorkQueue()
        self.counts = Counts()
        self.job_counts = JobCounts()
        self.missing = Missing()
        self._priorities = Priorities(api, self.missing)
        self._sight = Sight(self.missing, TFJOBS, namespaces, SO[TFJOBS], self._sight_changed)
        self.listed = self._sight.seen
        """All jobs that there are have been seen, where they may be."""

        self.also: list[Callable[[Key], None]] = []
        """Told of each job that has come, changed or gone, and of each change of what it owns."""
        self.changed: Callable[[], None] = lambda: None
        """Called when a job has come, changed or gone."""
        self.undecided: Callable[[Key], bool] = lambda _: False
        """Whether the arbiter, where there is one, decides nothing about a job: then its word is not waited for."""

        self._informers = {
            resource: Informer(
                api, resource, labels, namespaces, _job_of, self._changed, self.missing, SO.get(resource, NOT_RUN),
                self._sight_changed,
            ) for resource in (PODS, SERVICES, *([pod_groups] if pod_groups else []))
        }  # fmt: skip
        self._writes = asyncio.Semaphore(WRITES)
        self.recorder = EventRecorder(api, self._writes, self.missing)

    # ------------------------------------------------------------------------------------------------ what is there

    def job_changed(self, found: Manifest) -> None:
        key = name_of(found)
        known = self.jobs.get(key)
        if known is None or not _older(found, known):
            self.jobs[key] = found
        self._changed(key)
        self.changed()

    def forget(self, key: Key) -> None:
        """It has been deleted; what it owned goes by its owner reference."""
        self.jobs.pop(key, None)
        for tell in self.also:
            tell(key)
        self.changed()

    def _changed(self, key: Key) -> None:
        self.queue.add(key)
        for tell in self.also:
            tell(key)

    def pods_of(self, key: Key) -> tuple[Manifest, ...]:
        """Those that are seen, by name."""
        return self._informers[PODS].of(key)

    def pod_group(self, key: Key) -> Manifest | None:
        groups = self._informers[self._pod_groups].of(key) if self._pod_groups else ()
        return groups[0] if groups else None

    @property
    def synced(self) -> bool:
        return self.listed.is_set() and all(informer.synced.is_set() for informer in self._informers.values())

    async def watch(self) -> None:
        """Jobs, and what they own; for ever."""
        await together([self._watch_jobs(), *(informer.run() for informer in self._informers.values())])

    async def _watch_jobs(self) -> None:
        await together(self._follow_jobs(namespace) for namespace in self._sight.namespaces)

    async def _follow_jobs(self, namespace: str | None) -> None:
        async for kind, found in changes(self._api, TFJOBS, namespace, rights=self._sight.rights(namespace)):
            if isinstance(found, list):
                known = {key for key in self.jobs if within(namespace, key)}
                for key in known - {name_of(one) for one in found}:
                    self.forget(key)
                for one in found:
                    self.job_changed(one)
                self._sight.listed(namespace)
            elif kind == "DELETED":
                self.forget(name_of(found))
            else:
                self.job_changed(found)

    def observe(self, key: Key) -> Observed:
        options = dataclasses.replace(self._options, arbiter_seconds=None) if self.undecided(key) else self._options
        return Observed(
            self.jobs[key], self._informers[PODS].of(key), self._informers[SERVICES].of(key), self.pod_group(key),
            options,
        )  # fmt: skip

    def sees(self, namespace: str) -> bool:
        """All there is of its jobs: else nothing is done about them."""
        sights = [self._sight, *(informer.sight for informer in self._informers.values())]
        return all(sight.sees(namespace) for sight in sights)

    def _sight_changed(self, namespace: str | None) -> None:
        for key in self.jobs:
            if within(namespace, key):
                self.queue.add(key)
        self.changed()

    # ------------------------------------------------------------------------------------------------ acting

    async def act(self) -> None:
        """For ever; only while we lead."""
        for sight in (self._sight, *(informer.sight for informer in self._informers.values())):
            await sight.asked.wait()
        for key in self.jobs:
            self.queue.add(key)
        await together(worked_off(self.queue, self.reconcile, log, self._looked) for _ in range(WORKERS))

    def _looked(self, failed: bool) -> None:
        self.counts.failed += failed

    async def reconcile(self, key: Key) -> Actions:
        """One look at one job. Raises ApiError and UnreachableError: then look again."""
        if key not in self.jobs:
            return Actions()
        if not self.sees(key[0]):
            await self._tell_missing(key)
            return Actions()
        priorities = await self._priorities.of(self.jobs[key]) if self._pod_groups else {}
        if key not in self.jobs:  # gone meanwhile
            return Actions()
        began = time.perf_counter()
        observed = dataclasses.replace(self.observe(key), priorities=priorities)
        actions = self._decide(observed, datetime.now(timezone.utc))
        self.counts.reconciled += 1
        self.counts.seconds += time.perf_counter() - began
        await self._carry_out(key, actions)
        if actions.again_seconds is not None:
            self.queue.add_after(key, actions.again_seconds)
        return actions

    async def _tell_missing(self, key: Key) -> None:
        """Why nothing is done about a job."""
        for text in self.missing.told(key[0], {TFJOBS, *self._informers})[:REFUSED_TOLD]:
            await self.recorder.state(self.jobs[key], Event("Warning", FORBIDDEN, f"the operator {text}"))

    async def _carry_out(self, key: Key, actions: Actions) -> None:
        """In the order of the fields of `Actions`; Events of what was made come last, so that no pod waits for them."""
        job, done = self.jobs[key], list[Event]()
        try:
            job = await self._write(key, job, actions, done)
        finally:
            await self.recorder.done(job, done)
        for event in actions.events:
            await self.recorder.state(job, event)
            self.job_counts.told(job, event)
        if actions.delete_job:
            await self._delete_job(key, job)

    async def _delete_job(self, key: Key, job: Manifest) -> None:
        try:
            deleted = await self._api.delete(TFJOBS, *key, uid=job["metadata"].get("uid", ""))
        except ApiError as error:
            await self.recorder.state(job, Event("Warning", "FailedDeleteJob", f"Error deleting: {error}"))
            raise
        if deleted:
            self.job_counts.deleted(job)
            await self.recorder.done(job, [Event("Normal", "SuccessfulDeleteJob", f"Deleted job: {key[1]}")])

    async def _write(self, key: Key, job: Manifest, actions: Actions, done: list[Event]) -> Manifest:
        """Everything but Events; the job as it is then. What was made is noted in `done`."""
        namespace, name = key
        if actions.annotations:
            metadata = {"annotations": dict(actions.annotations), "resourceVersion": version_of(job)}
            job = self.wrote(key, await self._api.patch(TFJOBS, namespace, name, {"metadata": metadata}))
        try:
            await self._delete(PODS, namespace, actions.delete_pods, done)
            await self._delete(SERVICES, namespace, actions.delete_services, done)
            if self._pod_groups is not None:
                if actions.delete_pod_group is not None:
                    await self._delete(self._pod_groups, namespace, (actions.delete_pod_group,), done)
                if actions.write_pod_group is not None:
                    await self._write_pod_group(key, actions.write_pod_group)
            if actions.status is not None:
                body = {**job, "status": actions.status}
                before, job = job, self.wrote(key, await self._api.replace(TFJOBS, namespace, body, "status"))
                self.counts.statuses += 1
                self.job_counts.status_written(before, job)
            await self._create(SERVICES, key, actions.create_services, done)
            await self._create(PODS, key, actions.create_pods, done)
            if actions.aimaster is not None:
                await self._ensure_aimaster(key, job, actions.aimaster)
        except ForbiddenError as error:  # rights that are too narrow, or a quota: the user has to know
            await self.recorder.state(job, Event("Warning", FORBIDDEN, str(error)))
            raise
        return job

    def wrote(self, key: Key, job: Manifest) -> Manifest:
        """Our own write counts at once; the watch shows it later."""
        known = self.jobs.get(key)
        if known is not None and not _older(job, known):
            self.jobs[key] = job
        for tell in self.also:
            tell(key)
        return job

    async def _create(
        self, resource: Resource, key: Key, bodies: Iterable[Manifest], done: list[Event]
    ) -> None:  # fmt: skip
        made: list[str] = []
        refused: list[Event] = []
        job = self.jobs.get(key)

        async def one(body: Manifest) -> None:
            async with self._writes:
                try:
                    created = await self._api.create(resource, key[0], body)
                    made.append(body["metadata"]["name"])
                except ConflictError:  # there already: seen late, or somebody else's, which is for `reconcile` to say
                    created = await self._api.get(resource, key[0], body["metadata"]["name"])
                    self.queue.add(key)
                except ApiError as error:
                    refused.append(_refused(TOLD.get(resource, ""), body["metadata"]["name"], error))
                    raise
            self._informers[resource].expect(key, created)

        try:
            await _all_of(one(body) for body in bodies)
        finally:
            _count(self.counts.created, "Create", resource, made, done)
            if job is not None and resource in TOLD:
                for event in sorted(refused, key=lambda one: one.message)[:REFUSED_TOLD]:
                    await self.recorder.state(job, event)

    async def _ensure_aimaster(self, key: Key, job: Manifest, options: Elastic) -> None:
        """Raises ApiError, UsageError; told as of any pod of the job."""
        try:
            await self._make_aimaster(job, options, self._informers[PODS].of(key))
        except (ApiError, UsageError) as error:
            if not isinstance(error, ConflictError):
                await self.recorder.state(job, _refused(TOLD[PODS], names.aimaster_name(key[1]), error))
            raise

    async def _delete(
        self, resource: Resource, namespace: str, deletions: Iterable[Deletion], done: list[Event]
    ) -> None:  # fmt: skip
        gone: list[str] = []

        async def one(deletion: Deletion) -> None:
            async with self._writes:
                if await self._api.delete(resource, namespace, deletion.name, uid=deletion.uid):
                    gone.append(deletion.name)

        try:
            await _all_of(one(deletion) for deletion in deletions)
        finally:
            _count(self.counts.deleted, "Delete", resource, gone, done)

    async def _write_pod_group(self, key: Key, body: Manifest) -> None:
        assert self._pod_groups is not None
        try:
            await self._api.patch(self._pod_groups, key[0], body["metadata"]["name"], {"spec": body["spec"]})
        except NotFoundError:
            await self._create(self._pod_groups, key, (body,), [])


def _refused(kind: str, name: str, error: DeepRecError) -> Event:
    """As the contract calls it."""
    return Event("Warning", f"FailedCreate{kind}", f"Error creating: {name}: {error}")


def _count(counts: dict[str, int], verb: str, resource: Resource, objects: list[str], done: list[Event]) -> None:
    """What was done; also of some of it, when the rest has failed."""
    if objects:
        counts[resource.plural] = counts.get(resource.plural, 0) + len(objects)
    if resource in TOLD:
        done.extend(created_or_deleted(verb, TOLD[resource], sorted(objects)))


def _job_of(found: Manifest) -> Key | None:
    name = (found["metadata"].get("labels") or {}).get(names.JOB_LABEL)
    return (found["metadata"].get("namespace", ""), name) if name else None


def _older(one: Manifest, other: Manifest) -> bool:
    """Whether it is an older state of the very same object."""
    same = one["metadata"].get("uid") == other["metadata"].get("uid")
    first, second = version_of(one), version_of(other)
    return same and first.isdigit() and second.isdigit() and int(first) < int(second)


async def _all_of(work: Iterable[Awaitable[None]]) -> None:
    """All of it, then the first error: one pod that cannot be made must not keep the others back."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
