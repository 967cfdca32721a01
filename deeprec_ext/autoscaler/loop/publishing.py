"""Publishes the job's bid whenever it says something else than before: to an arbiter, if there is one that reads it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from collections.abc import Callable

from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.arbiter.observed import Bid, Count
from deeprec_ext.autoscaler.loop.bidding import WAIT_SECONDS, News, bid_of
from deeprec_ext.autoscaler.loop.exchange import Exchange
from deeprec_ext.autoscaler.loop.measuring import Measuring
from deeprec_ext.autoscaler.loop.observing import limits_of, size_of
from deeprec_ext.autoscaler.observe.observed import Window
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.errors import one_line

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0


class Publishing:
    """Args:
    looks: nobody else looks at the job, so this does.
    wanted: what the job wants, whatever is allowed; of one with an autoscaler while that cannot say.
    """

    def __init__(
        self, job: Job, scalings: ScalingQueue, measuring: Measuring, exchange: Exchange, *, looks: bool,
        wanted: Callable[[], Count], policy: Policy | None = None,
    ) -> None:  # fmt: skip
        self._job, self._scalings, self._measuring, self._exchange = job, scalings, measuring, exchange
        self._looks, self._wanted, self._policy = looks, wanted, policy or Policy()
        self._recalled = False
        self._worked_out: Bid | None = None
        self._from: tuple[object, float] = None, -math.inf  # (what it was worked out from, when)
        self.published: Bid | None = None
        self._published_at = self._not_before = -math.inf
        self._said = ""

    async def run(self) -> None:
        """Runs for ever."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if not self._exchange.is_read:
                continue
            try:
                await self.turn()
            except Exception as error:  # the arbiter goes on with what it knows; the next look may fare better
                self._not_before = self._job.clock.monotonic() + WAIT_SECONDS
                self._say(error)

    async def turn(self) -> None:
        """One tick. Raises what the exchange raises."""
        job = self._job
        if self._looks:
            if not self._recalled and job.settled and job.cluster.live:
                self._recalled = True
                self._measuring.recall()
            self._measuring.look()
        if job.ending or not job.settled or (job.resumed and not job.cluster.live):
            return  # what was known before this AIMaster is not known again yet
        bid, now = await self._bid(), job.clock.monotonic()
        wait = 0.0 if self.published is None else News(self.published, bid).after_seconds
        if now < max(self._published_at + wait, self._not_before):
            return
        await self._exchange.publish(bid)
        self.published, self._published_at, self._said = bid, now, ""
        if self._looks and bid.worth:
            self._measuring.remember()

    async def _bid(self) -> Bid:
        """What is dear is worked out anew when something was measured, and not more often than it could be told."""
        job, scalings = self._job, self._scalings
        newest: Window | None = next(iter(self._measuring.windows[-1:]), None)
        present, wanted, now = size_of(job), self._wanted(), job.clock.monotonic()
        facts = newest, (present.ps, present.workers), wanted
        before, at = self._from
        worked_out = self._worked_out
        if worked_out is None or (facts != before and (not worked_out.worth or now - at >= WAIT_SECONDS)):
            observed = dataclasses.replace(self._measuring.seen(), limits=limits_of(job.spec))
            worked_out = await asyncio.to_thread(
                lambda: bid_of(
                    observed, self._policy, time=job.clock.wall(), wanted=wanted, decides=job.settings.autoscale,
                    training=False,
                )
            )  # fmt: skip
            self._worked_out, self._from = worked_out, (facts, now)
        if not job.settings.autoscale:
            worked_out = dataclasses.replace(worked_out, wanted=wanted)
        return dataclasses.replace(
            worked_out, time=round(job.clock.wall(), 3), size=Count(present.ps, present.workers),
            training=any(member.heartbeat.training for member in job.members.trainers().values()),
            busy=bool(scalings.under_way()),
        )  # fmt: skip

    def _say(self, error: Exception) -> None:
        """Once, as long as it is the same, and nothing was published."""
        what = f"{type(error).__name__}: {one_line(error)}"
        if what != self._said:
            self._said = what
            log.error("the bid is not published", exc_info=error)
            self._job.event(
                "warning", text=f"the arbiter is not told what sizes are worth to this job: {one_line(error)}"
            )
