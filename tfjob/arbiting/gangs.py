"""What gang schedulers have admitted keeps its least size: they have counted on it, and would make the pods again.

So the arbiter takes from such a job only what is above its least, and leaves whole gangs to Volcano, the coscheduling plugin
or Kueue.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from deeprec_ext.arbiter.observed import Allowance, Cluster, Decision, Job
from tfjob.model.arbitrated import same


def kept(cluster: Cluster, decision: Decision, admitted: Collection[str]) -> Decision:
    """The same decision, but jobs of these names have at least their least. `used_share` stays as it was decided."""
    if not admitted:
        return decision
    allowances = tuple(
        _kept(job, one) if job.name in admitted else one for job, one in zip(cluster.jobs, decision.allowances)
    )
    changed = tuple(job.name for job, one in zip(cluster.jobs, allowances) if job.allowance != one)
    return dataclasses.replace(decision, allowances=allowances, changed=changed)


def _kept(job: Job, one: Allowance) -> Allowance:
    if one.runs:
        return one
    before = job.allowance
    why = f"its gang was admitted and keeps its least; else: {one.why}"
    found = Allowance(one.job, True, job.least.ps, job.least.workers, one.since, why)
    return before if before is not None and same(before, found) else found
