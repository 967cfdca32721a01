"""A job of two PS and two trainers whose clock is moved by hand, and processes that report to its Gazer."""

from __future__ import annotations

import asyncio
from pathlib import Path

from deeprec_ext.aimaster.core.records import PsInfo, RoleRecord, parse_name
from deeprec_ext.aimaster.failover.failover import Failover
from deeprec_ext.aimaster.failover.failures import Failures
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.membership.view import first_view
from deeprec_ext.aimaster.pods.pods import Pods
from deeprec_ext.aimaster.rpc.inbox import Inbox
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.gazer.metrics import STEP_BUCKETS
from deeprec_ext.options import JobSpec
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.ledger.books import index_range
from tests.unit.aimaster.world import catalogue

SLOTS = 4


class HandClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1.7e9 + self.now


def arrive(job: Job, name: str, incarnation: str = "") -> Member:
    role, index = parse_name(name)
    job.members.save(RoleRecord(name))
    request = pb.RegisterRequest(role=role, index=index, incarnation=incarnation or f"i-{name}", address="a:1")
    member = job.members.arrive(request, name)
    job.members.admit(member)
    return member


def tell(job: Job, name: str, **report: object) -> None:
    """As it comes from the stream."""
    member = job.members.get(name)
    assert member is not None
    inbox = Inbox(job, Failures(job), lambda _: None)
    inbox.receive(member, pb.AgentMessage(gazer=pb.GazerReport(**report)))  # type: ignore[arg-type]


def flush(job: Job, clock: HandClock, seconds: float = 2.0) -> None:
    clock.now += seconds
    asyncio.run(job.metrics.flush())


def steps(per_second: float, seconds: float = 2.0, **more: object) -> dict[str, object]:
    count = round(per_second * seconds)
    return {"interval_seconds": seconds, "steps": pb.StepSample(steps=count, median_seconds=1 / per_second, **more)}


def trace(*uses: pb.SlotUse, epoch: int = 1, **more: object) -> pb.Trace:
    return pb.Trace(step=5, epoch=epoch, seconds=0.1, slots=uses, **more)  # type: ignore[arg-type]


def make_job(
    workdir: Path, clock: HandClock, *, slots: int = SLOTS, ps: int = 2, workers: int = 1, **spec: object
) -> Job:
    values = {"name": "job", "workdir": workdir, "slots": slots, "ps": ps, "workers": workers, **spec}
    job = Job(JobSpec(**values), Store(workdir / "aimaster.db"), clock)  # type: ignore[arg-type]
    infos = tuple(PsInfo(number, f"ps-{number}", f"{number}:1", f"i{number}") for number in range(ps))
    job.set_cluster(first_view(job.cluster, infos, slots))
    with job.store.transaction():
        for name in (*(info.name for info in infos), "chief-0", *(f"worker-{number}" for number in range(workers))):
            arrive(job, name)
    job.catalogue = catalogue(slots)
    return job


def make_scalings(job: Job) -> ScalingQueue:
    return ScalingQueue(job, Pods(job, None, Failover(job, Failures(job))), lambda: False)  # type: ignore[arg-type]


def report_everything(job: Job) -> None:
    """Everybody reports all there is, twice."""
    slots, names = range(job.spec.slots), [ps.name for ps in job.cluster.ps]
    traced = trace(
        *(
            pb.SlotUse(slot=slot, lookup_seconds=1e-3, update_seconds=1e-3, lookup_rows=10, update_rows=5)
            for slot in slots
        ),
        epoch=job.cluster.epoch,
        devices=[pb.DeviceTime(role=name, busy_seconds=0.01) for name in names],
        edges=[pb.EdgeUse(source=name, target="worker-0", bytes=1000, seconds=0.001) for name in names],
    )
    histogram = [0, 0, 0, 0, 0, 7, *[0] * (len(STEP_BUCKETS) - 6), 1]
    for number in (1, 2):
        sample = pb.ProcessSample(
            cpu_seconds=3.0 * number, rss_bytes=10**9, working_set_bytes=10**9, memory_limit_bytes=2 * 10**9,
            cpu_limit_cores=4, throttled_seconds=0.5 * number, oom_kills=1, received_bytes=10**6 * number,
            sent_bytes=10**6 * number, open_files=100, threads=30,
        )  # fmt: skip
        touched = [pb.SlotRows(slot=slot, rows_touched=10) for slot in slots]
        of_ps = pb.GazerReport(interval_seconds=2, process=sample, touched=touched)
        times = steps(10, examples=5000, p95_seconds=0.2, longest_seconds=0.3, gate_wait_seconds=0.1,
                      input_wait_seconds=0.1, sum_seconds=0.02, histogram=histogram, histogram_seconds=2.0)  # fmt: skip
        of_trainer = pb.GazerReport(process=sample, traces=[traced], **times)  # type: ignore[arg-type]
        for member in job.members:
            job.metrics.receive(member, of_ps if member.role == pb.PS else of_trainer)


def make_events(job: Job) -> None:
    """As the parts of the AIMaster write them."""
    job.event("scaling_ended", kind="scale-up", target="ps", outcome="committed", bytes_moved=5000, bytes_resent=100)
    job.event("scaling_ended", kind="scale-down", target="worker", outcome="rolled_back", bytes_moved=0)
    for seconds in (0.07, 0.4, 100.0):
        job.event("pause", "worker-0", scaling=1, seconds=seconds)
    job.event("failure", "ps-1", cause="killed by signal 9")
    job.event("failure", "worker-0", cause="exited with code 1")
    job.event("recovered", "ps-1", seconds=1.25, steps_lost=7)
    job.event("warning", text="x")
    job.event("view_published", ps=2)


def declare_data(job: Job) -> None:
    """A dataset that is trained on. Needs a running loop."""
    member = job.members.get("worker-0")
    assert member is not None
    request = pb.DataRequest(sequence=1, dataset="train", want=1, declare=index_range(100, epochs=2))
    job.ledger.receive(member, request)
