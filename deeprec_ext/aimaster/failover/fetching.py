"""A PS is lost, no PS has taken its slots over, but somebody has copies of them: whoever replaces it pulls them.

1. `Lost` to the trainers, as before a promotion, again and again until all lost PS have registered anew.
2. `Freeze` to the holder; `Fetch` to the replacements. Meanwhile trainers prepare sessions for the new view (`Prepare`).
3. The new view is persisted and committed, of the same generation: no session ends, nothing is restored.

What is forgotten: updates of the lost slots since the last refresh of their copies began.

A `Fetch` that has outlived its limit may go on, and so may the restore of a disk backup; what comes after it would have old
values written over it. So nothing comes after it before everybody concerned has said that it writes no more (`call_off`), or
has been killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from deeprec_ext.aimaster.backups.trainers import task_of
from deeprec_ext.aimaster.core.records import PsInfo
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.membership import commands
from deeprec_ext.aimaster.membership.commands import CommandError
from deeprec_ext.aimaster.membership.members import Member
from deeprec_ext.aimaster.membership.view import refill
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.proto import deeprec_ext_pb2 as pb

HOLDER = "fetch"
PREPARE_SECONDS = 10.0
"""How long the commit waits for a trainer's session to be prepared; then the trainer builds it itself."""

CALL_OFF_SECONDS = 30.0
"""How long a PS may take to end the one run that is under way, of some megabytes, when it is told to write no more."""


@dataclass(frozen=True)
class Source:
    """Who has the freshest copy of a slot: a PS, also one that leaves, or a trainer."""

    name: str
    task: int
    address: str
    since: float  # monotonic: updates since then are missing in it


@dataclass(frozen=True)
class Fetching:
    """What would be done: pure, from what backup holders have."""

    lost: tuple[str, ...]
    sources: Mapping[int, Source]  # lost slot with variables -> who holds its copy
    since: float  # monotonic: updates since then are missing in the oldest copy


def find_source(job: Job, slot: int) -> Source | None:
    """None: nobody has a copy."""
    held, copy = job.peer_backups.anywhere(slot), job.trainer_backups.usable(slot)
    ps = job.peer_backups.copies.member(held) if held is not None else None
    holder = job.members.get(copy.holder) if copy is not None else None
    by_ps = Source(ps.name, held.task, ps.address, held.since) if held is not None and ps is not None else None
    by_holder = (
        Source(holder.name, task_of(holder.name), holder.address, copy.since)
        if copy is not None and holder is not None
        else None
    )
    return max((one for one in (by_ps, by_holder) if one is not None), key=lambda one: one.since, default=None)


def plan_fetch(job: Job) -> Fetching | None:
    """None when a lost slot has no copy anywhere."""
    cluster, backups = job.cluster, job.peer_backups
    if job.settings.ps_failover != "promote" or not cluster.live or not cluster.lost or not job.catalogue.fingerprint:
        return None
    gone = {ps.task for ps in cluster.ps if ps.name in cluster.lost}
    needed = [slot for slot, task in enumerate(cluster.slot_map) if task in gone and slot in backups.needed()]
    sources: dict[int, Source] = {}
    for slot in needed:
        source = find_source(job, slot)
        if source is None:
            return None
        sources[slot] = source
    return Fetching(cluster.lost, sources, min((one.since for one in sources.values()), default=job.clock.monotonic()))


def told_of(sources: Mapping[int, Source]) -> dict[str, list[int]]:
    """For events: who had the copies of which slots."""
    names = sorted({one.name for one in sources.values()})
    return {name: sorted(slot for slot, one in sources.items() if one.name == name) for name in names}


def fetch_of(job: Job, sources: Mapping[int, Source], step: int) -> pb.Fetch:
    """The command to who gets these slots."""
    moves = [
        pb.Move(variable=variable, source_task=sources[variable.slot].task)
        for variable in job.catalogue.variables
        if variable.slot in sources
    ]
    addresses = {one.task: one.address for one in sources.values()}
    holders = [pb.PsMember(task=task, address=address) for task, address in addresses.items()]
    return pb.Fetch(moves=moves, ps=holders, step=step, global_step=job.catalogue.global_step)


async def call_off(job: Job, names: Iterable[str]) -> list[str]:
    """No Fetch or restore of a disk backup that these PS were told before is written any more. Returns those that have not
    said so in time: they may be writing as long as they live."""
    members = {name: member for name in names if (member := job.members.get(name)) is not None}
    told = job.send(members, call_off=pb.CallOff())
    if told:
        await asyncio.wait(told.values(), timeout=CALL_OFF_SECONDS)
    late = []
    for name, future in told.items():
        if not future.done():
            future.cancel()
            late.append(name)
        elif future.exception() is None and not future.result().ok:  # else it is gone, and writes nothing
            late.append(name)
    return late


async def carry_out(
    job: Job, planned: Fetching, found: Mapping[str, PsInfo], step: int, decided: Callable[[], None]
) -> None:
    """The replacements are there, and trainers stand still since they told `step`. `decided` is called when there is no way
    back, before a trainer can train again. Raises CommandError, never after that."""
    await job.trainer_backups.freeze()
    view = refill(job.cluster, found).to_proto(job.workers())
    trainers = job.members.trainers()
    keep = bool(job.cluster.marked)
    prepared = job.send(trainers, prepare=pb.Prepare(view=view, keep_marks=keep))
    fetches: dict[str, asyncio.Future[pb.Ack]] = {}
    for name, ps in found.items():
        old = job.cluster.by_name(name)
        member = job.members.get(name)
        if member is None or old is None:
            raise CommandError(f"{name} is gone again")
        sources = {slot: one for slot, one in planned.sources.items() if job.cluster.slot_map[slot] == old.task}
        fetch = fetch_of(job, sources, step)
        fetches[ps.name] = job.commander.send(member.outbox, fetch=fetch)
    await commands.gather(fetches, job.settings.prepare_limit_seconds, "Fetch")
    if job.cluster.lost != planned.lost:
        raise CommandError("another PS was lost meanwhile")
    job.lock.take(HOLDER, Hold.GATE)
    try:
        with job.store.transaction(durable=True):
            job.set_cluster(refill(job.cluster, found))
        decided()
        for slot, source in planned.sources.items():  # nothing is newer than they are before somebody trains again
            job.trainer_backups.are_exact(slot, source.task)
            job.peer_backups.copies.are_exact(slot, source.task)
        await job.keep()
        job.backup_map = ()
        await _commit(job, trainers, prepared)
        job.publish(without=frozenset(trainers))
    finally:
        job.lock.give_back(HOLDER, Hold.GATE)
        job.changed.notify()


async def _commit(job: Job, trainers: Mapping[str, Member], prepared: Mapping[str, asyncio.Future[pb.Ack]]) -> None:
    """To each as soon as its session is prepared."""
    commit = pb.Commit(view=job.view(), keep_marks=bool(job.cluster.marked))

    async def one(name: str) -> None:
        await asyncio.wait([prepared[name]], timeout=PREPARE_SECONDS)
        job.commander.send(trainers[name].outbox, commit=commit)

    if trainers:
        await asyncio.gather(*(one(name) for name in trainers))
