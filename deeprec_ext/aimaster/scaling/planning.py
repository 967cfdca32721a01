"""From the job's state to a plan: the PS of the new map and what moves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.placement import planner
from deeprec_ext.aimaster.placement.slots import slot_bytes

TRACES_MIN = 3
"""As many traced steps as the autoscaler wants before it believes a slot's load."""


async def wanted_map(
    job: Job, added: Sequence[str], drained: Sequence[str], replace: str = "", weights: Sequence[float] = ()
) -> planner.Plan:
    """The plan for the present PS, plus `added`, minus `drained`; balanced by bytes, then measured load, or, where given, by
    `weights` per slot.

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
    balanced_by = planner.whole_weights(weights) if weights else sizes
    loads = [] if weights else slot_loads(job)
    planned = await asyncio.to_thread(planner.plan, balanced_by, cluster.slot_map, [*staying, *tasks.values()], loads)
    return planner.make_plan(sizes, cluster.slot_map, planned.slot_map)


def slot_loads(job: Job) -> list[float]:
    """[S] seconds of look-ups and updates per second; empty as long as too few steps were traced to tell."""
    if job.metrics.slot_traces() < TRACES_MIN:
        return []
    latest = [job.metrics.latest(f"slot-{slot}") for slot in range(len(job.cluster.slot_map))]
    return [values.get("lookup_share", 0.0) + values.get("update_share", 0.0) for values in latest]
