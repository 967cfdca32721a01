"""What jobs were allowed, as their annotations say it: for whoever does not decide, a second operator or the command line."""

from __future__ import annotations

from deeprec_ext.arbiter import saying
from deeprec_ext.arbiter.observed import Allowance, Cluster, Decision, Job


def standing(cluster: Cluster) -> Decision:
    """As if it had just been decided. A job without an allowance has what it wants: so it is without an arbiter."""
    allowances = tuple(job.allowance or _unlimited(job) for job in cluster.jobs)
    return Decision(cluster.time, allowances, (), 0.0)


def _unlimited(job: Job) -> Allowance:
    wanted = job.bid.wanted if job.bid is not None else job.written
    return Allowance(job.name, True, wanted.ps, wanted.workers, job.arrived, saying.NOT_YET)
