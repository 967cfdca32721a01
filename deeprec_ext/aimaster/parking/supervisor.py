"""Looks for processes that wait for room, and does what `supervision` says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.parking import supervision
from deeprec_ext.aimaster.parking.supervision import Verdict, What
from deeprec_ext.aimaster.pods import recovery
from deeprec_ext.aimaster.pods.pods import Pods
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.errors import UnreachableError
from deeprec_ext.retries import Sleep

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
TRIES, LEAST_SINCE = "parked_by_itself", "least_since"
"""Keys of the store: times in a row; since when (Unix seconds) it begins with its least."""

WHY_MAX = 200


class Cluster(Protocol):
    def unplaced(self) -> Mapping[str, str]:
        """Pods that are to run and have no node → why."""


class Supervisor:
    """`park`: (why, after so many seconds there may be room); comes back at once."""

    def __init__(
        self, job: Job, pods: Pods, cluster: Cluster, park: Callable[[str, float], None], sleep: Sleep = asyncio.sleep
    ) -> None:
        self._job, self._pods, self._cluster, self._park, self._sleep = job, pods, cluster, park, sleep
        self._since: dict[str, float] = {}  # pod without a node → when it was first seen so, monotonic

    async def run(self) -> None:
        """For ever, or until the job is parked or has failed."""
        settings = self._job.settings
        while settings.supervise == "strict" or settings.max_wait_seconds:
            await self._sleep(LOOK_SECONDS)
            if self._job.ending or self._job.lock.held(Hold.STOPPING):
                return
            await self.act(supervision.judge(self.observed()))

    def observed(self) -> supervision.Job:
        job, now = self._job, self._job.clock.monotonic()
        coming, there = job.lock.names(Hold.NEW_PODS), self._cluster.unplaced()
        waiting = {name: why[:WHY_MAX] for name, why in there.items() if name not in coming}
        self._since = {name: self._since.get(name, now) for name in waiting}
        trained, least = job.members.has_trained, job.store.get(LEAST_SINCE)
        if job.members.are_training and not waiting and job.store.get(TRIES):
            job.store.put(**{TRIES: 0})
        since = least if isinstance(least, float) else job.started
        return supervision.Job(
            strict=job.settings.supervise == "strict", max_wait_seconds=job.settings.max_wait_seconds, trained=trained,
            formed=job.cluster.formed, gang=bool(job.spec.gang_scheduler), at_least=isinstance(least, float),
            waited_seconds=job.clock.wall() - since, tries=int(job.store.get(TRIES) or 0),
            waiting={name: (now - self._since[name], why) for name, why in waiting.items()},
        )  # fmt: skip

    async def act(self, verdict: Verdict) -> None:
        job = self._job
        if verdict.what is What.FAIL:
            job.end("failed", verdict.why)
        elif verdict.what is What.PARK:
            job.store.put(**{TRIES: int(job.store.get(TRIES) or 0) + 1})
            self._park(verdict.why, verdict.again_seconds)
        elif verdict.what is What.LEAST:
            await self._begin_with_least(verdict.why)

    async def _begin_with_least(self, why: str) -> None:
        job = self._job
        job.store.put(**{LEAST_SINCE: job.clock.wall()})
        ps, workers = job.spec.min_ps, job.spec.min_workers
        job.event("least", reason=why, ps=ps, workers=workers)
        try:
            await recovery.resize(job, self._pods, ps, workers)
        except UnreachableError as error:
            log.warning("the job does not begin with its least yet: %s", error)
            job.store.put(**{LEAST_SINCE: None})
