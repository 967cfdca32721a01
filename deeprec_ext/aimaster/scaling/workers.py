"""A change of workers: ACQUIRE, publish (COMMIT), RELEASE. Pauses nobody: workers do not know each other."""

from __future__ import annotations

from deeprec_ext.aimaster.scaling.machine import State, limit_seconds
from deeprec_ext.aimaster.scaling.run import ScalingRun
from deeprec_ext.proto import deeprec_ext_pb2 as pb


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
            for name in run.scaling.drained:
                job.members.update(name, wanted=False)
            job.advance()
            run.enter(State.RELEASE, epoch=job.cluster.epoch)
        job.notice(run.scaling.id, pb.ScalingNotice.COMMITTED)
        await run.release(limit_seconds(State.RELEASE, job.settings) or 0.0)
        run.finish("committed")
