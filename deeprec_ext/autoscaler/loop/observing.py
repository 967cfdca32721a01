"""What the autoscaler sees of the running job: an `Observed`, from the job's parts and Gazer's newest values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from deeprec_ext.aimaster.core.records import Failure, Requests, Scaling
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.placement.slots import slot_bytes
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.aimaster.scaling.requests import present
from deeprec_ext.autoscaler.observe.growth import Growth
from deeprec_ext.autoscaler.observe.observed import (
    Change,
    Limits,
    Loss,
    Model,
    Observed,
    Progress,
    RoleUse,
    Size,
    SlotUse,
    Window,
)
from deeprec_ext.options import JobSpec
from deeprec_ext.proto import deeprec_ext_pb2 as pb

TRACES_MIN = 3
"""Traced steps of a trainer, from which their median is no accident."""

REQUESTS = tuple(field.name for field in dataclasses.fields(Requests))

CHANGES_KEPT, LOSSES_KEPT = 40, 40
"""The newest: what is older has no bearing on a decision."""


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


def observe(
    job: Job,
    scalings: ScalingQueue,
    *,
    number: int,
    windows: Sequence[Window],
    latest: Latest,
    growth: Growth,
    hold: bool,
) -> Observed:
    """Times are seconds since the start of the job."""
    now = max(0.0, job.clock.wall() - job.started)
    return Observed(
        number=number, time=round(now, 3), size=size_of(job), limits=limits_of(job.spec),
        objective=job.settings.objective, deadline_seconds=job.settings.deadline_seconds, model=model_of(job.catalogue),
        windows=tuple(windows), roles=tuple(roles_of(job, latest, growth)), slots=tuple(slots_of(job, latest)),
        changes=tuple(changes_of(scalings.records(), job.started))[-CHANGES_KEPT:],
        losses=tuple(losses_of(job.store.failures(), job.started))[-LOSSES_KEPT:], progress=progress_of(job),
        backups=job.choices.peer, copies_bytes=copies_of(job), hold=hold,
        busy=scalings.running is not None or bool(scalings.queue),
    )  # fmt: skip


def model_of(catalogue: pb.Catalogue) -> Model:
    """Tables are what training updates by rows."""
    tables = sum(v.bytes for v in catalogue.variables if v.update == pb.Variable.ROWS)
    dense = sum(v.bytes for v in catalogue.variables if v.update != pb.Variable.ROWS)
    slots = 1 + max((v.slot for v in catalogue.variables), default=0)
    return Model(
        table_bytes=tables, dense_bytes=dense, largest_slot_bytes=max(slot_bytes(catalogue.variables, slots), default=0)
    )


def copies_of(job: Job) -> int:
    """What a trainer needs for the copies of a single PS."""
    return job.trainer_backups.needed_bytes if job.trainer_backups.allowed else 0


def roles_of(job: Job, latest: Latest, growth: Growth) -> list[RoleUse]:
    """PS and trainers that take part, by name."""
    found, traced = [], job.metrics.ps_traces() >= TRACES_MIN
    for member in sorted(job.members, key=lambda member: member.name):
        if member.role == pb.EVALUATOR or not member.admitted or member.said_goodbye:
            continue
        values = latest(member.name)
        found.append(
            RoleUse(
                name=member.name,
                cpu_cores=values.get("cpu_cores", member.cpu_percent / 100),
                cpu_limit_cores=values.get("cpu_limit_cores", 0.0),
                working_set_bytes=memory_of(member, values),
                memory_limit_bytes=int(values.get("memory_limit_bytes", 0)),
                memory_slope_bytes_per_second=growth.slope(member.incarnation),
                throttled_share=values.get("throttled_share", 0.0),
                step_seconds=values.get("step_seconds", member.heartbeat.step_seconds),
                steps_per_second=member.heartbeat.steps_per_second,
                input_wait_share=values.get("input_wait_share", 0.0),
                busy_share=values.get("busy_share", 0.0) if traced else 0.0,
                age_seconds=member.heartbeat.step_age_seconds,
                oom_kills=int(values.get("oom_kills", 0)),
                copies_bytes=job.trainer_backups.bytes_with(member.name),
            )
        )
    return found


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


def changes_of(scalings: Sequence[Scaling], started: float) -> list[Change]:
    """Scalings that have ended; a PS that came back by itself is nobody's decision and no change of size."""
    return [
        Change(
            time=round(one.started - started + one.seconds, 3) if one.started else 0.0, kind=one.kind, role=one.role,
            from_count=one.from_count, to_count=one.to_count, outcome=one.outcome, seconds=one.seconds,
            pause_seconds=max(one.pause_seconds, default=0.0), bytes_moved=one.bytes_moved,
            manual=one.decision < 0 and not one.returning, decision=one.decision,
        )
        for one in scalings if one.outcome
    ]  # fmt: skip


def losses_of(failures: Sequence[Failure], started: float) -> list[Loss]:
    return [Loss(round(one.died - started, 3), one.name, one.cause) for one in failures]


def progress_of(job: Job) -> Progress:
    """In examples: from the data ledger where it knows its end, else from the last step and the examples so far."""
    for dataset in job.ledger.status():
        if dataset.purpose in ("", "train") and dataset.records:
            return Progress(dataset.trained, dataset.records)
    done, step, last = job.store.examples(), job.members.step, job.members.last_step
    return Progress(done, round(done * last / step) if step and last else 0)
