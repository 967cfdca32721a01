"""Where a job has had its chances: backoffLimit and activeDeadlineSeconds. Both end it, and leave nothing of it running.

Recreated pods leave no trace in the cluster, so they are counted in an annotation of the TFJob, together with the uids of the
pods that are counted and still there: whoever is killed in between counts each of them once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from tfjob.model import names
from tfjob.model.conditions import FAILED, condition
from tfjob.model.kinds import Manifest
from tfjob.model.spec import TFJob
from tfjob.model.times import seconds_since
from tfjob.reconciling.observed import View, phase, restart_count


def backoff_message(job: TFJob) -> str:
    return f"Job {job.name} has failed because it has reached the specified backoff limit"


def deadline_message(job: TFJob) -> str:
    return f"Job {job.name} has failed because it was active longer than specified deadline"


def exceeded(view: View, start: str | None, now: datetime) -> str | None:
    """Why the job has to end now. `start`: when it was started; None: it waits for its gang, and no deadline runs."""
    job = view.job
    limit = job.run_policy.backoff_limit
    if limit is not None:
        count = _recreations(job)[0] + _container_restarts(view) + (_failed_for_good(view) if limit == 0 else 0)
        if count > 0 and count >= limit:
            return backoff_message(job)
    left = seconds_left(job, start, now)
    return deadline_message(job) if left is not None and left <= 0 else None


def seconds_left(job: TFJob, start: str | None, now: datetime) -> float | None:
    """Of its deadline; None: it has none, or it does not run yet."""
    limit, spent = job.run_policy.active_deadline_seconds, seconds_since(start, now)
    return None if limit is None or spent is None else limit - spent


def ended_by_limit(job: TFJob, status: Manifest) -> bool:
    """Whether that is what the job has failed of."""
    message = (condition(status, FAILED) or {}).get("message")
    return message in (backoff_message(job), deadline_message(job))


def count_recreations(job: TFJob, uids: Iterable[str], existing: Iterable[str]) -> str | None:
    """The annotation `restarts` that counts these pods, too; None: it is right as it is, or nobody asks for it.

    Args:
        uids: of the pods that are being recreated.
        existing: of all pods of the job.
    """
    if job.run_policy.backoff_limit is None:
        return None
    count, counted = _recreations(job)
    fresh = [uid for uid in uids if uid not in counted]
    if not fresh:
        return None
    there = set(existing)
    still = {*fresh, *(uid for uid in counted if uid in there)}
    return json.dumps({"job": job.uid, "count": count + len(fresh), "uids": sorted(still)})


def _recreations(job: TFJob) -> tuple[int, frozenset[str]]:
    try:
        found = json.loads(job.annotations.get(names.RESTARTS_ANNOTATION) or "{}")
        if found.get("job") != job.uid:  # copied from another job, with its manifest
            return 0, frozenset()
        return int(found.get("count", 0)), frozenset(str(uid) for uid in found.get("uids", ()))
    except (ValueError, TypeError, AttributeError):  # somebody else has written it: count anew
        return 0, frozenset()


def _failed_for_good(view: View) -> int:
    """Pods that failed: with a limit of 0 the first of them is one too many, whatever its policy. (In an elastic job the
    AIMaster knows which of them matters.)"""
    if view.elastic:
        return 0
    specs = view.job.specs.values()
    return sum(phase(pod) == "Failed" for spec in specs for index, pod in view.replicas(spec) if index < spec.replicas)


def _container_restarts(view: View) -> int:
    """Of running pods whose policy restarts them."""
    specs = [spec for spec in view.job.specs.values() if spec.restarts]
    return sum(restart_count(pod) for spec in specs for _, pod in view.replicas(spec) if phase(pod) == "Running")
