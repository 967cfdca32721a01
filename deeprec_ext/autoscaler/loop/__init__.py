"""From the running job to decisions and back: observes, asks the policy, records, and carries out through scalings."""

from __future__ import annotations

from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.pods.backend import PodBackend
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.autoscaler.loop.autoscaler import Autoscaler
from deeprec_ext.autoscaler.policy.decide import decide
from deeprec_ext.autoscaler.policy.record import Record
from deeprec_ext.autoscaler.policy.thresholds import Policy


def make_autoscaler(job: Job, scalings: ScalingQueue, backend: PodBackend) -> Autoscaler:
    """The autoscaler of a job, with the standard policy and its record in the run directory. Raises OSError."""
    policy = Policy()
    return Autoscaler(
        job, scalings, backend.resize, job.metrics.latest, lambda observed: decide(observed, policy),
        Record(job.spec.workdir, policy, job.clock.wall), resizes_in_place=backend.resizes_in_place,
        one_host=backend.one_host, free_memory=backend.available_memory,
    )  # fmt: skip


__all__ = ["Autoscaler", "make_autoscaler"]
