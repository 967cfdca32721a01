"""An elastic job that may not run now: suspended by its user, without room by the arbiter's word, or given up for a while by
its own AIMaster.

| of the job | then |
|---|---|
| nothing has begun | nothing is made of it; the condition Queued says why, and goes when it begins |
| its AIMaster runs | Suspended is False with the reason TFJobSuspending: it keeps what there is, and says `parked` |
| its AIMaster is only rescheduled | the same: it is made again, and has KEEPING_SECONDS to be there |
| that is said, or its time is over | the pods go; Suspended is True, with what was kept |
| nothing keeps it from running any more | it is resumed as it ever was; the AIMaster goes on with what was kept |

Who has said `parked` has stopped training: that is finished first, whatever is wanted by then.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime

from deeprec_ext.arbiter.observed import Allowance
from deeprec_ext.units import format_seconds
from tfjob.model.annotations import Elastic
from tfjob.model.arbitrated import allowance_of
from tfjob.model.conditions import (
    CREATED,
    PARKED,
    QUEUED,
    RESUMED,
    SUCCEEDED,
    SUSPENDED,
    SUSPENDING,
    condition,
    is_true,
    reason_of,
    retold,
    set_condition,
    without,
)
from tfjob.model.events import Event
from tfjob.model.kinds import Manifest
from tfjob.model.parked import parked_of
from tfjob.model.times import parse_time, seconds_since
from tfjob.reconciling.actions import Actions
from tfjob.reconciling.elastic_end import aimaster_lost, ending
from tfjob.reconciling.ends import delete_all, suspend
from tfjob.reconciling.observed import View, deleting, deletion, phase

KEEPING_SECONDS, CUT_SECONDS = 30.0, 660.0
"""How long an AIMaster may take to keep what there is: without disk backups, and with them (a cut has 600 s)."""


@dataclass(frozen=True)
class Stop:
    """Nothing of the job may run."""

    word: str  # SUSPENDED: its user's; PARKED: somebody else's; QUEUED: it has not begun
    why: str = ""
    again_seconds: float | None = None  # it may be over then


def stopped(view: View, status: Manifest, now: datetime) -> Stop | None:
    """None: it may run. Of an ordinary job only its user says that it may not."""
    job = view.job
    start = status.get("startTime") if view.elastic else None
    if start and (ending(view, start) or ("",))[0] == SUCCEEDED:  # there is nothing left to be kept
        return None
    if job.run_policy.suspend:
        return Stop(SUSPENDED)
    return (_not_allowed(view, status, now) or _given_up(view, status, now)) if view.elastic else None


def _not_allowed(view: View, status: Manifest, now: datetime) -> Stop | None:
    """By the arbiter. One that says nothing holds no job for long, nor one that was started before."""
    patience = view.cluster.arbiter_seconds
    if patience is None:
        return None
    allowance, begun = _allowance(view), bool(status.get("startTime"))
    if allowance is not None:
        return None if allowance.runs else Stop(PARKED if begun else QUEUED, allowance.why)
    created = (condition(status, CREATED) or {}).get("lastTransitionTime")
    left = patience - (seconds_since(created, now) or 0.0)
    if begun or left <= 0:
        return None
    return Stop(QUEUED, "the cluster's arbiter has not said yet what it may have", left)


def _given_up(view: View, status: Manifest, now: datetime) -> Stop | None:
    """By its AIMaster."""
    word = parked_of(view.job)
    if word is None or not status.get("startTime"):  # with a manifest it may have been copied
        return None
    if not is_true(status, SUSPENDED):
        return Stop(PARKED, word.why or "its AIMaster was told to")
    since = (condition(status, SUSPENDED) or {}).get("lastTransitionTime")
    if _allowed_since(view, since):
        return None
    left = word.again_seconds - (seconds_since(since, now) or 0.0)
    return Stop(PARKED, word.why, left) if word.why and left > 0 else None


def _allowed_since(view: View, parked: str | None) -> bool:
    """Whether the arbiter has let it run after it had parked itself: it knows of room. What it allowed before was none."""
    allowance = _allowance(view) if view.cluster.arbiter_seconds is not None else None
    return bool(allowance and parked and allowance.runs and allowance.since > parse_time(parked).timestamp())


def waited_too_long(view: View, status: Manifest, stop: Stop, now: datetime) -> str:
    """Why a job fails that has not begun; empty: it goes on waiting."""
    most = view.options.max_wait_seconds if view.options is not None else 0.0
    since = (condition(status, QUEUED) or {}).get("lastTransitionTime")
    if stop.word != QUEUED or not most or (seconds_since(since, now) or 0.0) < most:
        return ""
    return f"TFJob {view.job.name} has waited for room for {format_seconds(most)} (max-wait): {stop.why}"


def park(view: View, status: Manifest, stop: Stop, now: datetime) -> Actions:
    """What is to be done with a job that may not run now."""
    if not view.elastic:
        return suspend(view, status, now, f"TFJob {view.job.name} is suspended.")
    if stop.word == QUEUED:
        return _queue(view, status, stop, now)
    again, status = Actions(again_seconds=stop.again_seconds), without(status, QUEUED)
    if left := _keeping(view, status, now):
        return again + _ask(view, status, stop, now) + _made_again(view) + Actions(again_seconds=left)
    return again + suspend(view, status, now, _told(view, status, stop), reason_of(stop.word))


def resumed(view: View, status: Manifest, now: datetime) -> Manifest:
    """The status of a job that goes on: its AIMaster was asked to keep everything, and need not any more."""
    if (condition(status, SUSPENDED) or {}).get("reason") != reason_of(SUSPENDING):
        return status
    message = f"TFJob {view.job.name} goes on."
    return set_condition(status, SUSPENDED, message, now, value=False, reason=reason_of(RESUMED))


def sized(view: View) -> Elastic | None:
    """The options of a job that begins, or is resumed, with no more than the arbiter lets it have."""
    options, allowance = view.options, _allowance(view)
    if options is None or view.cluster.arbiter_seconds is None or allowance is None:
        return options
    ps, workers = max(options.min_ps, allowance.ps), max(options.min_workers, allowance.workers)
    return dataclasses.replace(options, first_ps=ps, first_workers=workers)


def _allowance(view: View) -> Allowance | None:
    """What is none counts as none: the arbiter, which says why, writes it anew."""
    return allowance_of(view.job.annotations, f"{view.job.namespace}/{view.job.name}")[0]


def _queue(view: View, status: Manifest, stop: Stop, now: datetime) -> Actions:
    job, most = view.job, view.options.max_wait_seconds if view.options is not None else 0.0
    if is_true(status, SUSPENDED):  # by its user, until now
        message = f"TFJob {job.name} is resumed."
        status = set_condition(status, SUSPENDED, message, now, value=False, reason=reason_of(RESUMED))
    message, before = f"TFJob {job.name} waits for room: {stop.why}.", is_true(status, QUEUED)
    status = retold(set_condition(status, QUEUED, message, now), QUEUED, message, now)
    since = seconds_since((condition(status, QUEUED) or {}).get("lastTransitionTime"), now) or 0.0
    waits = [one for one in (stop.again_seconds, most - since if most else None) if one is not None]
    events = () if before else (Event("Normal", reason_of(QUEUED), message),)
    return delete_all(view) + Actions(status=status, events=events, again_seconds=min(waits) if waits else None)


def _keeping(view: View, status: Manifest, now: datetime) -> float:
    """Seconds for which the AIMaster is waited for; 0: the pods may go."""
    pod, told = view.aimaster, condition(status, SUSPENDED) or {}
    if parked_of(view.job) or told.get("status") == "True":
        return 0.0
    asked = told.get("lastUpdateTime") if told.get("reason") == reason_of(SUSPENDING) else None
    most = CUT_SECONDS if view.options is None or view.options.disk_backups else KEEPING_SECONDS
    if pod is None or deleting(pod) or phase(pod) != "Running":
        most = KEEPING_SECONDS if _comes_back(view) else 0.0
    return max(0.0, most - (seconds_since(asked, now) or 0.0))


def _comes_back(view: View) -> bool:
    """Whether the AIMaster does not run and is only rescheduled, and has anything to keep."""
    pod = view.aimaster
    rescheduled = pod is None or deleting(pod) or phase(pod) == "Pending" or aimaster_lost(view)
    return rescheduled and any(one is not pod and phase(one) == "Running" and not deleting(one) for one in view.pods)


def _made_again(view: View) -> Actions:
    if not _comes_back(view):
        return Actions()
    pod = view.aimaster
    lost = (deletion(pod),) if pod is not None and aimaster_lost(view) else ()
    return Actions(aimaster=sized(view), delete_pods=lost)


def _ask(view: View, status: Manifest, stop: Stop, now: datetime) -> Actions:
    reason = reason_of(SUSPENDING)
    message = f"TFJob {view.job.name} is about to be suspended{_because(stop)}: its AIMaster keeps what there is."
    changed = set_condition(status, SUSPENDED, message, now, value=False, reason=reason)
    events = () if changed is status else (Event("Normal", reason, message),)
    return Actions(status=changed, events=events)


def _told(view: View, status: Manifest, stop: Stop) -> str:
    """The message of Suspended."""
    message = f"TFJob {view.job.name} is suspended{_because(stop)}"
    word = parked_of(view.job)
    if not status.get("startTime"):
        return f"{message}."
    if word is not None:
        return f"{message}; {word.kept}."
    return f"{message}; its AIMaster has not said what was kept: it goes on with the last disk backup, or checkpoint."


def _because(stop: Stop) -> str:
    return f" ({stop.why})" if stop.why else ""
