"""Obeys the arbiter's allowance: what is beyond it is given back at once, and taken again once it is allowed.

By ordinary scalings, one at a time, in the arbiter's name: workers go first, then PS; both come back together. A user's hold is
on decisions: it does not keep what somebody else needs. A scaling under way ends first, whoever asked for it, and then the
newest allowance counts; one that still waits for pods that it may not have any more is cut short, for they may never come.
`runs: false` is for who starts and ends jobs, and changes nothing here; beside Kubeflow, whose pods nobody of ours takes away,
the job is kept at its least.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math

from deeprec_ext.aimaster.core.records import ARBITER
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.scaling.machine import State
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.aimaster.scaling.requests import leaving, losing_their_host, present
from deeprec_ext.aimaster.state.allowed import ROLES
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.arbiter.observed import Allowance, Count
from deeprec_ext.arbiter.wire import read_allowance
from deeprec_ext.autoscaler.loop.exchange import Exchange
from deeprec_ext.autoscaler.loop.measuring import Measuring
from deeprec_ext.errors import DeepRecError, UsageError, one_line
from deeprec_ext.options import Sizes
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5

AGAIN_SECONDS, AGAIN_MAX_SECONDS = 10.0, 300.0
"""After a scaling that failed the next try is so long after it, twice as long each time; at once under another allowance."""

COMPLAIN_SECONDS = 60.0

FREE = "the arbiter limits this job no more"

HELD = "; decisions are held, which is no veto on this"


class Obeying:
    """Args:
    written: what the job's user has written, where it has begun with less.
    """

    def __init__(
        self, job: Job, scalings: ScalingQueue, measuring: Measuring, exchange: Exchange, written: Sizes | None = None
    ) -> None:
        self._job, self._scalings, self._measuring, self._exchange = job, scalings, measuring, exchange
        self._written = job.spec if written is None else written
        self._new = False
        self._complained, self._complained_at = (
            False,
            -math.inf,
        )  # of what could not be obeyed, since the last that could
        self._tried = 0  # id of the scaling that is to be looked after
        self._failed, self._again = 0, -math.inf  # in a row; monotonic seconds
        self._waits = False  # for the scaling that is under way
        self._later: dict[str, str] = {}  # who is replaced once others have left → why

    # ------------------------------------------------------------------------------------------------ what is said

    async def listen(self) -> None:
        """Runs for ever."""
        async for text in self._exchange.allowances():
            try:
                self.take(text)
            except Exception:  # what comes next may be better
                log.exception("an allowance was not taken: %r", text)

    def take(self, text: str | None) -> None:
        """One word of the arbiter; None: it limits this job no more."""
        job = self._job
        if text is None:
            if job.allowed.allowance is not None:
                job.event("allowance", reason=FREE)
                job.allowed.set(None)
                self._wake()
            return
        try:
            found = read_allowance(text, job.spec.name)
        except ValueError as error:
            self._complain(f"what the arbiter has written is ignored: {error}")
            return
        if not found.runs:
            if job.spec.own_pods:  # how it is to end is not for us, nor is what it may have then
                return
            found = dataclasses.replace(found, ps=job.allowed.limits("ps")[0], workers=job.allowed.limits("worker")[0])
        if complaint := job.allowed.complaint(found):
            self._complain(f"the arbiter's allowance is ignored: {complaint}")
            return
        self._complained = False
        before = job.allowed.allowance
        if found != before:
            self._set(found, before)

    def _set(self, found: Allowance, before: Allowance | None) -> None:
        job = self._job
        job.allowed.set(found)
        if before is None and not job.settings.autoscale:
            job.allowed.remember(self._wants())
        if before is None or (found.ps, found.workers) != (before.ps, before.workers):
            self._tried, self._failed, self._again = 0, 0, -math.inf
            job.event("allowance", ps=found.ps, workers=found.workers, reason=found.why)
        self._wake()

    def _wake(self) -> None:
        self._new = True
        self._job.changed.notify()

    def _complain(self, text: str) -> None:
        """Once, until there is one that can be obeyed; and seldom, if the two take turns."""
        now = self._job.clock.monotonic()
        if not self._complained and now >= self._complained_at + COMPLAIN_SECONDS:
            self._complained, self._complained_at = True, now
            self._job.event("allowance_ignored", reason=text)

    def _wants(self) -> dict[str, int]:
        """Before there was an allowance: what runs; before anything runs what is written."""
        if not self._job.cluster.formed:
            return {"ps": self._written.ps, "worker": self._written.workers}
        return {role: self._count(role) for role in ROLES}

    def wanted(self) -> Count:
        """By hand, or as it was before something was taken from it; else what runs."""
        found = {role: self._job.allowed.back(role) for role in ROLES}
        ps, workers = (self._count(role) if (count := found[role]) is None else count for role in ROLES)
        return Count(ps, workers)

    # ------------------------------------------------------------------------------------------------ what is done

    async def run(self) -> None:
        """Runs for ever."""
        while True:
            await self._job.changed.until(self._is_due, LOOK_SECONDS)
            self._new = False
            try:
                await self.look()
            except Exception as error:
                log.exception("the arbiter's allowance could not be obeyed")
                self._fail()
                self._job.event("warning", text=f"the arbiter's allowance could not be obeyed: {one_line(error)}")

    def _is_due(self) -> bool:
        return self._new or (self._waits and not self._scalings.under_way())

    async def look(self) -> None:
        """Asks for the next scaling that is due, unless one is under way."""
        job = self._job
        if job.ending or not (job.settled and job.cluster.live) or job.lock.held(Hold.STOPPING):
            return
        self._waits = bool(self._scalings.under_way())
        if self._waits:
            self._cut_short()
            return
        self._settle()
        allowance = job.allowed.allowance
        sizes = {} if job.clock.monotonic() < self._again else self._due()
        if not sizes:
            await self._replace_later()
            return
        why = allowance.why if allowance is not None else FREE
        request = pb.ScaleRequest(
            reason=f"{why}{HELD if job.held else ''}", ps=sizes.get("ps"), workers=sizes.get("worker")
        )
        try:
            reply = await self._scalings.request(request, requested_by=ARBITER)
            self._tried = reply.scaling_id
        except DeepRecError as error:
            self._fail()
            job.event("request_refused", reason=str(error), asked=f"{ARBITER}: {why}")

    def _cut_short(self) -> None:
        """What waits for pods that it may not have, and who is replaced while he or others have to leave: a replacement finds
        no room in a full cluster, and whoever needs that room would wait for it."""
        run, allowed = self._scalings.running, self._job.allowed
        if run is not None and run.state is State.ACQUIRE and (why := allowed.beyond(run.scaling.grows)):
            self._scalings.abort(why)
        waits = self._job.clock.monotonic() < self._again  # nobody is asked to leave now
        if not waits and any(leaving(self._job, role) for role in ROLES):
            self._later |= self._scalings.make_way(allowed.told())

    async def _replace_later(self) -> None:
        """Who was to be replaced when others had to leave first, and is still about to go."""
        later, self._later = self._later, {}
        for name in sorted(losing_their_host(self._job) & set(later)):
            with contextlib.suppress(UsageError):  # it has gone meanwhile
                await self._scalings.request(pb.ScaleRequest(replace=name, reason=later[name]))

    def _due(self) -> dict[str, int]:
        """Role → count of the next scaling; empty: the job has what it may and wants."""
        allowed = self._job.allowed
        if allowed.allowance is not None:
            for role in ("worker", "ps"):
                if (there := len(self._present(role))) > allowed.most(role):
                    if self._job.settings.autoscale:
                        allowed.remember({role: max(there, allowed.back(role) or 0)})
                    return {role: allowed.most(role)}
        return self._coming_back()

    def _coming_back(self) -> dict[str, int]:
        """What is wanted, and allowed again. Who has ended by itself is not missing."""
        found, allowed = {}, self._job.allowed
        for role in ROLES:
            if (back := allowed.back(role)) is None:
                continue
            if self._count(role) < (count := min(back, allowed.most(role))):
                found[role] = count
            elif self._count(role) >= back and (allowed.allowance is None or self._job.settings.autoscale):
                allowed.reached(role)
        return {} if self._measuring.ending else found

    def _settle(self) -> None:
        """How the last one of ours has ended."""
        number, self._tried = self._tried, 0
        ended = next((one for one in self._scalings.ended if one.id == number), None) if number else None
        if ended is not None:
            if ended.outcome == "committed":
                self._failed = 0
            else:
                self._fail()

    def _fail(self) -> None:
        wait = min(AGAIN_MAX_SECONDS, AGAIN_SECONDS * 2.0 ** min(self._failed, 10))
        self._failed, self._again = self._failed + 1, self._job.clock.monotonic() + wait

    def _present(self, role: str) -> list[str]:
        return present(self._job, pb.PS if role == "ps" else pb.WORKER)

    def _count(self, role: str) -> int:
        """Of those that are wanted: also who has ended by itself."""
        return len(self._job.members.wanted(pb.PS if role == "ps" else pb.WORKER))
