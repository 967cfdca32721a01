"""Replacing what died or hung.

A PS takes the variables of its slots with it. The view is marked (`lost`, not live), a scaling before COMMIT is rolled
back, and when a new incarnation has registered under the name it gets a new task, the slot map is rewritten to it and a
view of the next generation is published: trainers make their sessions anew and the chief restores the last checkpoint.
Something that hangs is killed first, so that it cannot write any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from deeprec_ext.aimaster.facts import PsInfo
from deeprec_ext.aimaster.failures import Failures
from deeprec_ext.aimaster.job import Job
from deeprec_ext.aimaster.view import lose, replace_lost

log = logging.getLogger(__name__)
FLUSH_SECONDS = 1.0
STALL_SECONDS = 1.0


class Healing:
    """`restart` kills and starts a pod, `abort` rolls back the scaling under way, `blocked`: one is being decided."""

    def __init__(self, job: Job, failures: Failures) -> None:
        self._job, self._failures = job, failures
        self.restart: Callable[[str], None] = lambda name: None
        self.abort: Callable[[str], None] = lambda reason: None
        self.blocked: Callable[[], bool] = lambda: False

    def died(self, name: str, cause: str, *, count: bool = True) -> None:
        """A registered incarnation is over and nobody asked it to. `count`: it is a failure, not an end."""
        job = self._job
        ps = job.cluster.by_name(name)
        member = job.members.drop(name, cause)
        record = job.members.record(name)
        if record is not None and member is None and record.incarnation:
            job.store.fence(record.incarnation, name)
        if record is not None and record.state in ("running", "leaving"):
            job.members.update(name, state="starting", task=-1)
        if count:
            self._failures.add(name, cause, member, ps.task if ps else -1)
        if ps is not None and name not in job.cluster.lost:
            job.set_cluster(lose(job.cluster, name))
            self.abort(f"{name} {cause}")
        elif member is not None and member.is_trainer:
            job.publish_soon()
        job.changed.notify()

    def hung(self, name: str, seconds: float) -> None:
        """No sign of life for so long: kill it (fencing), then it is like any other death."""
        record = self._job.members.record(name)
        wanted = record is not None and record.wanted
        self._job.event("silent", name, seconds=round(seconds, 2))
        self.died(name, "hung", count=wanted)
        self.restart(name)

    async def replace(self) -> None:
        """Runs for ever: publishes the next generation whenever all lost PS are replaced."""
        job = self._job
        while True:
            await job.changed.until(lambda: bool(job.cluster.lost) and self._replacements() is not None, None)
            found = self._replacements()
            if found is None:
                continue
            job.set_cluster(replace_lost(job.cluster, found))
            job.event("ps_replaced", ",".join(sorted(found)), generation=job.cluster.generation)
            self._failures.replaced(job.cluster.epoch)
            job.publish()

    def _replacements(self) -> dict[str, PsInfo] | None:
        """New incarnations of all lost PS; None while one is missing or a scaling must end first."""
        job = self._job
        if self.blocked():
            return None
        found = {}
        for name in job.cluster.lost:
            member, old = job.members.get(name), job.cluster.by_name(name)
            if member is None or not member.admitted or (old and member.incarnation == old.incarnation):
                return None
            found[name] = PsInfo(member.task, name, member.address, member.incarnation)
        return found

    async def watch_heartbeats(self) -> None:
        """Runs for ever. A stall of this very process is nobody's silence."""
        job = self._job
        limits = (job.settings.ps_heartbeat_limit_seconds, job.settings.worker_heartbeat_limit_seconds)
        tick = max(0.02, min(min(limits) / 6, 0.5))
        before = flushed = job.clock.monotonic()
        while True:
            await asyncio.sleep(tick)
            now = job.clock.monotonic()
            if now - before > tick + STALL_SECONDS:
                log.warning("the AIMaster stood still for %.1f s", now - before)
                job.members.forgive(now - before)
            before = now
            for member, seconds in job.members.silent():
                self.hung(member.name, seconds)
            if now - flushed >= FLUSH_SECONDS:
                job.members.flush()
                flushed = now
