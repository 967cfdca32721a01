"""What came of a week: figures of one way to share the cluster."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from deeprec_ext.simulator.cluster.cluster_job import ClusterJob
from deeprec_ext.simulator.cluster.engine import Cluster
from deeprec_ext.simulator.cluster.ways import Arbitrated


@dataclass(frozen=True)
class Group:
    """Of jobs of one priority, or of all. Seconds."""

    jobs: int
    completion_mean: float  # from arrival to end
    completion_p50: float
    completion_p90: float
    first_step_mean: float  # from arrival
    first_step_p90: float
    deadlines: int
    deadlines_kept: int


@dataclass(frozen=True)
class Outcome:
    all: Group
    by_priority: dict[int, Group]
    unfinished: int
    makespan: float
    use: float  # of cores, requested ÷ there, in the week in which jobs arrive
    changes_per_job: float
    parks: int  # jobs that were to give back everything
    evictions: int  # pods
    paused_hours: float  # of all jobs: changes, losses
    stood_hours: float  # a part of a job was missing, or restarted
    redone_hours: float  # trained twice
    waited_hours: float  # without any pod
    serving_wait_mean: float
    serving_wait_max: float
    serving_over_2: float  # share of its pods that wait longer than 2 s
    serving_over_5: float
    decisions: int = 0
    decide_mean_seconds: float = 0.0  # processor time
    decide_max_seconds: float = 0.0

    @property
    def lost_hours(self) -> float:
        return self.paused_hours + self.stood_hours + self.redone_hours


def outcome(cluster: Cluster) -> Outcome:
    jobs = cluster.ended
    way, waits = cluster.way, cluster.serving_waits
    spent = way.decide_seconds if isinstance(way, Arbitrated) else []
    return Outcome(
        all=group(jobs),
        by_priority={
            priority: group([job for job in jobs if job.asked.priority == priority])
            for priority in sorted({job.asked.priority for job in jobs}, reverse=True)
        },
        unfinished=len(cluster.week.jobs) - len(jobs),
        makespan=max((_end(job) for job in jobs), default=0.0),
        use=cluster.used_seconds / cluster.there_seconds if cluster.there_seconds else 0.0,
        changes_per_job=statistics.fmean(job.changes for job in jobs) if jobs else 0.0,
        parks=sum(job.parks for job in jobs), evictions=cluster.evictions,
        paused_hours=sum(job.paused for job in jobs) / 3600, stood_hours=sum(job.stood for job in jobs) / 3600,
        redone_hours=sum(job.redone for job in jobs) / 3600, waited_hours=sum(job.waited for job in jobs) / 3600,
        serving_wait_mean=statistics.fmean(waits) if waits else 0.0, serving_wait_max=max(waits, default=0.0),
        serving_over_2=_over(waits, 2.0), serving_over_5=_over(waits, 5.0),
        decisions=len(spent), decide_mean_seconds=statistics.fmean(spent) if spent else 0.0,
        decide_max_seconds=max(spent, default=0.0),
    )  # fmt: skip


def group(jobs: Sequence[ClusterJob]) -> Group:
    took = sorted(_end(job) - job.asked.arrives for job in jobs)
    first = sorted((job.first_step or _end(job)) - job.asked.arrives for job in jobs)
    due = [job for job in jobs if job.asked.deadline]
    return Group(
        len(jobs), statistics.fmean(took) if took else 0.0, _share(took, 0.5), _share(took, 0.9),
        statistics.fmean(first) if first else 0.0, _share(first, 0.9), len(due),
        sum(_end(job) <= job.asked.deadline for job in due),
    )  # fmt: skip


def _end(job: ClusterJob) -> float:
    assert job.ended is not None
    return job.ended


def _over(waits: Sequence[float], seconds: float) -> float:
    return sum(one > seconds + 1e-6 for one in waits) / max(1, len(waits))


def _share(values: Sequence[float], share: float) -> float:
    return values[int(share * (len(values) - 1))] if values else 0.0
