"""Register: who may take part, and when.

The first PS get tasks 0..P-1 in the order of their index, so nobody is answered before all of them are there. How many they
are may follow from what the chief declares of its model (`Declare`), while its registration waits like all others. Between
PAUSE and the end of COMMIT nobody new enters: it would train on a view that is about to end. For the same reason a worker that
comes with a change of PS enters when that is committed. While a PS is lost no trainer enters: its session would block on
the dead one.
"""

from __future__ import annotations

from deeprec_ext.aimaster.core.records import PsInfo, role_name
from deeprec_ext.aimaster.failover.failover import Failover
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.membership.view import AgreedCluster, first_view, take_task
from deeprec_ext.aimaster.placement.slots import slot_bytes, tracked
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.decoding import alike
from deeprec_ext.errors import ProtocolError, StaleError, UnreachableError, UsageError
from deeprec_ext.proto import PROTOCOL_MAJOR
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.security.credentials import Speakers
from deeprec_ext.security.proofs import Proofs

STANDBY_DELAY_SECONDS, TRACE_DELAY_SECONDS = 90.0, 30.0
"""With `autoscale`: from a change until sessions are prepared for the loss of every PS, or a step is compiled to be traced. New
workers start, settle, and two windows of throughput are measured first: on a fraction of a core, preparing takes a minute or
more, in which little can be measured, and the next change makes it worthless. The first of them does not wait."""

WAIT_SECONDS = 1.0
"""How often one that waits counts as alive, while its registration cannot be written down."""

SIGNAL_SECONDS = 3.0
"""In which the kubelet sends the signal that ends a process whose pod is being deleted, unless it came before anybody handled
it."""

NO_TLS = Speakers(None)


def check_request(
    request: pb.RegisterRequest, job_name: str, certificate: str | None, speakers: Speakers = NO_TLS
) -> str:
    """The name of the role. Raises ProtocolError, UsageError or PermissionError when the request cannot be right."""
    name = role_name(request.role, request.index)
    if request.protocol_major != PROTOCOL_MAJOR:
        raise ProtocolError(
            f"{name} speaks protocol {request.protocol_major}, this AIMaster speaks {PROTOCOL_MAJOR}: "
            "install the same major version of deeprec-ext on both sides"
        )
    if request.job and request.job != job_name:
        raise UsageError(f"{name} belongs to job {request.job!r}, this AIMaster serves {job_name!r}")
    if not speakers.may(certificate, name):
        raise PermissionError(f"the certificate {certificate!r} may not register {name}")
    if not request.incarnation:
        raise UsageError(f"{name} registered without an incarnation")
    return name


class Admission:
    def __init__(self, job: Job, failover: Failover, certs: str | None = None) -> None:
        self._job, self._failover = job, failover
        self._speakers, self._proofs = Speakers(certs), Proofs(job.spec.name, certs)

    async def register(self, request: pb.RegisterRequest, certificate: str | None) -> pb.RegisterReply:
        """Returns when the process may take part.

        Raises ProtocolError, UsageError, StaleError, PermissionError; UnreachableError when this AIMaster must go.
        """
        job = self._job
        name = check_request(request, job.spec.name, certificate, self._speakers)
        stale = request.known_aimaster > job.incarnation or (request.known_epoch > 0 and not job.cluster.formed)
        if stale and not self._proofs.holds(request.known_aimaster, request.aimaster_proof):
            raise UsageError(
                f"{name} claims to know AIMaster {request.known_aimaster} and view {request.known_epoch}, which no AIMaster "
                "of this job has told it: it is not believed; end the process"
            )
        if stale:
            job.stale.set()
            known = f"AIMaster {request.known_aimaster} and view {request.known_epoch}"
            mine = f"{job.incarnation} and {job.cluster.epoch}"
            raise UnreachableError(f"{name} knows {known}, this one is {mine}: it is stale and ends; register again")
        record = job.members.record(name)
        if record is None:
            raise UsageError(f"{name} was not asked for in job {job.spec.name!r}")
        if not record.wanted and record.incarnation != request.incarnation:
            raise StaleError(f"{name} has been scaled away; end the process")
        deleted = job.reclaimed.get(name) == "" and record.incarnation != request.incarnation
        # did it end before its signal comes, the kubelet would start its container again
        if deleted and not await job.changed.until(lambda: job.reclaimed.get(name) != "", SIGNAL_SECONDS):
            raise StaleError(f"the pod of {name} is being deleted; end the process")
        before = job.members.get(name)
        if before is not None and before.incarnation != request.incarnation:
            self._failover.died(name, "exited and came back as another process")
        elif before is None and record.state == "running" and record.incarnation not in ("", request.incarnation):
            self._failover.died(name, "exited while no AIMaster was there")
        member = job.members.arrive(request, name)
        job.event("registered", name, pid=request.pid, again=member.admitted, address=request.address)
        self.form()
        job.changed.notify()
        while True:
            may = await job.changed.until(
                lambda: bool(member.outbox.closed) or (self._may_enter(member) and not job.store.behind), WAIT_SECONDS
            )
            if member.outbox.closed:
                raise StaleError(f"{name} {member.incarnation[:8]}: {member.outbox.closed}")
            if may:
                reply = self._admit(member)
                if not job.store.behind:  # else what it says may not outlive this process
                    return reply
            elif job.store.behind:
                job.members.sign_of_life(member)  # it waits for us: that is no silence

    def _may_enter(self, member: Member) -> bool:
        job = self._job
        if job.lock.held(Hold.UNHEARD):
            return False
        if member.admitted:
            return True
        if not job.cluster.formed or job.lock.held(Hold.GATE) or member.name in job.lock.names(Hold.JOINING):
            return False
        return member.role == pb.PS or not job.cluster.lost

    def form(self) -> None:
        """Makes the first view once all of its PS are there, and it is known how many there shall be."""
        job = self._job
        names = job.members.wanted(pb.PS)
        present = [member for name in names if (member := job.members.get(name)) is not None]
        if (
            job.cluster.formed
            or job.lock.held(Hold.FIRST_VIEW)
            or len(present) < len(names)
            or not (names or job.spec.sums)
        ):
            return
        cluster: AgreedCluster = job.cluster
        infos = []
        for member in present:
            cluster, member.task = take_task(cluster)
            infos.append(PsInfo(member.task, member.name, member.address, member.incarnation))
        with job.store.transaction():
            for member in present:
                job.members.update(member.name, task=member.task)
            job.set_cluster(first_view(cluster, tuple(infos), job.spec.slots, self._sizes()))
        job.event("view_formed", ps=len(infos), slots=job.spec.slots)
        job.changed.notify()

    def _sizes(self) -> list[int]:
        """[S] bytes of the declared variables of each slot; 0: nothing is known."""
        model = self._job.declared.model
        return slot_bytes(model.catalogue.variables if model is not None else (), self._job.spec.slots)

    def _admit(self, member: Member) -> pb.RegisterReply:
        job = self._job
        if member.role == pb.PS and member.task < 0:
            cluster, member.task = take_task(job.cluster)
            job.set_cluster(cluster)
        job.members.admit(member)
        if member.is_trainer:
            job.publish_soon()
        job.changed.notify()
        return pb.RegisterReply(
            aimaster_incarnation=job.incarnation, aimaster_proof=self._proofs.make(job.incarnation),
            view=job.view(), task=member.task, settings=self._settings(),
            has_evaluator=job.spec.evaluator, tracked=tracked(job.catalogue.variables, job.cluster.marked),
            catalogues=job.catalogues.told(job.cluster.generation) if member.is_trainer else (),
            ring_secret=job.ring_secret if job.spec.sums and member.is_trainer else b"",
            begins_with=0 if job.members.are_training else sum(len(job.members.wanted(one)) for one in (pb.CHIEF, pb.WORKER)),
        )  # fmt: skip

    def _settings(self) -> pb.AgentSettings:
        """Those of the job by the same names; with `autoscale`, what costs a trainer its time waits longer."""
        settings = self._job.settings
        return alike(
            pb.AgentSettings, settings, trace_delay_seconds=TRACE_DELAY_SECONDS * settings.autoscale,
            standby_delay_seconds=max(settings.standby_delay_seconds, STANDBY_DELAY_SECONDS * settings.autoscale),
        )  # fmt: skip
