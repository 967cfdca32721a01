"""How a job ends in a cluster, where no launcher ends it: the same order, done by the AIMaster itself.

| the chief | then |
|---|---|
| succeeded | workers and evaluator end by themselves (they were told), PS are told to leave and exit 0, the rest is deleted |
| or another failed for good | everything that runs is deleted |

Beside Kubeflow nothing is deleted: it cleans up as the job's policy says, and would make again what goes. Whoever does not
leave stays until then. There nobody waits for the AIMaster's exit code either, and the kubelet would start it again: it is 0.

Nothing is started again meanwhile. Pods that have ended stay for their logs; the operator's clean-up policy takes them. Then
the summary is written and the AIMaster's own process ends: 0, or 1 with the reason where the kubelet looks for one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from deeprec_ext.aimaster.core.records import parse_name
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.pods.pods import Pods
from deeprec_ext.aimaster.reporting.summary import summarize
from deeprec_ext.aimaster.state.lock import Hold
from deeprec_ext.errors import UnreachableError
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.wholefiles import write_json

log = logging.getLogger(__name__)

EVALUATOR_GRACE_SECONDS = 120.0
"""The evaluator's last evaluation starts only after the chief's last checkpoint."""

STOP_GRACE_SECONDS = 5.0
GONE_SECONDS = 15.0
"""How long deleted pods are waited for; the kubelet needs a moment more than their grace."""

TERMINATION_LOG = Path("/dev/termination-log")
REASON_BYTES_MAX = 4000
"""The kubelet reads 4 096 bytes."""


class Cluster(Protocol):
    """What of the backend is needed here."""

    closed: bool

    def alive(self) -> list[str]:
        """Names of pods that run or are about to."""


class Ending:
    def __init__(self, job: Job, pods: Pods, cluster: Cluster, termination_log: Path = TERMINATION_LOG) -> None:
        self._job, self._pods, self._cluster, self._termination_log = job, pods, cluster, termination_log

    async def run(self) -> int:
        """Waits for the end of the job and brings it about; returns the exit code of the AIMaster."""
        job = self._job
        await job.changed.until(lambda: bool(job.ending), None)
        self._cluster.closed = True
        if job.ending == "finishing":
            await self._let_end()
        job.lock.take("the end", Hold.STOPPING)  # PS that leave are not lost
        if job.spec.own_pods:
            await self._stop(self._running(pb.CHIEF, pb.WORKER, pb.EVALUATOR))
        if not job.failure:
            await self._leave(self._running(pb.PS))
        if job.spec.own_pods:
            await self._stop(self._cluster.alive())
        return self._conclude()

    async def _let_end(self) -> None:
        workers, evaluators = self._running(pb.WORKER), self._running(pb.EVALUATOR)
        late = await asyncio.gather(
            self._pods.wait_exit(workers, self._job.settings.finish_grace_seconds),
            self._pods.wait_exit(evaluators, EVALUATOR_GRACE_SECONDS),
        )
        if names := [name for some in late for name in some]:
            log.warning("%s did not end in time after the chief; stopping them", ", ".join(names))

    async def _leave(self, names: tuple[str, ...]) -> None:
        job = self._job
        there = [member for name in names if (member := job.members.get(name)) is not None]
        for member in there:
            job.commander.send(member.outbox, leave=pb.Leave(reason="the job has ended"))
        await self._pods.wait_exit(tuple(member.name for member in there), STOP_GRACE_SECONDS)

    async def _stop(self, names: Iterable[str]) -> None:
        """Deletes them and waits until they have ended, bounded."""
        stopped = []
        for name in names:
            try:
                await self._pods.remove(name, STOP_GRACE_SECONDS)
                stopped.append(name)
            except UnreachableError as error:
                log.error("%s could not be stopped: %s", name, error)
        await self._pods.wait_exit(tuple(stopped), GONE_SECONDS)

    def _running(self, *roles: pb.Role) -> tuple[str, ...]:
        states = self._pods.seen.values()
        return tuple(sorted(one.name for one in states if one.state == "running" and parse_name(one.name)[0] in roles))

    # ------------------------------------------------------------------------------------------------ the last words

    def _conclude(self) -> int:
        job = self._job
        job.members.flush()
        status = "failed" if job.failure or job.ending == "failed" else "succeeded"
        job.store.put(finish={"status": status, "reason": job.failure})
        job.end("failed" if status == "failed" else "finished", job.failure)
        try:
            write_summary(job, status, {name: one.restarts for name, one in self._pods.seen.items()})
        except (OSError, ValueError) as error:
            log.error("no summary was written: %s", error)
        if status == "succeeded":
            return 0
        leave_word(self._termination_log, job.failure or "the job has failed")
        return 1 if job.spec.own_pods else 0


def leave_word(termination_log: Path, reason: str) -> None:
    """Where the kubelet looks for it: the operator tells the user from there."""
    try:
        termination_log.write_text(reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore"), encoding="utf-8")
    except OSError as error:
        log.warning("%r was not left in %s: %s", reason, termination_log, error)


def write_summary(job: Job, status: str, restarts: dict[str, int]) -> dict[str, Any]:
    """`summary.json` of the run directory, whole or not at all. Raises OSError."""
    seconds = round(max(0.0, job.clock.wall() - job.started), 3)
    roles = {name: {"started": count + 1, "restarted": count} for name, count in sorted(restarts.items())}
    summary = summarize(job.store, status=status, seconds=seconds, roles=roles, directory=job.spec.workdir)
    if job.failure:
        summary["reason"] = job.failure
    write_json(job.spec.workdir / "summary.json", summary)
    return summary
