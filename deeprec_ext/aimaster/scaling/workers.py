"""A change of workers: ACQUIRE, publish (COMMIT), RELEASE. Pauses nobody: workers do not know each other.

In a job without PS they do: who is to leave is told before, and leaves between two steps.
"""

from __future__ import annotations

from deeprec_ext.aimaster.scaling.machine import State, limit_seconds
from deeprec_ext.aimaster.scaling.run import ScalingRun, StepError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

PART_SECONDS, PART_STEPS = 10.0, 3
"""How long one that leaves may take to end its step, and how many median steps; then the others go on without it."""


class WorkerChange:
    def __init__(self, run: ScalingRun) -> None:
        self._run = run

    async def until_decided(self) -> None:
        """ACQUIRE, then the decision. Raises one of CAUGHT when it must be rolled back."""
        run = self._run
        run.job.notice(run.scaling.id, pb.ScalingNotice.BEGUN)
        limit = limit_seconds(State.ACQUIRE, run.job.settings) or 0.0
        await run.acquire(limit)
        if run.job.spec.sums and run.scaling.drained:
            await self._leave_the_model(limit)
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

    async def _leave_the_model(self, limit: float) -> None:
        """Somebody who stays has it, where any of those has that leave: has made a step, which one does with the others."""
        job, drained = self._run.job, self._run.scaling.drained

        def have(leave: bool) -> bool:
            there = [member for member in job.members.trainers().values() if (member.name in drained) == leave]
            return any(member.ring and member.heartbeat.training for member in there)

        self._run.update(detail="" if have(False) else "waiting until somebody who stays has the model")
        if not await job.changed.until(lambda: have(False) or not have(True), limit):
            raise StepError(f"nobody who stays has the model of {', '.join(drained)} after {limit:.0f} s")

    async def _part(self) -> None:
        """Those that leave have heard what became of their last step, and sum no more."""
        job, drained = self._run.job, self._run.scaling.drained
        for name in drained:
            if (member := job.members.get(name)) is not None:
                job.commander.send(member.outbox, leave=pb.Leave(reason=f"scaling {self._run.scaling.id}"))

        def parted() -> bool:
            there = [member for name in drained if (member := job.members.get(name)) is not None]
            return all(member.parted or member.said_goodbye for member in there)

        step = max((member.heartbeat.step_seconds for member in job.members.trainers().values()), default=0.0)
        await job.changed.until(parted, min(max(PART_SECONDS, PART_STEPS * step), job.settings.release_limit_seconds))
