"""A PS is lost and every slot of it has a backup: the survivors take over, no process is waited for.

1. `Lost` to the trainers: they stop at the step boundary, give up runs that hang, and tell the highest step they have seen.
2. `Fetch` to survivors, of slots whose copy lies with a PS that leaves, or with a trainer: right after a change of PS.
3. `Promote` to the PS that hold the backups: those become the variables; the global step is set to the highest told.
4. The new view is persisted and committed. Trainers swap to a session that they prepared for this loss in advance, and run
   the failed step again. No session ends, nothing is restored, no other slot notices.

What is forgotten: updates of the lost slots since their last refresh began.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deeprec_ext.aimaster.failover.fetching import Source, fetch_of, find_source
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.membership import commands
from deeprec_ext.aimaster.membership.commands import CommandError
from deeprec_ext.aimaster.membership.view import promote
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)

HOLDER = "promotion"
PROMOTE_SECONDS = 30.0
"""Longest wait for a promotion; it moves no data, so only a dying PS takes long."""


class NothingDoneError(CommandError):
    """The copies are as they were."""


@dataclass(frozen=True)
class Promotion:
    """What would be done: pure, from the state of backups."""

    lost: tuple[str, ...]
    slots: Mapping[int, int]  # lost slot -> task that takes it over
    since: float  # monotonic: updates since then are missing in the oldest copy used
    fetched: Mapping[int, Source] = field(default_factory=dict)  # those of the slots whose taker has no copy of them

    def by_task(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for slot, task in self.slots.items():
            found.setdefault(task, []).append(slot)
        return found


def plan_promotion(job: Job) -> Promotion | None:
    """None when a lost slot has no usable copy, or nobody is left."""
    cluster, backups = job.cluster, job.peer_backups
    gone = {ps.task for ps in cluster.ps if ps.name in cluster.lost}
    survivors = [ps.task for ps in cluster.ps if ps.name not in cluster.lost]
    if job.settings.ps_failover != "promote" or not cluster.live or not survivors or not cluster.lost:
        return None
    if not job.catalogue.fingerprint:  # nobody has said yet what lies on the slots
        return None
    takers, needed = {}, backups.needed()
    fetched: dict[int, Source] = {}
    since = job.clock.monotonic()
    for slot, task in enumerate(cluster.slot_map):
        if task not in gone:
            continue
        held = backups.usable(slot)
        held = held if backups.anywhere(slot) is held else None
        planned = backups.published(slot)  # what trainers prepared for
        takers[slot] = held.task if held is not None else planned if planned in survivors else survivors[0]
        if slot in needed:
            source = find_source(job, slot) if held is None else None
            if source is not None:
                fetched[slot] = source
            elif held is None:
                return None
            since = min(since, held.since if held is not None else fetched[slot].since)
    return Promotion(cluster.lost, takers, since, fetched)


async def stop_trainers(
    job: Job, tasks: Sequence[int], lease_seconds: float, timeout_seconds: float | None = None
) -> int:
    """Sends Lost; returns the highest step known. Who does not answer in time (None: `lost_ack_seconds`) is not waited for."""
    patience = job.settings.lost_ack_seconds if timeout_seconds is None else timeout_seconds
    lost = pb.Lost(tasks=tasks, lease_seconds=lease_seconds)
    futures = job.send(job.members.trainers(), lost=lost)
    step = job.members.step  # not the highest ever: a checkpoint may have been restored since
    if futures:
        await asyncio.wait(futures.values(), timeout=patience)
    for name, future in futures.items():
        if future.done() and future.exception() is None:
            told, member = future.result().step, job.members.get(name)
            if member is not None and job.members.reached(told, member):
                step = max(step, told)
        elif not future.done():
            log.warning("%s did not tell its step within %.1f s", name, patience)
            future.cancel()
    return step


async def _fetch(job: Job, promotion: Promotion, step: int) -> None:
    """Survivors pull what no survivor has. Raises NothingDoneError."""
    if not promotion.fetched:
        return
    futures: dict[str, asyncio.Future[pb.Ack]] = {}
    try:
        await job.trainer_backups.freeze()
        for task in sorted({promotion.slots[slot] for slot in promotion.fetched}):
            member = job.members.ps().get(task)
            if member is None:
                raise CommandError(f"the PS with task {task} is gone too")
            sources = {slot: one for slot, one in promotion.fetched.items() if promotion.slots[slot] == task}
            futures[member.name] = job.commander.send(member.outbox, fetch=fetch_of(job, sources, step))
        await commands.gather(futures, job.settings.prepare_limit_seconds, "Fetch")
        if job.cluster.lost != promotion.lost:
            raise CommandError("another PS was lost meanwhile")
    except CommandError as error:
        for name in futures:  # not waited for: what they write are slots that nobody has from them
            if (member := job.members.get(name)) is not None:
                job.commander.send(member.outbox, call_off=pb.CallOff())
        raise NothingDoneError(str(error)) from error


async def carry_out(job: Job, promotion: Promotion) -> None:
    """The new cluster is persisted and told to everybody. Raises CommandError when a holder cannot do its part."""
    cluster = job.cluster
    tasks = [ps.task for ps in cluster.ps if ps.name in promotion.lost]
    job.lock.take(HOLDER, Hold.GATE)
    try:
        settings = job.settings  # copies that are pulled first take as long as their bytes
        lease = settings.prepare_limit_seconds if promotion.fetched else settings.lease_seconds
        step = await stop_trainers(job, tasks, lease)
        await _fetch(job, promotion, step)
        members = job.members.ps()
        futures: dict[str, asyncio.Future[pb.Ack]] = {}
        for task, slots in promotion.by_task().items():
            if task not in members:
                raise CommandError(f"the PS with task {task} is gone too")
            backed = [s for s in slots if s not in promotion.fetched and job.peer_backups.usable(s) is not None]
            message = pb.Promote(slots=backed, step=step)
            futures[members[task].name] = job.commander.send(members[task].outbox, promote=message)
        await commands.gather(futures, PROMOTE_SECONDS, "Promote")
        if job.cluster.lost != promotion.lost:
            raise CommandError("another PS was lost meanwhile")
        decided = promote(job.cluster, promotion.slots)
        with job.store.transaction(durable=True):
            job.set_cluster(decided)
        await job.keep()
        job.backup_map = ()
        view = job.view()
        trainers = job.members.trainers()
        job.send(trainers, commit=pb.Commit(view=view, keep_marks=bool(job.cluster.marked)))
        job.publish(without=frozenset(trainers))
    finally:
        job.lock.give_back(HOLDER, Hold.GATE)
        job.changed.notify()
