"""The AIMaster of a TFJob as a process: everything of this package wired together, from the first look to the exit code.

| exit code | means |
|---|---|
| 0 | the job has succeeded |
| 1 or 2, with a termination message | it has failed, or cannot be run as it is written |
| 1 without one | this AIMaster could not go on: the kubelet starts another |
| 143 | it was told to end (the node is drained, a probe failed): training goes on, and another AIMaster takes over |
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import math
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import IO, Any

from deeprec_ext.aimaster.core.records import Requests
from deeprec_ext.aimaster.hosting import EXIT_FAILED, EXIT_USAGE, Hosted
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.kubernetes.backend import SIGTERM_EXIT_CODE, KubernetesBackend
from deeprec_ext.aimaster.kubernetes.describing import occupy
from deeprec_ext.aimaster.kubernetes.ending import TERMINATION_LOG, Ending, leave_word
from deeprec_ext.aimaster.kubernetes.following import Follower
from deeprec_ext.aimaster.kubernetes.keeping import Content, Keeper, bring_back
from deeprec_ext.aimaster.kubernetes.leaving import end_again, gather, report
from deeprec_ext.aimaster.kubernetes.making import insist
from deeprec_ext.aimaster.kubernetes.naming import Naming
from deeprec_ext.aimaster.kubernetes.reclaim import Reclaim
from deeprec_ext.aimaster.kubernetes.remembering import Remembering
from deeprec_ext.aimaster.kubernetes.replicas import Replicas, ReplicasMaker
from deeprec_ext.aimaster.kubernetes.reporting import Reporter
from deeprec_ext.aimaster.kubernetes.snapshot import Snapshot, SnapshotError
from deeprec_ext.aimaster.kubernetes.written import Source, find, make_factory
from deeprec_ext.aimaster.metrics import cost
from deeprec_ext.aimaster.parking.parking import Parking
from deeprec_ext.aimaster.parking.supervisor import Supervisor
from deeprec_ext.aimaster.rebuilding import opening
from deeprec_ext.aimaster.rpc.server import AIMaster
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.errors import DeepRecError, StaleError, UsageError, one_line
from deeprec_ext.options import JobSpec
from tfjob.api.client import Api
from tfjob.model import names
from tfjob.model.annotations import sizes
from tfjob.model.spec import TFJob
from tfjob.pods import rights

log = logging.getLogger(__name__)

START_SECONDS = 120.0
"""How long the API server is asked for the job: the kubelet would start this process again ever more slowly."""

AS_WRITTEN = "as the TFJob says"

COUNT_SECONDS = 5.0
"""Between two counts of what pods use: the last of a job lacks so much."""

LAST_WORDS_SECONDS = 3.0
"""How long the last events may take on their way to the API server."""


async def serve(options: argparse.Namespace, spec: JobSpec, termination_log: Path = TERMINATION_LOG) -> int:
    """Until the job has ended, or this AIMaster has to; returns the exit code. Raises DeepRecError."""
    try:
        async with Api.from_environment() as api:
            return await serve_with(api, options, spec, termination_log)
    except UsageError as error:  # it would be the same again: the operator tells the user
        log.error("%s", error)
        leave_word(termination_log, str(error))
        return EXIT_USAGE


async def serve_with(api: Api, options: argparse.Namespace, spec: JobSpec, termination_log: Path) -> int:
    namespace, _, name = options.tfjob.partition("/")
    source = await insist(
        f"give {options.tfjob}", lambda: find(api, namespace, name, operator=spec.operator), START_SECONDS
    )
    holder = f"{socket.gethostname()}/{secrets.token_hex(4)}"
    keeper = Keeper(
        api, namespace, rights.state_name(name), holder=holder, owner=source.owner, labels=names.job_labels(name)
    )
    snapshot, damage = await _load(keeper)
    if keeper.summary:
        return end_again(keeper.summary, termination_log)
    if snapshot is not None and snapshot.cluster.formed:  # whatever the annotations say by now: a job keeps its slots
        spec = dataclasses.replace(spec, slots=len(snapshot.cluster.slot_map))
    if not source.makes_workers:
        spec = dataclasses.replace(spec, max_workers=0)
    written, remembering = spec, Remembering.of(source, options.history, options.history_certs)
    if remembering.estimates(spec):
        spec = dataclasses.replace(spec, start=AS_WRITTEN, script=remembering.script)
    if snapshot is None or not snapshot.roles:  # nothing of the job exists yet
        spec = await remembering.first(spec)
        ps, workers = spec.within_first(spec.ps, spec.workers)
        spec = dataclasses.replace(spec, ps=ps, workers=workers)
    naming = Naming(name, source.job.chief)
    domain = os.environ.get("CUSTOM_CLUSTER_DOMAIN", "")
    factory = make_factory(source, spec.slots, spec.package_image, domain, spec.gang_scheduler)
    uid, limit = source.owner["uid"], spec.settings.restarts_max
    replicas = None if spec.own_pods else Replicas(api, namespace, naming)
    maker = None if replicas is None else ReplicasMaker(api, namespace, naming, uid, replicas, asyncio.sleep)
    backend = KubernetesBackend(api, namespace, naming, factory, uid, restarts_max=limit, maker=maker)
    if damage is not None and not any(pod.state == "running" for pod in await backend.existing()):
        raise damage  # with agents that live it is as good as none
    lock = occupy(spec, options.listen, options.certs, snapshot.began if snapshot is not None else 0.0)
    try:

        async def begin() -> _Running:
            await bring_back(spec, backend, options.certs, options.listen, snapshot)
            return _Running(
                api, source, spec, backend, keeper, options.certs, termination_log, lock, written, remembering
            )

        running = await opening.opened(spec, options.certs, options.listen, begin)
        if replicas is not None and maker is not None:
            running.beside(replicas, maker)
        return await running.run(options.listen, options.http)
    finally:
        if lock is not None:
            lock.close()


async def _load(keeper: Keeper) -> tuple[Snapshot | None, SnapshotError | None]:
    try:
        return await insist("give the snapshot of the job's state", keeper.load, START_SECONDS), None
    except SnapshotError as error:
        log.warning("%s", error)
        return None, error


def has_trained(job: Job, name: str) -> bool:
    """What `restarting` asks: of the chief, whether it has trained; of another, whether anybody has."""
    if name.startswith("chief-"):
        return name in job.members.trained or (job.resumed and job.cluster.live)
    return job.members.has_trained


def trained_seconds(job: Job, name: str) -> float:
    """The same of its last process: for how long; infinity where that is not known any more."""
    member = job.members.get(name)
    return member.age_seconds(job.clock.monotonic()) if member is not None else math.inf


def written_roles(job: TFJob) -> dict[str, int]:
    """Role → processes of the job as its user wrote it, of every role that is charged."""
    first = sizes(job, names.STARTED_WITH_ANNOTATION)
    workers = first.get(names.WORKER, 0) - (not job.chief)  # worker 0 is the chief
    return {"ps": first.get(names.PS, 0), "chief": 1, "worker": workers, "evaluator": first.get(names.EVALUATOR, 0)}


class ParkedOnce:
    """What the operator, or the supervision, asks for: in the background, and once.

    What cannot be parked is not left half parked: this AIMaster ends, and the next one comes back to the job as it runs, and is
    asked again if it is still to be parked.
    """

    def __init__(
        self, parking: Parking, follower: Follower, backend: KubernetesBackend, give_up: Callable[[Exception], None]
    ) -> None:
        self._parking, self._follower, self._backend, self._give_up = parking, follower, backend, give_up
        self._task: asyncio.Task[None] | None = None

    def begin(self, why: str, again_seconds: float | None = None) -> None:
        """`again_seconds`: by this AIMaster's own decision, until there may be room; None: by the operator's."""
        if self._task is None:
            self._backend.closed = True  # nothing is made any more
            self._task = asyncio.get_running_loop().create_task(self._run(why, again_seconds))

    async def _run(self, why: str, again_seconds: float | None) -> None:
        try:
            kept = await self._parking.run(why)
            if await self._follower.say_parked(kept, "" if again_seconds is None else why, again_seconds or 0.0):
                return
            failure: Exception = DeepRecError("it is not to be parked any more, and has stopped already")
        except StaleError as error:
            log.error("%s", error)
            return
        except Exception as error:
            log.exception("what there is could not be kept")
            failure = DeepRecError(f"the job could not be parked: {one_line(error)}")
        await self._parking.let_go()
        self._give_up(failure)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()


class _Running:
    def __init__(
        self, api: Api, source: Source, spec: JobSpec, backend: KubernetesBackend, keeper: Keeper, certs: str | None,
        termination_log: Path, lock: IO[str] | None, written: JobSpec, remembering: Remembering,
    ) -> None:  # fmt: skip
        """`written`: as the TFJob says; `spec` may begin with other sizes."""
        self._lock, self._remembering = lock, remembering
        self._spec, self._backend, self._keeper, self._certs = spec, backend, keeper, certs
        self._master = master = AIMaster(spec, backend, certs, jobs=remembering.jobs if spec.start else None)
        self._job = job = master.job
        if (beginning := master.beginning) is not None:
            beginning.written = Size(written.ps, written.workers)
            beginning.decided = lambda start: remembering.decided(start, job, backend)
        backend.trained = lambda name: has_trained(job, name)
        backend.trained_seconds = lambda name: trained_seconds(job, name)
        if spec.own_pods:
            backend.spot, backend.spot_seconds = source.elastic.spot, spec.settings.spot_wait_seconds
            backend.fell_back = lambda name, why: job.event("on_demand", name, reason=why)
        namespace = source.job.namespace
        self._reporter = Reporter(api, namespace, source.about, job)
        naming = Naming(source.job.name, source.job.chief)
        follower = Follower(api, namespace, naming, job, master.scalings, backend, written=written)
        self._follower = follower if source.followed else None
        master.exchange, master.written = self._follower, written
        self._parking = ParkedOnce(Parking(job, master.scalings), follower, backend, master.give_up)
        self._supervisor: Supervisor | None = None
        if source.followed and spec.own_pods:
            follower.park = self._parking.begin
            self._supervisor = Supervisor(job, backend, self._parking.begin, master.begin_with)
        self._reclaim = Reclaim(api, job, master.scalings, backend)
        backend.reclaimed = self._reclaim.deleted
        self._written = written_roles(source.job)
        self._ending = Ending(job, master.pods, backend, termination_log)

    def beside(self, replicas: Replicas, maker: ReplicasMaker) -> None:
        """Kubeflow makes the pods: the numbers go through the TFJob."""
        follower, members = self._follower, self._job.members
        if follower is None:
            raise UsageError(
                "beside Kubeflow and without an operator exclude each other: without a TFJob nobody makes pods"
            )
        replicas.looked, replicas.wrote, replicas.wanted = follower.look, follower.wrote, follower.sizes
        replicas.coming = lambda: self._job.lock.names(Hold.NEW_PODS)
        maker.wants = lambda name: (record := members.record(name)) is not None and record.wanted

    async def run(self, listen: str, http: str | None) -> int:
        host, loop = Hosted(self._master), asyncio.get_running_loop()
        tasks: list[asyncio.Future[Any]] = []
        try:
            self._remembering.begin(self._job, self._backend)
            await self._keeper.claim(self._job)
            await self._take_sizes()
            await self._backend.begin()
            await host.begin(listen, http, self._certs)
            ending = loop.create_task(self._ending.run())
            beside = {
                "its state is not kept in the ConfigMap": self._keeper.run(),
                "there are no Events of the job": self._reporter.run(),
                "nodes are not watched": self._reclaim.watch(),
                "what it costs is not counted": self._count(),
            }
            if self._follower is not None:
                beside["the TFJob is not followed"] = self._follower.watch()
                beside["the TFJob does not say what runs"] = self._follower.report()
            if self._supervisor is not None:
                beside["what waits for room is not looked at"] = self._supervisor.run()
            tasks += [ending, *(loop.create_task(self._beside(what, work)) for what, work in beside.items())]
            await host.until_over(ending)
            return await self._leave(ending, stopped=host.stopped)
        finally:
            self._reclaim.close()
            self._parking.close()
            await host.close(*tasks)

    async def _count(self) -> None:
        """For ever: what its pods have used, and what that costs."""
        job = self._job
        accounts: dict[str, cost.Account] = job.store.read(cost.KEY, cost.from_json, {})
        before = job.clock.monotonic()
        while True:
            await asyncio.sleep(COUNT_SECONDS)
            now = job.clock.monotonic()
            accounts = cost.charged(accounts, self._backend.on_nodes(), self._reclaim.prices, now - before)
            before = now
            if not accounts:
                continue
            job.store.put(**{cost.KEY: cost.to_json(accounts), cost.TOLD: cost.told(accounts, self._written)})

    async def _take_sizes(self) -> None:
        """What the roles were given by an earlier AIMaster."""
        asked, first = self._job.requests, Requests.of(self._spec)
        for role in ("ps", "worker"):
            values = [getattr(asked, f"{role}_{what}") for what in ("cpu", "memory_bytes")]
            if values != [getattr(first, f"{role}_{what}") for what in ("cpu", "memory_bytes")]:
                await self._backend.resize(role, float(values[0]), int(values[1]))

    async def _beside(self, what: str, work: Awaitable[None]) -> None:
        """Training goes on without it."""
        try:
            await work
        except StaleError as error:
            log.error("%s", error)
        except Exception as error:
            log.exception("%s", what)
            self._job.event("warning", text=f"{what}: {error}")

    async def _leave(self, ending: asyncio.Task[int], *, stopped: bool) -> int:
        job = self._job
        if not ending.done():
            ending.cancel()
            await asyncio.wait([ending])
            if job.stale.is_set():
                return EXIT_FAILED
            if self._master.failure is not None:
                job.event("broken", reason=str(self._master.failure))
            await self._say_last_words()
            return SIGTERM_EXIT_CODE if stopped else EXIT_FAILED
        code = ending.result()
        if self._lock is not None:
            self._lock.close()  # the job has ended: so the report says, too
        files = await self._gather()
        await self._keep(files)
        await self._say_last_words()
        if self._follower is not None:
            await self._follower.conclude()
        if files and (reports := await report(self._spec.workdir)):
            await self._keep({**files, **reports})
        await self._remembering.end(job)
        return code

    async def _gather(self) -> Mapping[str, str]:
        """What is kept of the job, without the report, which takes a while. Empty if there is nothing."""
        try:
            return await gather(self._spec.workdir)
        except OSError as error:
            log.error("there is no summary to keep: %s", error)
            return {}

    async def _keep(self, files: Mapping[str, Content]) -> None:
        try:
            await self._keeper.conclude(files)
        except DeepRecError as error:
            log.error("the summary is not kept: %s", error)

    async def _say_last_words(self) -> None:
        try:
            await self._job.keep()
        except DeepRecError as error:
            log.error("%s", error)
        await self._reporter.flush(LAST_WORDS_SECONDS)
