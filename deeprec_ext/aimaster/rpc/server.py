"""All parts wired together, and the gRPC server around them."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from deeprec_ext.aimaster.core.clock import Clock
from deeprec_ext.aimaster.core.records import role_name
from deeprec_ext.aimaster.failover.failover import Failover
from deeprec_ext.aimaster.failover.failures import Failures
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.pods import recovery
from deeprec_ext.aimaster.pods.backend import PodBackend
from deeprec_ext.aimaster.pods.pods import Pods
from deeprec_ext.aimaster.rpc import listening
from deeprec_ext.aimaster.rpc.admin import AdminService
from deeprec_ext.aimaster.rpc.admission import Admission
from deeprec_ext.aimaster.rpc.authorisation import Authorisation
from deeprec_ext.aimaster.rpc.border import Border
from deeprec_ext.aimaster.rpc.inbox import Inbox
from deeprec_ext.aimaster.rpc.missing import Missing
from deeprec_ext.aimaster.rpc.service import AgentsService, agents_handlers
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.aimaster.store.storefile import AGAIN_SECONDS
from deeprec_ext.autoscaler.history.history import Finished
from deeprec_ext.autoscaler.loop import Arbitrated, make_autoscaler
from deeprec_ext.autoscaler.loop.beginning import Beginning
from deeprec_ext.autoscaler.loop.exchange import Exchange, Files
from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.options import JobSpec, Sizes
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import credentials
from deeprec_ext.security.credentials import Speakers

log = logging.getLogger(__name__)
STOP_SECONDS = 1.0
CANCELLED_AT_MOST = 5


class AIMaster:
    """One AIMaster. `start`, then wait for `ended`, then `stop`."""

    def __init__(
        self,
        spec: JobSpec,
        backend: PodBackend,
        certs: str | None,
        *,
        clock: Clock | None = None,
        settle_seconds: float = recovery.SETTLE_SECONDS,
        jobs: Callable[[], Sequence[Finished]] | None = None,
    ) -> None:
        """`jobs`: reads the finished jobs from which, and from what the chief declares, a first size that nobody has named
        follows; None: it is that of the specification."""
        self.job = job = Job(spec, Store(spec.workdir / "aimaster.db"), clock, certs)
        self._backend, self._certs, self._settle_seconds = backend, certs, settle_seconds
        failures = Failures(job)
        self._failover = Failover(job, failures)
        self.pods = Pods(job, backend, self._failover)
        self.scalings = ScalingQueue(job, self.pods, failures.recovering)
        self._failover.abort = self.scalings.abort
        self._failover.bring_back, self._failover.coming_back = self.scalings.bring_back, self.scalings.coming_back
        self._failover.remove, self.pods.without = self.pods.give_up, self.scalings.given_up
        self._admission = admission = Admission(job, self._failover, certs)
        missing = Missing(job, self._failover.begin_anew)
        inbox = Inbox(job, failures, self.scalings.pause_reported)
        inbox.kill, self.pods.failed = self.pods.restart, inbox.gone
        job.notices.kill = self.pods.restart
        self._agents = AgentsService(job, admission, inbox, missing, Speakers(certs))
        self.autoscaler = make_autoscaler(job, self.scalings, backend) if job.settings.autoscale else None
        estimated = jobs is not None and self.autoscaler is not None and bool(spec.start) and not spec.sums
        self.beginning = None
        if jobs is not None and estimated:
            self.beginning = Beginning(job, jobs, one_host=backend.one_host, free_bytes=backend.available_memory)
        if self.beginning is not None:
            self.beginning.chief_runs = lambda: self.pods.runs(role_name(pb.CHIEF, 0))
        self._admin = AdminService(job, self.scalings, self.autoscaler)
        self.exchange: Exchange | None = Files.of(job.settings)  # with an arbiter; None: there is none
        self.written: Sizes = spec  # by the user, where the job begins with other sizes
        self._server: grpc.aio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.broken = asyncio.Event()  # a task that must run for ever has ended ...
        self.failure: BaseException | None = None  # ... with this

    async def start(self, listen: str) -> int:
        """Serves, then starts or recovers the job in the background; returns the port. Raises UsageError."""
        while self.job.store.behind:  # the number of this AIMaster has to outlive it before anybody hears it
            await asyncio.sleep(AGAIN_SECONDS)
            self.job.store.try_again()
        server = grpc.aio.server(
            options=credentials.SERVER_OPTIONS,
            interceptors=[
                Authorisation(tls=self._certs is not None),
                Border(self.job.suspects.offended, self.job.handler_failed),
            ],
        )
        server.add_generic_rpc_handlers((agents_handlers(self._agents),))
        rpc.add_AdminServicer_to_server(self._admin, server)  # type: ignore[no-untyped-call]
        health = HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        services = [pb.DESCRIPTOR.services_by_name[name].full_name for name in ("Agents", "Admin")]
        names = [*services, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME]
        reflection.enable_server_reflection(names, server)
        for name in ("", *services):
            await health.set(name, health_pb2.HealthCheckResponse.SERVING)
        port = await listening.listen(server, listen, self._certs)
        if self.job.spec.resume:
            self.job.reopen()  # before anybody can ask how the job stands
        if self.beginning is not None and not self.job.cluster.formed:
            self.job.lock.take("the start", Hold.FIRST_VIEW)  # before anybody can register
        await server.start()
        self._server = server
        failover, arbitrated = self._failover, self._arbitrated()
        for coroutine in (
            self._begin(), self.pods.watch(), failover.watch_heartbeats(), failover.replace(), failover.bring_lost_back(),
            self.job.unwritten.run(), self.job.peer_backups.run(), self.job.trainer_backups.run(), self.job.disk.run(),
            self.job.replicated.run(), self.job.metrics.run(), self.job.expiring.run(),
            *([self.autoscaler.run()] if self.autoscaler is not None else []),
            *(arbitrated.work() if arbitrated is not None else []),
        ):  # fmt: skip
            task = asyncio.get_running_loop().create_task(coroutine)
            task.add_done_callback(self._task_done)
            self._tasks.append(task)
        return port

    def _arbitrated(self) -> Arbitrated | None:
        """Before anything has started: what a pool allows already is what the job starts with."""
        if self.exchange is None:
            self.job.allowed.forget()
            return None
        found = Arbitrated(self.job, self.scalings, self._backend, self.autoscaler, self.exchange, self.written)
        if isinstance(self.exchange, Files) and (text := self.exchange.first()) is not None:
            found.obeying.take(text)
        return found

    async def _begin(self) -> None:
        """Start or recover, then scalings for ever."""
        if self.job.spec.resume and self.job.members.records:
            await recovery.start_again(self.job, self.pods)
        elif self.job.resumed and self.job.members.records:
            await self.scalings.take_back_unheard(self._settle_seconds * self._failover.silence.stretch())
            await recovery.settle(self.job, self.pods, self._failover, self._settle_seconds)
            self.job.ledger.keep_only(member.incarnation for member in self.job.members)
        else:
            await self._start()
        if self.beginning is not None and not self.job.cluster.formed:
            await self._size(self.beginning)
        self.job.settled = True
        self.job.publish_soon()
        self.job.changed.notify()
        await self.scalings.run()

    async def _start(self) -> None:
        """Of the first size. Where the declared model decides on it, the chief and what its script alone lets expect start at
        once."""
        size = Size(self.job.spec.ps, self.job.spec.workers)
        if self.autoscaler is not None and self.beginning is None:
            size = self.autoscaler.start()
        most = self.job.allowed.most
        ps, workers = self.job.spec.within_first(size.ps, size.workers)
        await recovery.start(self.job, self.pods, min(ps, most("ps")), min(workers, most("worker")))

    async def _size(self, beginning: Beginning) -> None:
        """By the declared model, before the first view: also by an AIMaster that has come back before there was one."""
        assert self.autoscaler is not None
        size = self.autoscaler.start(await beginning.decide())
        ps, workers = self.job.spec.within_first(size.ps, size.workers)
        size = dataclasses.replace(size, ps=ps, workers=workers)
        if not self.job.cluster.formed:  # else it has begun with its least meanwhile
            await self.begin_with(size.ps, size.workers)
        self._tasks.append(asyncio.ensure_future(beginning.foretell(size)))

    async def begin_with(self, ps: int, workers: int) -> None:
        """Before the first view: this size, whatever was asked for; the view, if its PS are there. Raises UnreachableError."""
        await recovery.resize(self.job, self.pods, ps, workers)
        self.job.lock.give_back("the start", Hold.FIRST_VIEW)
        self._admission.form()

    def _task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            log.error("the AIMaster cannot go on", exc_info=task.exception())
            self.give_up(task.exception())

    def give_up(self, error: BaseException | None) -> None:
        """Whoever hosts it ends it, as one that has failed; another AIMaster takes over."""
        self.failure = self.failure or error
        self.broken.set()

    async def stop(self) -> None:
        await _end(self._tasks)
        self.pods.close()
        for member in self.job.members:
            member.outbox.detach()
        if self._server is not None:
            await self._server.stop(STOP_SECONDS)
        await self._backend.close()
        self.job.close()


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Before Python 3.12 a `wait_for` that has just got its result swallows a cancellation: then it is said again."""
    for _ in range(CANCELLED_AT_MOST):
        waiting = [task for task in tasks if not task.done()]
        if not waiting:
            return
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting, timeout=STOP_SECONDS)
    log.warning("some tasks did not end: %s", [task.get_name() for task in tasks if not task.done()])
