"""From what the jobs of a pool shall have to what each may have at this moment.

On a cluster a pod that has no room waits for its node. Here nothing waits but the launcher that has not started yet, so nobody
is allowed more than what is free: who shall have less is told at once, who shall have more gets it as the others have given
it back. Who comes first in priority has what becomes free first, and a job that waits is kept room for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from deeprec_ext.arbiter.observed import Allowance, Cluster, Count, Decision, Job, Resources

TINY = 1e-9


def stepped(cluster: Cluster, decision: Decision, given: Mapping[str, Allowance]) -> tuple[Allowance, ...]:
    """What each job may have now, in the order of the observation.

    Args:
      cluster: of one node, as `seen.observed` makes it.
      decision: of it.
      given: what each may have so far.
    """
    decided = {one.job: one for one in decision.allowances}
    jobs = [job for job in cluster.jobs if job.name in decided]
    aims = {job.name: _aim(job, decided[job.name]) for job in jobs}
    holds = {job.name: _holds(job, aims[job.name], given.get(job.name)) for job in jobs if job.started}
    there = _Free(cluster.nodes[0].free)
    for job in jobs:
        if job.started:
            there.take(job, _most(holds[job.name], _placed(job)))
    found: dict[str, Allowance] = {}
    for job in sorted(jobs, key=lambda one: (-one.priority, one.arrived, one.name)):
        told, aim = decided[job.name], aims[job.name]
        if job.started:
            size = there.raised(job, holds[job.name], aim)
            found[job.name] = replace(told, runs=True, ps=size.ps, workers=size.workers)
        elif not told.runs:
            found[job.name] = replace(told, ps=0, workers=0)
        else:
            fits, left = there.fits(job, job.least), there.left.cpu
            there.take(job, job.least)
            if fits:
                size = there.raised(job, job.least, aim)
                found[job.name] = replace(told, ps=size.ps, workers=size.workers)
            else:
                needed = _needs(job, job.least)
                why = f"it is next: it needs {needed.cpu:g} cores, and {max(0.0, left):g} are free until others have given back"
                if left >= needed.cpu - TINY:
                    why = "it is next: it waits for memory that others give back"
                found[job.name] = replace(told, runs=False, ps=0, workers=0, why=why)
    return tuple(_since(found[job.name], given.get(job.name), cluster.time) for job in jobs)


class _Free:
    """What is left of the node while it is handed out. It may be less than nothing."""

    def __init__(self, resources: Resources) -> None:
        self.left = resources

    def take(self, job: Job, size: Count) -> None:
        self._less(_needs(job, size), 1)

    def fits(self, job: Job, size: Count) -> bool:
        return self._how_often(_needs(job, size), 1) == 1

    def raised(self, job: Job, size: Count, aim: Count) -> Count:
        """As much of what it lacks as there is room for, PS first."""
        ps = self._some(job.pods.ps, aim.ps - size.ps)
        return Count(size.ps + ps, size.workers + self._some(job.pods.worker, aim.workers - size.workers))

    def _some(self, pod: Resources, wanted: int) -> int:
        count = self._how_often(pod, max(0, wanted))
        self._less(pod, count)
        return count

    def _less(self, pod: Resources, count: int) -> None:
        self.left = Resources(self.left.cpu - pod.cpu * count, self.left.memory_bytes - pod.memory_bytes * count)

    def _how_often(self, pod: Resources, most: int) -> int:
        for one, free in ((pod.cpu, self.left.cpu), (pod.memory_bytes, self.left.memory_bytes)):
            if one > 0:
                most = min(most, max(0, int((free + TINY) / one)))
        return most


def _aim(job: Job, told: Allowance) -> Count:
    """Within its bounds. A job that runs has its least, whatever was decided: nobody ends it."""
    size = Count(told.ps, told.workers) if told.runs else job.least
    return Count(
        min(max(size.ps, job.least.ps), job.most.ps), min(max(size.workers, job.least.workers), job.most.workers)
    )


def _holds(job: Job, aim: Count, before: Allowance | None) -> Count:
    """What of its aim it has, or was allowed already and may be starting."""
    has = _placed(job)
    allowed = Count(before.ps, before.workers) if before is not None and before.runs else job.least
    return Count(min(aim.ps, max(has.ps, allowed.ps)), min(aim.workers, max(has.workers, allowed.workers)))


def _placed(job: Job) -> Count:
    roles = [one.role for one in job.placed]
    return Count(roles.count("ps"), roles.count("worker"))


def _most(one: Count, other: Count) -> Count:
    return Count(max(one.ps, other.ps), max(one.workers, other.workers))


def _needs(job: Job, size: Count) -> Resources:
    parts = ((job.pods.chief, 1), (job.pods.other, 1), (job.pods.ps, size.ps), (job.pods.worker, size.workers))
    return Resources(
        sum(pod.cpu * count for pod, count in parts), sum(pod.memory_bytes * count for pod, count in parts)
    )


def _since(new: Allowance, before: Allowance | None, now: float) -> Allowance:
    same = before is not None and (before.runs, before.ps, before.workers) == (new.runs, new.ps, new.workers)
    return replace(new, since=before.since if same and before is not None else now)
