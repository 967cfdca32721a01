"""The first minutes: of a job (asking for the pods of the first view), or of an AIMaster that was killed.

A restarted AIMaster knows from its store who took part. It waits, bounded, until they have registered again, because a
half-done scaling can only be undone or finished with them. Who does not come back is treated as hung. What is done with
the scaling is the `recovery` column of `machine.RULES`.
"""

from __future__ import annotations

import dataclasses
import logging

from deeprec_ext.aimaster.core.records import ROLE_NAMES, parse_name, role_name
from deeprec_ext.aimaster.failover.failover import Failover
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.membership.view import laid_out_on, lose
from deeprec_ext.aimaster.placement.slots import slot_bytes
from deeprec_ext.aimaster.pods.pods import Pods
from deeprec_ext.aimaster.store import resuming
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)
WATCH_SECONDS = 3.0
"""The backend tells at once what runs; when it tells of no pod at all for so long, there is none."""

REBUILT_KEY = "rebuilt"
"""In a store that was lost and rebuilt: who told what they knew, and who is missing."""

NAMED_MAX = 20

SETTLE_SECONDS = 15.0
"""How long a restarted AIMaster waits for those it knew: agents try again every second or so."""


def first_names(job: Job, ps: int, workers: int) -> list[str]:
    """The pods of the first view."""
    names = [role_name(pb.PS, index) for index in range(ps)]
    names.append(role_name(pb.CHIEF, 0))
    names += [role_name(pb.WORKER, index) for index in range(workers)]
    if job.spec.evaluator:
        names.append(role_name(pb.EVALUATOR, 0))
    return names


async def start(job: Job, pods: Pods, ps: int, workers: int) -> None:
    """First start: records all names at once, then asks for the pods. Raises UnreachableError."""
    job.event("job_started", job=job.spec.name, slots=job.spec.slots, ps=ps, workers=workers)
    names = first_names(job, ps, workers)
    with job.store.transaction():
        for name in names:
            job.members.request(name)
    for name in names:
        await pods.backend.create(name)


async def resize(job: Job, pods: Pods, ps: int, workers: int) -> None:
    """Before the first view: the pods of this size instead of those that were asked for. Raises UnreachableError."""
    names = first_names(job, ps, workers)
    there = [record.name for record in job.members.records.values() if record.wanted]
    for name in set(there) - set(names):
        await pods.remove(name, 0.0)  # it has not taken part
    with job.store.transaction():
        new = [name for name in names if name not in there]
        for name in new:
            job.members.request(name)
    for name in new:
        await pods.backend.create(name)


async def start_again(job: Job, pods: Pods, *, from_disk: bool = False) -> None:
    """The run was stopped and is resumed: not one pod of it exists. All names start anew, with their present number, or with
    fewer where the job may not have as many.

    What was on the PS is gone, so the next generation begins when they have registered: from the last checkpoint, or, where
    the job is to begin there, from its newest disk backup: what lies on live PS that are lost is restored from that first.
    Raises UnreachableError.
    """
    cluster = job.cluster
    gone = _without(job)
    if gone:  # it grows to that again once it may
        had = {"ps": len(job.members.wanted(pb.PS)), "worker": len(job.members.wanted(pb.WORKER))}
        job.allowed.remember({role: max(count, job.allowed.back(role) or 0) for role, count in had.items()})
    if kept := [ps.name for ps in cluster.ps if ps.name not in gone]:
        cluster = laid_out_on(cluster, kept, slot_bytes(job.catalogue.variables, len(cluster.slot_map)))
    for ps in cluster.ps:
        cluster = lose(cluster, ps.name)
    cluster = dataclasses.replace(cluster, live=from_disk and bool(cluster.lost))
    names = [name for role in ROLE_NAMES.values() for name in job.members.wanted(role) if name not in gone]
    with job.store.transaction():
        for name in gone:
            job.members.update(name, wanted=False, state="exited", task=-1)
        for name in names:
            record = job.members.records[name]
            if record.incarnation:
                job.store.fence(record.incarnation, name)
            job.members.request(name)
        job.set_cluster(cluster)
        resuming.began(job.store)
        job.reopen()
    job.event("job_resumed", roles=len(names), without=sorted(gone)[:NAMED_MAX])
    for name in names:
        await pods.backend.create(name)


def _without(job: Job) -> set[str]:
    """Who is not started again where somebody has said that it may have fewer: the highest of workers, and of the PS of the
    view; PS that are in no view yet go before."""
    workers = job.members.wanted(pb.WORKER)
    ps = sorted(job.members.wanted(pb.PS), key=lambda name: job.cluster.by_name(name) is None)
    ps_most, workers_most = job.spec.within_first(len(ps), len(workers))
    return {*ps[ps_most:], *workers[workers_most:]}


async def settle(job: Job, pods: Pods, failover: Failover, timeout_seconds: float = SETTLE_SECONDS) -> None:
    """After a restart: waits for those who took part, then replaces those who did not come back."""
    job.event("aimaster_restarted", incarnation=job.incarnation)
    timeout_seconds *= failover.silence.stretch()  # on a busy machine they need longer
    job.members.recall_goodbyes()
    known = [r.name for r in job.members.records.values() if r.takes_part and r.incarnation]

    def back(name: str) -> bool:
        member = job.members.get(name)
        connected = member is not None and (member.outbox.generation > 0 or member.said_goodbye)
        return connected or pods.exited(name) or not job.members.records[name].takes_part

    if known and not await job.changed.until(lambda: bool(pods.seen), min(WATCH_SECONDS, timeout_seconds)):
        await start_again(job, pods, from_disk=bool(job.choices.disk_path) and resuming.cut_is_newest(job.store))
        return
    if job.ending:
        return
    if rebuilt := job.store.get(REBUILT_KEY):
        job.event("store_rebuilt", told=rebuilt["told"], missing=rebuilt["missing"])
        for name in rebuilt["missing"]:
            if parse_name(name)[0] == pb.PS:
                failover.hung(name, job.settings.rebuild_limit_seconds)  # trainers have their own, longer limit
        job.store.put(**{REBUILT_KEY: None})
    await job.changed.until(lambda: all(back(name) for name in known), timeout_seconds)
    for name in known:
        record = job.members.records[name]
        if not back(name) and record.wanted and job.members.get(name) is None:
            failover.hung(name, timeout_seconds)
    for record in list(job.members.records.values()):
        if record.wanted and not record.ended and record.name not in pods.seen:
            await pods.backend.create(record.name)  # asked for, and perhaps never heard: idempotent
    job.publish_soon()
