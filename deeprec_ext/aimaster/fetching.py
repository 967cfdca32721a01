"""A PS is lost, no PS has taken its slots over, but somebody has copies of them: whoever replaces it pulls them.

1. `Lost` to the trainers, as before a promotion, again and again until all lost PS have registered anew.
2. `Freeze` to the holder; `Fetch` to the replacements. Meanwhile trainers prepare sessions for the new view (`Prepare`).
3. The new view is persisted and committed, of the same generation: no session ends, nothing is restored.

What is forgotten: updates of the lost slots since the last refresh of their copies began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deeprec_ext.aimaster import commands
from deeprec_ext.aimaster.commands import CommandError
from deeprec_ext.aimaster.facts import PsInfo
from deeprec_ext.aimaster.holding import task_of
from deeprec_ext.aimaster.job import Job
from deeprec_ext.aimaster.members import Member
from deeprec_ext.aimaster.view import refill
from deeprec_ext.proto import deeprec_ext_pb2 as pb

PREPARE_SECONDS = 10.0
"""How long the commit waits for a trainer's session to be prepared; then the trainer builds it itself."""


@dataclass(frozen=True)
class Fetching:
    """What would be done: pure, from what guards and holder have."""

    lost: tuple[str, ...]
    sources: Mapping[int, int]  # lost slot with variables -> task of who holds its copy
    addresses: Mapping[int, str]  # of those
    since: float  # monotonic: updates since then are missing in the oldest copy


def plan_fetch(job: Job) -> Fetching | None:
    """None when a lost slot has no copy anywhere."""
    cluster, guards, holding = job.cluster, job.guards, job.holding
    if job.settings.ps_failover != "promote" or not cluster.live or not cluster.lost or not job.catalogue.fingerprint:
        return None
    gone = {ps.task for ps in cluster.ps if ps.name in cluster.lost}
    needed = [slot for slot, task in enumerate(cluster.slot_map) if task in gone and slot in guards.needed()]
    sources: dict[int, int] = {}
    addresses: dict[int, str] = {}
    by_guard, by_holder = [], []
    for slot in needed:
        held, copy = guards.usable(slot), holding.usable(slot)
        ps = next((one for one in cluster.ps if held is not None and one.task == held.task), None)
        member = job.members.get(copy.holder) if copy is not None else None
        if ps is not None:
            sources[slot], addresses[ps.task] = ps.task, ps.address
            by_guard.append(slot)
        elif member is not None:
            sources[slot] = task_of(member.name)
            addresses[sources[slot]] = member.address
            by_holder.append(slot)
        else:
            return None
    age = max(guards.age_seconds(by_guard), holding.age_seconds(by_holder))
    return Fetching(cluster.lost, sources, addresses, job.clock.monotonic() - age)


async def carry_out(
    job: Job, planned: Fetching, found: Mapping[str, PsInfo], step: int, decided: Callable[[], None]
) -> None:
    """The replacements are there, and trainers stand still since they told `step`. `decided` is called when there is no way
    back, before a trainer can train again. Raises CommandError, never after that."""
    await job.holding.freeze()
    view = refill(job.cluster, found).to_proto(job.workers())
    trainers = job.members.trainers()
    keep = bool(job.cluster.marked)
    prepared = {
        name: job.commander.send(member.outbox, prepare=pb.Prepare(view=view, keep_marks=keep))
        for name, member in trainers.items()
    }
    fetches: dict[str, asyncio.Future[pb.Ack]] = {}
    for name, ps in found.items():
        old = job.cluster.by_name(name)
        member = job.members.get(name)
        if member is None or old is None:
            raise CommandError(f"{name} is gone again")
        moves = [
            pb.Move(variable=variable, source_task=planned.sources[variable.slot])
            for variable in job.catalogue.variables
            if job.cluster.slot_map[variable.slot] == old.task
        ]
        holders = [pb.PsMember(task=task, address=address) for task, address in planned.addresses.items()]
        fetch = pb.Fetch(moves=moves, ps=holders, step=step, global_step=job.catalogue.global_step)
        fetches[ps.name] = job.commander.send(member.outbox, fetch=fetch)
    await commands.gather(fetches, job.settings.prepare_limit_seconds, "Fetch")
    if job.cluster.lost != planned.lost:
        raise CommandError("another PS was lost meanwhile")
    job.gate_closed = True
    try:
        with job.store.transaction(durable=True):
            job.set_cluster(refill(job.cluster, found))
        decided()
        await job.keep()
        job.backup_map = ()
        await _commit(job, trainers, prepared)
        job.publish(without=frozenset(trainers))
    finally:
        job.gate_closed = False
        job.changed.notify()


async def _commit(job: Job, trainers: Mapping[str, Member], prepared: Mapping[str, asyncio.Future[pb.Ack]]) -> None:
    """To each as soon as its session is prepared."""
    commit = pb.Commit(view=job.view(), keep_marks=bool(job.cluster.marked))

    async def one(name: str) -> None:
        await asyncio.wait([prepared[name]], timeout=PREPARE_SECONDS)
        job.commander.send(trainers[name].outbox, commit=commit)

    if trainers:
        await asyncio.gather(*(one(name) for name in trainers))
