"""From the job's state to a plan: sizes of slots, the PS of the new map, the variables that move."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence

from deeprec_ext.aimaster import planner
from deeprec_ext.aimaster.job import Job
from deeprec_ext.proto import deeprec_ext_pb2 as pb


def slot_bytes(variables: Iterable[pb.Variable], slots: int) -> list[int]:
    """[S] bytes of the variables of each slot."""
    sizes = [0] * slots
    for variable in variables:
        if 0 <= variable.slot < slots:
            sizes[variable.slot] += variable.bytes
    return sizes


def moves_of(variables: Iterable[pb.Variable], old: Sequence[int], new: Sequence[int]) -> dict[int, list[pb.Move]]:
    """Every variable of a slot that changes its owner, by the task of the target."""
    moves: dict[int, list[pb.Move]] = {}
    for variable in variables:
        source, target = old[variable.slot], new[variable.slot]
        if source != target:
            moves.setdefault(target, []).append(pb.Move(variable=variable, source_task=source))
    return moves


def tracked(variables: Iterable[pb.Variable], slots: Collection[int]) -> dict[str, str]:
    """variable -> bitmap of every table on these slots whose dirty rows are marked."""
    return {v.name: v.bitmap for v in variables if v.slot in slots and v.update == pb.Variable.ROWS and v.bitmap}


async def wanted_map(job: Job, added: Sequence[str], drained: Sequence[str], replace: str = "") -> planner.Plan:
    """The plan for the present PS, plus `added`, minus `drained`.

    New PS that are not registered yet count with the task numbers they are going to get. A replacement takes exactly
    the slots of the one it replaces: anything else would move more.
    """
    cluster = job.cluster
    sizes = slot_bytes(job.catalogue.variables, len(cluster.slot_map))
    tasks, expected = {}, cluster.next_task
    for name in added:
        member = job.members.get(name)
        if member is not None and member.task >= 0:
            tasks[name] = member.task
        else:
            tasks[name], expected = expected, expected + 1
    if replace:
        old = cluster.by_name(replace)
        new = [tasks[added[0]] if old and task == old.task else task for task in cluster.slot_map]
        return planner.make_plan(sizes, cluster.slot_map, new)
    staying = [ps.task for ps in cluster.ps if ps.name not in drained]
    return await asyncio.to_thread(planner.plan, sizes, cluster.slot_map, [*staying, *tasks.values()])
