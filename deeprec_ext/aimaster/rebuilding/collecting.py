"""An AIMaster without a store, in front of pods that run: agents register, are asked what they know, and a store is written.

It serves the address of the job and changes nothing; training goes on. Agents wait in Register until it is done (or come
again), and then find an AIMaster that knows them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, NoReturn

import grpc
import grpc.aio

from deeprec_ext.aimaster.core.signals import Signal
from deeprec_ext.aimaster.membership.view import AgreedCluster
from deeprec_ext.aimaster.pods.backend import PodBackend, PodState
from deeprec_ext.aimaster.rebuilding.claims import Claim, newest_view, still_missing
from deeprec_ext.aimaster.rebuilding.state import Stored, rebuilt_state
from deeprec_ext.aimaster.rebuilding.writing import write
from deeprec_ext.aimaster.rpc import listening
from deeprec_ext.aimaster.rpc.admission import check_request
from deeprec_ext.aimaster.rpc.authorisation import Authorisation
from deeprec_ext.aimaster.rpc.border import Border
from deeprec_ext.aimaster.rpc.service import refuse
from deeprec_ext.aimaster.state.shared import UNTOLD_KEY
from deeprec_ext.aimaster.store.store import UNREADABLE, Store
from deeprec_ext.aimaster.store.storefile import quarantine
from deeprec_ext.errors import DeepRecError, UsageError
from deeprec_ext.options import JobSpec
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import credentials
from deeprec_ext.security.proofs import Proofs

log = logging.getLogger(__name__)

PODS_SECONDS = 0.5
"""How often the backend is asked which pods run: who has exited is not waited for."""

CLAIMS_MAX = 100_000
STOP_SECONDS = 0.5


async def rebuild_if_lost(
    spec: JobSpec, backend: PodBackend, certs: str | None, listen: str, stored: Stored | None = None
) -> bool:
    """Whether the store was empty in the middle of a job, and has been rebuilt; else nothing has happened.

    `stored`: what of it was kept outside of the job.

    Raises UsageError when the address is taken, or the job has other slots than this AIMaster was started with,
    UnreachableError when the backend does not answer.
    """
    path = spec.workdir / "aimaster.db"
    store = Store(path)
    try:
        why = _unreadable(store)
        if spec.resume or (store.get("cluster") is not None and not why):
            return False
        pods = await _pods(backend)
        if not any(pod.state == "running" or pod.restarting for pod in pods.values()):
            return False
        if why:
            log.error("%s is put aside: who belongs to the cluster cannot be read back: %s", path, why)
            store.close()
            quarantine(path)
            store = Store(path)
            store.put(**{UNTOLD_KEY: [f"{path.name}: the cluster of it: {why}"]})
        log.warning("%s is empty, and pods of job %s run: asking them what they know", path, spec.name)
        collector = _Collector(spec.name, pods, certs)
        server = await _serve(collector, certs, listen)
        try:
            return await _collect(spec, backend, collector, store, stored)
        finally:
            collector.done.set()
            await server.stop(STOP_SECONDS)
    finally:
        store.close()


def _unreadable(store: Store) -> str:
    """Why nobody can be sure from this store who belongs to the cluster; empty: one can, or it does not say."""
    try:
        if text := store.get("cluster"):
            AgreedCluster.from_json(text)
    except UNREADABLE as error:
        return f"{type(error).__name__}: {error}"
    return next((line for line in store.quarantined if line.startswith("meta cluster:")), "")


async def _collect(
    spec: JobSpec, backend: PodBackend, collector: _Collector, store: Store, stored: Stored | None
) -> bool:
    """Waits until all have spoken, or the time is up; then writes. Whether there was anything to write."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + spec.settings.rebuild_limit_seconds
    while (left := deadline - loop.time()) > 0:
        if await collector.changed.until(collector.enough, min(PODS_SECONDS, left)):
            break
        collector.pods = await _pods(backend)
    found = rebuilt_state(collector.all, collector.pods, evaluator=spec.evaluator, wall=time.time(), stored=stored)
    if found is None:
        log.info("nobody has taken part in job %s: it begins", spec.name)
        return False
    if len(found.cluster.slot_map) != spec.slots:
        raise UsageError(
            f"job {spec.name} has {len(found.cluster.slot_map)} slots, this AIMaster was started with {spec.slots}: "
            "start it with the job's own settings"
        )
    if found.missing:
        log.warning("%s count as lost", ", ".join(found.missing))
    write(store, found, time.time())
    log.info("the store is rebuilt from %d agents: view %d, %d PS", len(found.told), found.cluster.epoch,
             len(found.cluster.ps))  # fmt: skip
    return True


async def _pods(backend: PodBackend) -> dict[str, PodState]:
    return {pod.name: pod for pod in await backend.existing()}


async def _serve(collector: _Collector, certs: str | None, listen: str) -> grpc.aio.Server:
    server = grpc.aio.server(
        options=credentials.SERVER_OPTIONS, interceptors=[Authorisation(tls=certs is not None), Border()]
    )
    rpc.add_AgentsServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    rpc.add_AdminServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    await listening.listen(server, listen, certs)
    await server.start()
    return server


class _Collector(rpc.AgentsServicer, rpc.AdminServicer):
    """The launcher shall see that somebody is there; what is neither that nor a registration has to wait."""

    def __init__(self, job: str, pods: dict[str, PodState], certs: str | None = None) -> None:
        self.job, self.pods = job, pods
        self._speakers, self._proofs = credentials.Speakers(certs), Proofs(job, certs)
        self._proven: set[str] = set()  # incarnations that have proven which AIMaster they know
        self.claims: dict[str, Claim] = {}  # by incarnation
        self.changed = Signal()
        self.done = asyncio.Event()

    @property
    def all(self) -> list[Claim]:
        """Of those who can prove that an AIMaster of this job has let them in, if there are any: certificates that were renewed
        take all proofs with them."""
        known = [claim for claim in self.claims.values() if claim.request.known_aimaster]
        unproven = {claim.incarnation for claim in known if claim.incarnation not in self._proven}
        if len(unproven) == len(known):
            return list(self.claims.values())
        return [claim for claim in self.claims.values() if claim.incarnation not in unproven]

    def enough(self) -> bool:
        return bool(self.claims) and not still_missing(self.all, self.pods)

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterReply:
        try:
            name = check_request(request, self.job, credentials.peer_certificate(context), self._speakers)
        except (DeepRecError, PermissionError) as error:
            await refuse(context, error)
        if request.known_epoch > 0 and not request.HasField("known"):
            return pb.RegisterReply(tell=True)
        if len(self.claims) < CLAIMS_MAX:
            self.claims[request.incarnation] = Claim(name, request)
            if self._proofs.holds(request.known_aimaster, request.aimaster_proof):
                self._proven.add(request.incarnation)
            self.changed.notify()
        await self.done.wait()
        await self._not_now(request, context)

    async def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:
        claims = self.all
        view = newest_view(claims)
        if view is None:
            await self._not_now(request, context)
        return pb.StatusReply(
            job=self.job, state="starting", epoch=view.epoch, slot_map=view.slot_map, live=view.live,
            slots=len(view.slot_map), step=max(claim.known.step for claim in claims),
        )  # fmt: skip

    async def _not_now(self, request: Any, context: Any) -> NoReturn:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the AIMaster rebuilds its store; come again")
        raise AssertionError("abort raises")

    Stream = Missing = Declare = Position = Epoch = Scale = Hold = Decisions = Graph = Series = Finish = Events = (
        _not_now
    )
