"""The status of a TrainingJob that runs as a TFJob: what that one's says, in the words of the ET operator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from tfjob.model import conditions, names
from tfjob.model.annotations import sizes
from tfjob.model.kinds import Manifest
from tfjob.model.spec import InvalidError, TFJob
from tfjob.reconciling.et import words
from tfjob.reconciling.observed import deleting, index_of, phase

LAUNCHER = "Launcher"


def mirrored(training_job: Manifest, tfjob: Manifest, pods: Sequence[Manifest], scaler: str, now: datetime) -> Manifest:
    """The whole status.

    Args:
        pods: of the TFJob, as far as they are seen.
        scaler: which ScaleOut or ScaleIn is under way, as `currentScaler` has it; empty: none.
    """
    name, found = training_job["metadata"]["name"], tfjob.get("status") or {}
    status = words.told(
        words.status_of(training_job), words.CREATED, "TrainingJobCreated", f"TrainingJob {name} is created.", now
    )
    place = f"{tfjob['metadata'].get('namespace')}/{tfjob['metadata']['name']}"
    status = words.told(status, words.WORKERS_CREATED, words.TAKEN, f"it runs as TFJob {place}", now)
    counts = (found.get("replicaStatuses") or {}).get(names.WORKER) or {}
    running = conditions.is_true(found, conditions.RUNNING)
    if running and not conditions.is_true(status, words.WORKERS_READY) and counts.get("active", 0) >= _replicas(tfjob):
        status = words.told(
            status, words.WORKERS_READY, "WorkersReady", f"all workers ({counts['active']}) are running", now
        )
    if running:
        status = words.told(
            status, words.LAUNCHER_CREATED, "LauncherCreated", "worker 0 leads; there is no launcher", now
        )
        status = words.told(status, words.RUNNING, "TrainingJobRunning", f"TrainingJob {name} is running.", now)
    for type_ in (words.SUCCEEDED, words.FAILED):
        if conditions.is_true(found, type_):
            said = (conditions.condition(found, type_) or {}).get("message") or ""
            status = words.told(status, type_, f"TrainingJob{type_}", said, now)
    suspended = conditions.is_true(found, conditions.SUSPENDED)
    if suspended or conditions.is_true(status, words.SUSPENDED):
        status = conditions.set_condition(
            status, words.SUSPENDED, f"TrainingJob {name} is {'suspended' if suspended else 'resumed'}.", now, value=suspended,
            reason="TrainingJobSuspended",
        )  # fmt: skip
    status = {
        **status, "phase": _phase(status, running, suspended, scaler), "currentScaler": scaler,
        "replicaStatuses": {LAUNCHER: _launcher(status, running), "Worker": _counted(counts)},
        **_workers(tfjob, pods, counts.get("active", 0)),
        **{key: found[key] for key in ("startTime", "completionTime") if found.get(key)},
    }  # fmt: skip
    return {key: value for key, value in status.items() if value != "" or key == "phase"}


def refused(training_job: Manifest, why: str, now: datetime) -> Manifest:
    """The status of one that cannot be run."""
    name = training_job["metadata"]["name"]
    status = words.told(
        words.status_of(training_job), words.CREATED, "TrainingJobCreated", f"TrainingJob {name} is created.", now
    )
    status = words.told(status, words.FAILED, "TrainingJobFailed", why, now)
    return {**status, "phase": words.FAILED}


def worker_pods(pods: Iterable[Manifest]) -> dict[int, Manifest]:
    """Index → pod, of workers that are not about to go."""
    found = ((index_of(pod, names.WORKER), pod) for pod in pods if not deleting(pod))
    return dict(sorted(((index, pod) for index, pod in found if index is not None), key=lambda pair: pair[0]))


def lowest_free(taken: Iterable[int], count: int) -> list[int]:
    """Indices that new pods will have."""
    used, found, index = set(taken), list[int](), 0
    while len(found) < count:
        if index not in used:
            found.append(index)
        index += 1
    return found


def _phase(status: Manifest, running: bool, suspended: bool, scaler: str) -> str:
    for type_ in (words.SUCCEEDED, words.FAILED):
        if conditions.is_true(status, type_):
            return type_
    if suspended:
        return words.SUSPENDED
    return words.SCALING if scaler else words.RUNNING if running else words.CREATED


def _launcher(status: Manifest, running: bool) -> Manifest:
    """It is worker 0 that stands for it."""
    for type_, key in ((words.SUCCEEDED, "succeeded"), (words.FAILED, "failed")):
        if conditions.is_true(status, type_):
            return {key: 1}
    return {"active": 1} if running else {}


def _counted(counts: Manifest) -> Manifest:
    return {key: counts[key] for key in ("active", "succeeded", "failed") if counts.get(key)}


def _replicas(tfjob: Manifest) -> int:
    try:
        return TFJob.parse(tfjob).replicas(names.WORKER)
    except InvalidError:
        return 1


def _workers(tfjob: Manifest, pods: Sequence[Manifest], active: int) -> Manifest:
    """`targetWorkers` and `currentWorkers`. Where pods are not seen (beside Kubeflow), they have the lowest indices."""
    there = worker_pods(pods)
    try:
        job = TFJob.parse(tfjob)
        settled = sizes(job, names.SCALED_TO_ANNOTATION).get(names.WORKER) == job.replicas(names.WORKER)
        want = job.replicas(names.WORKER)
    except InvalidError:
        settled, want = True, len(there)
    name = tfjob["metadata"]["name"]
    kept = list(there)[:want] if settled or len(there) <= want else list(there)
    target = sorted([*kept, *lowest_free(there, want - len(kept))])
    current = [index for index, pod in there.items() if phase(pod) == "Running"] if there else list(range(active))
    return {
        "targetWorkers": [names.pod_name(name, names.WORKER, index) for index in target],
        "currentWorkers": [names.pod_name(name, names.WORKER, index) for index in current],
    }  # fmt: skip
