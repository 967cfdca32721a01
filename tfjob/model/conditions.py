"""The conditions of a TFJob: what `kubectl get tfjob` shows, and what the SDK waits for.

Of each type there is at most one. The one that changed moves to the end, so the last says how the job is. Running and
Restarting exclude each other, Running becomes False at the end, and nothing follows Failed. A condition that is so already
is left as it is, times included: then there is nothing to write.
"""

from __future__ import annotations

from datetime import datetime

from tfjob.model import names
from tfjob.model.kinds import Manifest
from tfjob.model.spec import TFJob
from tfjob.model.times import stamp

CREATED, RUNNING, RESTARTING = "Created", "Running", "Restarting"
SUCCEEDED, FAILED, SUSPENDED = "Succeeded", "Failed", "Suspended"
QUEUED = "Queued"  # ours: an elastic job that has not begun waits for room; it goes when the job begins
RESUMED, INVALID = "Resumed", "FailedValidation"  # reasons without a condition of that name
SUSPENDING, PARKED = (
    "Suspending",
    "Parked",
)  # the same: of Suspended, while the AIMaster keeps what there is; not by its user
WAITED = "MaxWait"  # of Failed

_EXCLUDES = {RUNNING: RESTARTING, RESTARTING: RUNNING}


def reason_of(word: str) -> str:
    """`Running` → `TFJobRunning`."""
    return names.KIND + word


def success_message(job: TFJob) -> str:
    return f"TFJob {job.namespace}/{job.name} successfully completed."


def condition(status: Manifest, type_: str) -> Manifest | None:
    return next((one for one in status.get("conditions") or [] if one.get("type") == type_), None)


def is_true(status: Manifest, type_: str) -> bool:
    return (condition(status, type_) or {}).get("status") == "True"


def is_finished(status: Manifest) -> bool:
    return is_true(status, SUCCEEDED) or is_true(status, FAILED)


def without(status: Manifest, type_: str) -> Manifest:
    """The very same where there is no such condition."""
    if condition(status, type_) is None:
        return status
    return {**status, "conditions": [one for one in status["conditions"] if one.get("type") != type_]}


def retold(status: Manifest, type_: str, message: str, now: datetime) -> Manifest:
    """The condition says it in other words, and is otherwise as it was; the very same where it says so already."""
    before = condition(status, type_)
    if before is None or before.get("message") == message:
        return status
    changed = {**before, "message": message, "lastUpdateTime": stamp(now)}
    return {**status, "conditions": [changed if one is before else one for one in status["conditions"]]}


def set_condition(
    status: Manifest, type_: str, message: str, now: datetime, *, value: bool = True, reason: str = ""
) -> Manifest:
    """A new status, or the very same where the condition has this value and reason already.

    Args:
        reason: empty: as the type is called, `TFJob<type>`.
    """
    if is_true(status, FAILED):
        return status
    before, word = condition(status, type_), "True" if value else "False"
    reason = reason or reason_of(type_)
    if before is not None and (before.get("status"), before.get("reason")) == (word, reason):
        return status
    kept = before is not None and before.get("status") == word
    changed = {
        "type": type_, "status": word, "reason": reason, "message": message, "lastUpdateTime": stamp(now),
        "lastTransitionTime": before.get("lastTransitionTime") if before and kept else stamp(now),
    }  # fmt: skip
    others = []
    for one in status.get("conditions") or []:
        if one.get("type") in (type_, _EXCLUDES.get(type_)):
            continue
        if type_ in (SUCCEEDED, FAILED) and one.get("type") == RUNNING and one.get("status") == "True":
            one = {**one, "status": "False", "lastUpdateTime": stamp(now), "lastTransitionTime": stamp(now)}
        others.append(one)
    return {**status, "conditions": [*others, changed]}
