"""From the running job to decisions and back: observes, asks the policy, records, and carries out through scalings; and what it
has to do with an arbiter: it says what sizes are worth, and obeys."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.pods.backend import PodBackend
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.autoscaler.loop.autoscaler import Autoscaler
from deeprec_ext.autoscaler.loop.exchange import Exchange
from deeprec_ext.autoscaler.loop.measuring import Measuring
from deeprec_ext.autoscaler.loop.obeying import Obeying
from deeprec_ext.autoscaler.loop.publishing import Publishing
from deeprec_ext.autoscaler.policy.decide import decide
from deeprec_ext.autoscaler.policy.record import Record
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.options import Sizes


def make_autoscaler(job: Job, scalings: ScalingQueue, backend: PodBackend) -> Autoscaler:
    """The autoscaler of a job, with the standard policy and its record in the run directory. Raises OSError."""
    policy = Policy()
    return Autoscaler(
        job, scalings, backend.resize, job.metrics.latest, lambda observed: decide(observed, policy),
        Record(job.spec.workdir, policy, job.clock.wall), resizes_in_place=backend.resizes_in_place,
        one_host=backend.one_host, free_memory=backend.available_memory,
    )  # fmt: skip


class Arbitrated:
    """A job's side of the arbiter; `written`: the sizes that its user has written, where it has begun with others."""

    def __init__(
        self, job: Job, scalings: ScalingQueue, backend: PodBackend, autoscaler: Autoscaler | None, exchange: Exchange,
        written: Sizes,
    ) -> None:  # fmt: skip
        measuring = autoscaler or Measuring(
            job, scalings, job.metrics.latest, one_host=backend.one_host, free_memory=backend.available_memory
        )
        self.obeying = Obeying(job, scalings, measuring, exchange, written)
        self._publishing = Publishing(
            job, scalings, measuring, exchange, looks=autoscaler is None, wanted=self.obeying.wanted
        )

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """Each runs for ever."""
        return [self.obeying.listen(), self.obeying.run(), self._publishing.run()]


__all__ = ["Arbitrated", "Autoscaler", "make_autoscaler"]
