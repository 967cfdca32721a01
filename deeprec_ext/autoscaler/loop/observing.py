"""What the autoscaler sees of the running job: measured by the job's parts and Gazer, put together by the one builder."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from deeprec_ext.aimaster.core.records import Failure, Requests
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.placement.slots import slot_bytes
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.aimaster.scaling.requests import losing_their_host, present
from deeprec_ext.autoscaler.observe import building
from deeprec_ext.autoscaler.observe.changes import changes_of
from deeprec_ext.autoscaler.observe.features import model_of
from deeprec_ext.autoscaler.observe.growth import Growth
from deeprec_ext.autoscaler.observe.observed import (
    Host,
    Limits,
    Loss,
    Model,
    Observed,
    Progress,
    RoleUse,
    Size,
    SlotUse,
    Stood,
    Window,
)
from deeprec_ext.options import JobSpec
from deeprec_ext.proto import deeprec_ext_pb2 as pb

TRACES_MIN = 3
"""Traced steps of a trainer, from which their median is no accident."""

OF_CONTAINER = frozenset({"working_set_bytes", "memory_limit_bytes", "cpu_limit_cores", "throttled_share"})
"""Metrics of the cgroup that a process is in."""

REQUESTS = tuple(field.name for field in dataclasses.fields(Requests))


class Latest(Protocol):
    """Gazer's newest values of a subject, by metric; empty when there are none."""

    def __call__(self, subject: str) -> Mapping[str, float]: ...


def size_of(job: Job) -> Size:
    """What the job has been given: processes that are wanted, and what each requests."""
    return Size(ps=len(present(job, pb.PS)), workers=len(present(job, pb.WORKER)), **dataclasses.asdict(job.requests))


def limits_of(spec: JobSpec) -> Limits:
    """Where one request may be raised, the others may be lowered, but not raised."""
    most = {f"max_{name}": getattr(spec, f"max_{name}") for name in REQUESTS}
    resizable = any(most.values())
    if resizable:
        most = {f"max_{name}": most[f"max_{name}"] or getattr(spec, name) for name in REQUESTS}
    return Limits(
        min_ps=spec.min_ps, max_ps=spec.ps_limit, min_workers=spec.min_workers, max_workers=spec.max_workers,
        total_cpu=spec.total_cpu, total_memory_bytes=spec.total_memory_bytes, resizable=resizable, **most,
    )  # fmt: skip


def limits_now(job: Job) -> Limits:
    """The same, and what the arbiter allows at present."""
    most = job.allowed.most
    return dataclasses.replace(limits_of(job.spec), max_ps=most("ps"), max_workers=most("worker"))


def observe(
    job: Job,
    scalings: ScalingQueue,
    *,
    number: int,
    windows: Sequence[Window],
    latest: Latest,
    growth: Growth,
    hold: bool,
    one_host: bool,
    free_memory_bytes: int,
    foretold: Mapping[int, float],
    first: Size | None,
    stood: Sequence[Stood],
) -> Observed:
    """Times are seconds since the start of the job. `foretold`: examples per second, by number of decision. `first`: size."""
    return building.observation(
        number=number, time=max(0.0, job.clock.wall() - job.started), size=size_of(job), limits=limits_now(job),
        objective=job.settings.objective, deadline_seconds=job.settings.deadline_seconds,
        model=dataclasses.replace(
            _model_of(job.catalogue.SerializeToString(), job.spec.slots),
            batch_size=examples_per_step(job.members.trainers().values()),
        ),
        windows=windows, roles=roles_of(job, latest, growth), hosts=hosts_of(job, free_memory_bytes), one_host=one_host,
        slots=slots_of(job, latest), changes=changes_of(scalings.records(), job.started, foretold),
        losses=losses_of(job.store.failures(building.LOSSES_KEPT), job.started), progress=progress_of(job),
        backups=job.choices.peer, copies_bytes=copies_of(job), hold=hold,
        busy=scalings.running is not None or bool(scalings.queue), reclaimed=reclaimed_of(job), first=first,
        stood=stood, local_batch=job.settings.step_batch == "each",
    )  # fmt: skip


@functools.lru_cache(maxsize=1)
def _model_of(catalogue: bytes, slots: int) -> Model:
    """Of ten thousand variables it takes 0.1 s, in which the AIMaster does nothing else; they change seldom."""
    return model_of(pb.Catalogue.FromString(catalogue), slots=slots)


def examples_per_step(trainers: Iterable[Member]) -> float:
    """Of one trainer, the mean over those that make steps; 0: not known."""
    beats = [member.heartbeat for member in trainers if member.heartbeat.steps_per_second > 0]
    known = [beat.examples_per_second / beat.steps_per_second for beat in beats if beat.examples_per_second > 0]
    return sum(known) / len(known) if known else 0.0


def hosts_of(job: Job, free_memory_bytes: int) -> list[Host]:
    """`free_memory_bytes`: of the one machine that the AIMaster shares with the job; 0: it does not, or nobody knows."""
    return [
        Host(
            name,
            use.cores,
            round(use.job_cores, 4),
            round(use.others_cores, 4),
            use.ps,
            use.trainers,
            free_memory_bytes,
        )
        for name, use in job.metrics.hosts.items()
    ]


def reclaimed_of(job: Job) -> list[str]:
    """Who was told to lose its host, and is still there to be replaced."""
    going = losing_their_host(job)
    there = [member.name for member in job.members if not member.said_goodbye]
    return [name for name in there if name in going and job.members.records[name].wanted]


def copies_of(job: Job) -> int:
    """What a trainer needs for the copies of a single PS."""
    return job.trainer_backups.needed_bytes if job.trainer_backups.allowed else 0


def roles_of(job: Job, latest: Latest, growth: Growth) -> list[RoleUse]:
    """PS and trainers that take part, by name."""
    traced = job.metrics.ps_traces() >= TRACES_MIN
    taking_part = [
        member for member in job.members if member.role != pb.EVALUATOR and member.admitted and not member.said_goodbye
    ]
    return [
        _use(job, member, own(job, member.name, latest), growth.slope(member.incarnation), traced)
        for member in sorted(taking_part, key=lambda member: member.name)
    ]


def _use(job: Job, member: Member, values: Mapping[str, float], slope: float, traced: bool) -> RoleUse:
    now, beat = job.clock.monotonic(), member.heartbeat
    cpu_cores, limit = values.get("cpu_cores", member.cpu_percent / 100), values.get("cpu_limit_cores", 0.0)
    memory, memory_limit = memory_of(member, values), int(values.get("memory_limit_bytes", 0))
    throttled, age = values.get("throttled_share", 0.0), member.age_seconds(now)
    if member.role == pb.PS:
        return building.ps_use(
            name=member.name, cpu_cores=cpu_cores, cpu_limit_cores=limit, working_set_bytes=memory,
            memory_limit_bytes=memory_limit, memory_slope_bytes_per_second=slope, throttled_share=throttled,
            busy_share=values.get("busy_share", 0.0) if traced else 0.0, age_seconds=age,
        )  # fmt: skip
    return building.trainer_use(
        name=member.name, cpu_cores=cpu_cores, cpu_limit_cores=limit, working_set_bytes=memory,
        memory_limit_bytes=memory_limit, memory_slope_bytes_per_second=slope, throttled_share=throttled,
        step_seconds=values.get("step_seconds", beat.step_seconds),
        step_seconds_lasting=job.metrics.lasting_step_seconds(member.name), steps_per_second=beat.steps_per_second,
        stepless_seconds=member.stepless_seconds(now), input_wait_share=values.get("input_wait_share", 0.0),
        age_seconds=age, copies_bytes=job.trainer_backups.bytes_with(member.name),
        sum_seconds=values.get("sum_seconds", 0.0),
    )  # fmt: skip


def of_a_step(job: Job, latest: Latest) -> tuple[float, float]:
    """(the slowest worker's seconds of a step without its sum, the shortest sum) of a job without PS; 0: not known."""
    told = [latest(name) for name in job.members.trainers()] if job.spec.sums else []
    times = [(one.get("step_seconds", 0.0), one.get("sum_seconds", 0.0)) for one in told]
    if not times or not all(step > 0 for step, _ in times):
        return 0.0, 0.0
    return max(max(0.0, step - summing) for step, summing in times), min(summing for _, summing in times)


def own(job: Job, name: str, latest: Latest) -> Mapping[str, float]:
    """Of a process alone: in a container that it shares with others, what is measured of that is no one's own."""
    values, process = latest(name), job.metrics.process(name)
    if process is None or not process.shared_limits:
        return values
    return {metric: value for metric, value in values.items() if metric not in OF_CONTAINER}


def memory_of(member: Member, values: Mapping[str, float]) -> int:
    """Bytes: of its container where that is its own, else of the process."""
    return int(values.get("working_set_bytes") or member.heartbeat.rss_bytes)


def slots_of(job: Job, latest: Latest) -> list[SlotUse]:
    cluster = job.cluster
    owners = {ps.task: ps.name for ps in cluster.ps}
    sizes = slot_bytes(job.catalogue.variables, len(cluster.slot_map))
    found, traced = [], job.metrics.slot_traces() >= TRACES_MIN
    for slot, task in enumerate(cluster.slot_map):
        values = latest(f"slot-{slot}")
        load = values.get("lookup_share", 0.0) + values.get("update_share", 0.0)
        found.append(SlotUse(slot, owners.get(task, ""), sizes[slot], round(load, 6) if traced else 0.0))
    return found


def losses_of(failures: Sequence[Failure], started: float) -> list[Loss]:
    return [Loss(round(one.died - started, 3), one.name, one.cause, one.memory_limit_bytes) for one in failures]


def progress_of(job: Job) -> Progress:
    """In examples: from the data ledger where it knows its end, else from the last step and the examples so far."""
    done, step, last = job.store.examples(), job.members.step, job.members.last_step
    for dataset in job.ledger.status():
        if dataset.purpose in ("", "train") and dataset.records:
            if not dataset.steps:
                return Progress(dataset.trained, dataset.records)
            step, last = dataset.trained, dataset.records
            break
    return Progress(done, round(done * last / step) if step and last else 0)
