"""The answer to Admin.Status."""

from __future__ import annotations

import math

from deeprec_ext.aimaster.core.records import RoleRecord
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.placement.slots import slot_bytes
from deeprec_ext.aimaster.reporting.ring import ring
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.decoding import alike
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.units import counted

SUSPECT_MAX = ALLOWANCE_MAX = 500


def job_state(job: Job, scalings: ScalingQueue) -> str:
    """starting, training, scaling, finishing, finished, failed."""
    if job.ending:
        return job.ending
    if scalings.running is not None:
        return "scaling"
    training = any(member.heartbeat.training for member in job.members.trainers().values())
    return "training" if training or (job.cluster.live and not job.cluster.gone) else "starting"


def _ending(member: Member) -> str:
    """Of a pod that is there after the end of its script."""
    if member.outstays == math.inf:  # its command does something else
        return "ended"
    return "ending" if member.exit_code in (0, None) else "failed"


def _role(job: Job, record: RoleRecord, sizes: list[int]) -> pb.RoleStatus:
    member = job.members.get(record.name)
    state = _ending(member) if member is not None and member.said_goodbye and not record.ended else record.state
    status = alike(
        pb.RoleStatus, record, state=state, pid=record.pid or record.pod_pid,
        task=record.task if record.role == pb.PS else -1, suspect=job.suspects.of(record.name)[:SUSPECT_MAX],
    )  # fmt: skip
    if member is not None:
        status.heartbeat.CopyFrom(member.heartbeat)
        status.heartbeat_age_seconds = max(0.0, job.clock.monotonic() - member.seen)
        status.cpu_percent = member.cpu_percent
        status.MergeFrom(job.metrics.facts(record.name))
    if record.role == pb.PS:
        cluster = job.cluster
        owned = cluster.by_name(record.name)
        if owned is not None:
            slots = [slot for slot, task in enumerate(cluster.slot_map) if task == owned.task]
            status.slots.extend(slots)
            status.bytes = sum(sizes[slot] for slot in slots)
    return status


def _slot_load(job: Job, sizes: list[int]) -> list[pb.SlotStatus]:
    return [
        pb.SlotStatus(slot=slot, task=task, bytes=sizes[slot], gazer=job.metrics.latest(f"slot-{slot}"))
        for slot, task in enumerate(job.cluster.slot_map)
    ]


def _learning_rate(job: Job) -> str:
    """`× 0.5 (inverse, 2 trainers)`; empty: it is the script's."""
    factor = job.learning_rate()
    if factor == 1:
        return ""
    return f"× {factor:.4g} ({job.settings.rate_scaling}, {counted(len(job.workers()), 'trainer')})"


def status(job: Job, scalings: ScalingQueue) -> pb.StatusReply:
    cluster = job.cluster
    sizes = slot_bytes(job.catalogue.variables, job.spec.slots)
    trainers = job.members.trainers().values()
    gone = ("exited", "failed")
    drained = scalings.running.scaling.drained if scalings.running is not None else ()
    records = sorted(job.members.records.values(), key=lambda record: (record.role, record.index))
    shown = [record for record in records if record.wanted or record.state not in gone]
    backup = pb.BackupStatus()
    job.peer_backups.status(backup)
    job.disk.status(backup)
    return pb.StatusReply(
        backup=backup,
        data=job.ledger.status(),
        job=job.spec.name,
        state=job_state(job, scalings),
        epoch=cluster.epoch,
        step=job.members.step,
        last_step=job.members.last_step,
        examples_per_second=sum(member.heartbeat.examples_per_second for member in trainers),
        steps_per_second=job.spec.steps_rate([member.heartbeat.steps_per_second for member in trainers]),
        seconds=max(0.0, job.clock.wall() - job.started),
        roles=[_role(job, record, sizes) for record in shown],
        scalings=[scaling.to_proto() for scaling in scalings.records()],
        slot_map=cluster.slot_map,
        metrics=job.store.get("metrics", {}),
        aimaster_incarnation=job.incarnation,
        slots=job.spec.slots,
        failure=job.failure,
        live=cluster.live,
        slot_load=_slot_load(job, sizes),
        dashboard=job.dashboard,
        notices=[one.to_proto() for one in (*job.unwritten.notices(), *job.expiring.notices(), *job.notices.all)],
        ring=ring(job, drained) if job.spec.sums else None,
        learning_rate=_learning_rate(job),
        allowance=job.allowed.told()[:ALLOWANCE_MAX],
        autoscale=("held" if job.held else "on") if job.settings.autoscale else "",
    )
