"""How a job ends: the first reason counts; then everything is stopped in an order in which nobody is surprised."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from deeprec_ext.errors import DeepRecError
from deeprec_ext.launch.client import JobClient
from deeprec_ext.launch.roles.supervisor import Pods

_log = logging.getLogger(__name__)

SUCCEEDED, FAILED, STOPPED = "succeeded", "failed", "stopped"
EVALUATOR_GRACE_SECONDS = 120.0
"""The evaluator's last evaluation starts only after the chief's last checkpoint."""
STOP_GRACE_SECONDS = 5.0
CHIEF_GRACE_SECONDS = 20.0
"""It writes a checkpoint (`elastic.trainer.last_checkpoint`)."""
AIMASTER_GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Outcome:
    status: str
    reason: str = ""
    detail: tuple[str, ...] = ()  # the end of a log, for people


class Ending:
    """Set once; later reasons are consequences of the first."""

    def __init__(self) -> None:
        self._outcome: Outcome | None = None
        self._set = asyncio.Event()

    @property
    def outcome(self) -> Outcome | None:
        return self._outcome

    def set(self, outcome: Outcome) -> None:
        if self._outcome is None:
            self._outcome = outcome
            self._set.set()

    async def wait(self) -> Outcome:
        await self._set.wait()
        assert self._outcome is not None
        return self._outcome


async def wait_for_others(pods: Pods, worker_grace_seconds: float) -> None:
    """After the chief's success: workers and evaluator end by themselves (the AIMaster has told them to leave)."""
    workers = [pod.name for pod in pods.all() if pod.role == "worker"]
    evaluators = [pod.name for pod in pods.all() if pod.role == "evaluator"]
    await asyncio.gather(
        _let_end(pods, workers, worker_grace_seconds), _let_end(pods, evaluators, EVALUATOR_GRACE_SECONDS)
    )  # fmt: skip


async def _let_end(pods: Pods, names: list[str], grace_seconds: float) -> None:
    if not await pods.wait_exited(names, grace_seconds):
        late = [name for name in names if (pod := pods.get(name)) is not None and pod.running]
        _log.warning("%s did not end within %.0f s of the chief; stopping them", ", ".join(late), grace_seconds)


async def stop_all(pods: Pods, client: JobClient, outcome: Outcome) -> None:
    """Trainers, then PS, then the AIMaster, which gets to know the outcome before."""
    names = {
        role: [pod.name for pod in pods.all() if pod.role == role] for role in ("chief", "worker", "evaluator", "ps")
    }
    await asyncio.gather(
        pods.stop(names["chief"], CHIEF_GRACE_SECONDS),
        pods.stop([*names["worker"], *names["evaluator"]], STOP_GRACE_SECONDS),
    )
    await pods.stop(names["ps"], STOP_GRACE_SECONDS)
    aimaster = pods.get("aimaster")
    if aimaster is not None and aimaster.running:
        try:
            await client.finish(outcome.status, outcome.reason)
        except DeepRecError as error:
            _log.debug("the AIMaster was not told of the end: %s", error)
    await pods.stop(["aimaster"], AIMASTER_GRACE_SECONDS)
