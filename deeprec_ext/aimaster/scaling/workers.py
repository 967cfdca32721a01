"""A change of workers: ACQUIRE, publish (COMMIT), RELEASE. Pauses nobody: workers do not know each other.

In a job without PS they do: who is to leave is told before, and leaves between two steps.
"""

from __future__ import annotations

from deeprec_ext.aimaster.scaling.machine import State, limit_seconds
from deeprec_ext.aimaster.scaling.run import ScalingRun
from deeprec_ext.proto import deeprec_ext_pb2 as pb

PART_SECONDS = 10.0
"""How long one that leaves may take to end its step; then the others go on without it."""


class WorkerChange:
    def __init__(self, run: ScalingRun) -> None:
        self._run = run

    async def until_decided(self) -> None:
        """ACQUIRE, then the decision. Raises one of CAUGHT when it must be rolled back."""
        run = self._run
        run.job.notice(run.scaling.id, pb.ScalingNotice.BEGUN)
        await run.acquire(limit_seconds(State.ACQUIRE, run.job.settings) or 0.0)
        with run.job.store.transaction(durable=True):
            run.enter(State.COMMIT)

    async def roll_back(self, reason: str) -> None:
        run = self._run
        run.update(detail=f"rolling back: {reason}", reason=reason)
        await run.delete_added()
        run.job.notice(run.scaling.id, pb.ScalingNotice.ROLLED_BACK)
        run.finish("rolled_back", reason)
        run.job.publish_soon()

    async def go_forward(self) -> None:
        """From COMMIT or RELEASE to the end."""
        run, job = self._run, self._run.job
        if run.state is State.COMMIT:
            await job.keep()
            if job.spec.sums:
                await self._part()
            for name in run.scaling.drained:
                job.members.update(name, wanted=False)
            if (
                not job.spec.sums or job.view_is_due
            ):  # who comes is in a ring once he can sum, and breaks off none before
                job.advance()
            run.enter(State.RELEASE, epoch=job.cluster.epoch)
        job.notice(run.scaling.id, pb.ScalingNotice.COMMITTED)
        await run.release(limit_seconds(State.RELEASE, job.settings) or 0.0)
        run.finish("committed")

    async def _part(self) -> None:
        """Those that leave have heard what became of their last step, and sum no more."""
        job, drained = self._run.job, self._run.scaling.drained
        for name in drained:
            if (member := job.members.get(name)) is not None:
                job.commander.send(member.outbox, leave=pb.Leave(reason=f"scaling {self._run.scaling.id}"))

        def parted() -> bool:
            there = [member for name in drained if (member := job.members.get(name)) is not None]
            return all(member.parted or member.said_goodbye for member in there)

        await job.changed.until(parted, PART_SECONDS)
