"""From pods to the status: how many of each type are active, succeeded, failed, and what that says of the job.

With a Chief or Master, that one decides. Without, the job has succeeded when all workers have, or when worker 0 exited 0
(unless the policy is AllWorkers). A failed replica fails the job, except while one is being restarted, or where it is a
worker of a job with `enableDynamicWorker`. Success is looked at first: what fails once the job is done does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tfjob.model import names
from tfjob.model.conditions import FAILED, RESTARTING, RUNNING, SUCCEEDED, success_message
from tfjob.model.kinds import Manifest
from tfjob.model.spec import ReplicaSpec, TFJob
from tfjob.reconciling import elastic_end as elastic
from tfjob.reconciling.observed import View, deleting, exit_code, left_over, phase, retryable


@dataclass(frozen=True)
class Tally:
    """Of the pods of one type. `broken`: failed for good, by an exit code below 128 under `ExitCode`."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    restarting: int = 0
    broken: int = 0


@dataclass(frozen=True)
class Verdict:
    """The condition that the job is in now, and its message."""

    condition: str
    message: str


def tallies(view: View, start: str) -> dict[str, Tally]:
    """Type → its pods, of those that count: deleted after `start` if at all, and not beyond `replicas`, which are on their
    way out (in an elastic job the AIMaster knows which are)."""
    found: dict[str, Tally] = {}
    for type_, spec in view.job.specs.items():
        pods = [pod for _, pod in _counted(view, spec, start)]
        lost = [pod for pod in pods if phase(pod) == "Running" and deleting(pod)]  # a lost node may never say Failed
        failed = [pod for pod in pods if phase(pod) == "Failed"]
        again = [pod for pod in failed if retryable(pod, spec)]
        found[type_] = Tally(
            active=sum(phase(pod) == "Running" for pod in pods) - len(lost),
            succeeded=sum(phase(pod) == "Succeeded" for pod in pods), failed=len(failed) + len(lost),
            restarting=len(again), broken=len(failed) - len(again) if spec.restart_policy == "ExitCode" else 0,
        )  # fmt: skip
    return found


def _counted(view: View, spec: ReplicaSpec, start: str) -> Iterator[tuple[int, Manifest]]:
    for index, pod in view.replicas(spec):
        if (view.elastic or index < spec.replicas) and not left_over(pod, start):
            yield index, pod


def replica_statuses(job: TFJob, found: Mapping[str, Tally]) -> Manifest:
    """As the API server stores them: what is 0 is left out."""
    result: Manifest = {}
    for type_, tally in found.items():
        counts = {"active": tally.active, "succeeded": tally.succeeded, "failed": tally.failed}
        counted = {key: count for key, count in counts.items() if count}
        result[type_] = {**counted, "selector": names.selector(job.name, type_)}
    return result


def judge(view: View, found: Mapping[str, Tally], start: str) -> Verdict | None:
    """None: the job is as it was (its pods are pending, or being made)."""
    job = view.job
    if view.elastic:
        ending = elastic.ending(view, start)
        if ending:
            return Verdict(*ending)
    elif _succeeded(view, found, start):
        return Verdict(SUCCEEDED, success_message(job))
    else:
        failed = _failed(job, found)
        if failed:
            return failed
    leader = job.chief or names.WORKER
    if leader in found and found[leader].active:
        return Verdict(RUNNING, f"TFJob {job.namespace}/{job.name} is running.")
    return None


def _succeeded(view: View, found: Mapping[str, Tally], start: str) -> bool:
    job = view.job
    if job.chief:
        return found[job.chief].succeeded == job.replicas(job.chief)
    if names.WORKER not in found:
        return False
    return found[names.WORKER].succeeded == job.replicas(names.WORKER) or (
        job.success_policy != "AllWorkers" and _worker_0_exited_0(view, start)
    )


def _worker_0_exited_0(view: View, start: str) -> bool:
    return any(
        index == 0 and phase(pod) == "Succeeded" and exit_code(pod) == 0
        for index, pod in _counted(view, view.job.specs[names.WORKER], start)
    )


def _failed(job: TFJob, found: Mapping[str, Tally]) -> Verdict | None:
    for type_, tally in found.items():
        if tally.broken:  # the contract has other words for it
            return Verdict(FAILED, f'job "{job.name}" is failing because "{type_}" replica(s) failed.')
    for type_, tally in found.items():
        if tally.restarting:
            return Verdict(RESTARTING, f"job {job.name} is restarting because {type_} replica(s) failed.")
    for type_, tally in found.items():
        if tally.failed and not (job.dynamic_worker and type_ == names.WORKER):
            text = f"TFJob {job.namespace}/{job.name} has failed because {tally.failed} {type_} replica(s) failed."
            return Verdict(FAILED, text)
    return None
