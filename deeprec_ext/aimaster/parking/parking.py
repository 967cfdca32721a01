"""Before the processes of a job go for a while: everything is kept that can be, within bounds, and is told in one sentence.

1. Nothing is healed any more, and the scaling under way is rolled back, unless it is decided; then it is waited for.
2. Where there are disk backups, trainers stop at the step boundary, and a cut is made of that moment. It has the position of
   the data ledger, so no step that was made is made again, and no record is left out.
3. The store is written, and what is kept elsewhere (in a cluster the snapshot in the ConfigMap): sizes, scalings, the ledger.

Nobody trains afterwards until the lease of the pause is over; by then the processes are gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from deeprec_ext.aimaster.failover.promotion import stop_trainers
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.scaling.queue import ScalingQueue
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.aimaster.store import resuming
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.retries import Sleep
from deeprec_ext.units import format_seconds

log = logging.getLogger(__name__)

QUIET_SECONDS = 60.0
"""How long the end of a scaling, or of a failover, is waited for before a cut."""

LATE_SECONDS, LATE_BEATS = 1.0, 2
"""After the pause, until what trainers have trained is told: so many heartbeats, at the most so long."""

LEASE_MARGIN_SECONDS = 60.0
"""By how much the pause outlasts the cut: the processes have to go within it."""

LET_GO_SECONDS = 1.0
"""That is left of the pause where nothing comes of it."""

KEEP_SECONDS = 20.0
"""For the store and the snapshot."""


class Parking:
    """`run` once; whatever it cannot keep it says."""

    def __init__(self, job: Job, scalings: ScalingQueue, sleep: Sleep = asyncio.sleep) -> None:
        self._job, self._scalings, self._sleep = job, scalings, sleep
        self._paused = False

    async def run(self, why: str) -> str:
        """What the job goes on with, as a sentence's rest. Raises StaleError alone."""
        job = self._job
        job.event("parking", reason=why)
        job.lock.take("the parking", Hold.STOPPING)
        self._scalings.queue.clear()  # of this process: the store has them, and the next AIMaster takes them up
        cut, problem = await self._cut()
        job.members.flush()
        await asyncio.wait({keeping := asyncio.ensure_future(job.keep())}, timeout=KEEP_SECONDS)
        if keeping.done():
            keeping.result()
        else:
            keeping.cancel()
            problem = "; ".join(filter(None, (problem, "the job's state could not be written in time")))
        told = kept(job, cut=cut, problem=problem)
        job.event("parked", reason=why, kept=told)
        return told

    async def let_go(self) -> None:
        """Trainers go on soon: whatever they stopped for does not come."""
        if self._paused:
            await stop_trainers(self._job, (), LET_GO_SECONDS)

    async def _cut(self) -> tuple[bool, str]:
        """(whether a cut of this moment is committed, else why not)."""
        job, limit = self._job, self._job.settings.disk_backup_limit_seconds
        if why_not := no_cut(job):
            return False, why_not
        self._scalings.abort("the job is parked")
        if not await job.changed.until(
            lambda: job.quiet(Hold.VIEWS, Hold.GATE, Hold.MARKS, Hold.CHANGE), QUIET_SECONDS
        ):
            return False, "a PS is lost" if job.cluster.lost else f"something else went on ({job.lock})"
        self._paused = True
        step = await stop_trainers(job, (), limit + LEASE_MARGIN_SECONDS, job.settings.pause_limit_seconds)
        await self._sleep(min(LATE_SECONDS, LATE_BEATS * job.settings.heartbeat_seconds))
        try:
            done = await asyncio.wait_for(job.disk.cut(), limit)
        except asyncio.TimeoutError:
            return False, f"no cut of step {step:,} within {format_seconds(limit)}"
        except DeepRecError as error:
            return False, str(error)
        return done, "" if done else job.disk.error or "a scaling or a death came across the cut"


def no_cut(job: Job) -> str:
    """Why no cut can be made of the present moment; empty: it can."""
    if job.spec.sums:
        return (
            "without PS a worker writes the disk backups by itself"
            if job.settings.disk_backup
            else "it has no disk backups"
        )
    if not job.choices.disk_path:
        return "it has no disk backups (annotation aimaster.deeprec.io/backup: peer,disk=DIR)"
    if not job.cluster.live or not job.catalogue.variables:
        return "nothing is trained yet"
    return ""


def kept(job: Job, *, cut: bool, problem: str) -> str:
    """`kept: disk backup of step 1,200, 2 PS, 3 workers`, or what it goes on with instead."""
    ps, workers = (len(job.members.wanted(role)) for role in (pb.PS, pb.WORKER))
    size = f"{workers} workers" if job.spec.sums else f"{ps} PS, {workers} workers"
    if not job.members.has_trained:
        return f"nothing is trained yet; {size}"
    at: Mapping[str, object] = job.store.get(resuming.DISK) or {}
    if cut:
        return f"kept: disk backup of step {at.get('step', job.members.step):,}, {size}"
    if isinstance(at.get("step"), int) and resuming.cut_is_newest(job.store):
        ago = format_seconds(max(0.0, job.clock.wall() - float(at.get("time") or 0.0)))  # type: ignore[arg-type]
        return f"kept: disk backup of step {at['step']:,}, of {ago} ago, {size}; not the steps since: {problem}"
    saved = (job.store.get(resuming.CHECKPOINT) or {}).get("step")
    where = f"the checkpoint of step {saved:,}" if saved else "what its script restores by itself"
    return f"kept: {size}; the model is as in {where}, what came after that is lost: {problem}"
