"""What happens when a job does not run: cleaning up after its end, its time to live, and suspension."""

from __future__ import annotations

from datetime import datetime

from tfjob.model import names
from tfjob.model.conditions import (
    FAILED,
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
    condition,
    is_true,
    reason_of,
    retold,
    set_condition,
)
from tfjob.model.events import Event
from tfjob.model.kinds import Manifest
from tfjob.model.spec import TFJob
from tfjob.model.times import seconds_since
from tfjob.reconciling.actions import Actions
from tfjob.reconciling.elastic_end import still_finishing
from tfjob.reconciling.limits import ended_by_limit
from tfjob.reconciling.observed import View, deleting, deletion, name_of, owned, phase


def finish(view: View, now: datetime) -> Actions:
    """Of a job that has succeeded or failed."""
    job = view.job
    remaining = _ttl_left(job, now)
    if remaining is not None and remaining <= 0:
        return Actions(delete_job=True)
    actions = Actions(status=_closing(job), again_seconds=remaining) + _delete_group(view)
    wait = still_finishing(view, now) if is_true(job.status, SUCCEEDED) else 0.0
    return actions + (Actions(again_seconds=wait) if wait else clean(view))


def suspend(view: View, status: Manifest, now: datetime, message: str, reason: str = reason_of(SUSPENDED)) -> Actions:
    """Everything goes but the job; the status says so."""
    changed = without_active(status)
    if is_true(changed, RUNNING):
        changed = set_condition(changed, RUNNING, message, now, value=False, reason=reason)
    changed = retold(set_condition(changed, SUSPENDED, message, now, reason=reason), SUSPENDED, message, now)
    events = () if is_true(status, SUSPENDED) else (Event("Normal", reason, message),)
    return delete_all(view) + Actions(status=changed, events=events)


def delete_all(view: View) -> Actions:
    """All pods and services of the job, an AIMaster's included, and its PodGroup."""
    return _delete_group(view) + Actions(
        delete_pods=tuple(deletion(pod) for pod in view.pods if not deleting(pod)),
        delete_services=tuple(deletion(one) for one in view.services if not deleting(one)),
    )


def without_active(status: Manifest, *, succeeded: bool = False) -> Manifest:
    """Nothing of the job is active any more; `succeeded`: and that counts as a success."""
    counts = {}
    for type_, before in (status.get("replicaStatuses") or {}).items():
        after = {key: value for key, value in before.items() if key != "active"}
        if succeeded and before.get("active"):
            after["succeeded"] = before["active"] + before.get("succeeded", 0)
        counts[type_] = after
    return status if counts == (status.get("replicaStatuses") or {}) else {**status, "replicaStatuses": counts}


def _closing(job: TFJob) -> Manifest | None:
    """Once a job has succeeded, whoever was active has done its part; once a limit has ended it, nobody is."""
    won = is_true(job.status, SUCCEEDED)
    if not won and not ended_by_limit(job, job.status):
        return None
    return without_active(job.status, succeeded=won)


def _ttl_left(job: TFJob, now: datetime) -> float | None:
    ended = condition(job.status, SUCCEEDED if is_true(job.status, SUCCEEDED) else FAILED) or {}
    since = job.status.get("completionTime") or ended.get("lastTransitionTime")
    limit, spent = job.run_policy.ttl_seconds, seconds_since(since, now)
    return None if limit is None or spent is None else limit - spent


def clean(view: View) -> Actions:
    """By cleanPodPolicy; what a limit has ended goes altogether. No AIMaster outlives its job: it would start anew for ever."""
    policy = "All" if ended_by_limit(view.job, view.job.status) else view.job.run_policy.clean_pod_policy
    if policy == "All":
        return delete_all(view)
    kept = {name_of(pod) for pod in view.pods if phase(pod) in ("Succeeded", "Failed")}
    living = tuple(pod for pod in view.pods if name_of(pod) not in kept and not deleting(pod))
    if policy == "None":
        own = names.aimaster_name(view.job.name)
        return Actions(delete_pods=tuple(deletion(pod) for pod in living if name_of(pod) == own))
    return Actions(
        delete_pods=tuple(map(deletion, living)),
        delete_services=tuple(deletion(one) for one in view.services if name_of(one) not in kept and not deleting(one)),
    )


def _delete_group(view: View) -> Actions:
    group = view.pod_group
    if group is None or not owned(group, view.job) or deleting(group):
        return Actions()
    return Actions(delete_pod_group=deletion(group))
