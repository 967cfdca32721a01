"""What has to be done for a TFJob, from what there is: a pure function, level-triggered and idempotent.

It looks at the present state alone and never at what has just happened. Carrying out what it says and asking again leads to
nothing left to do; so an operator may be killed anywhere and another one goes on.

In an ordinary job the operator makes the pods. In an elastic one it makes the AIMaster, which makes the pods; status,
deadlines, suspension and cleaning up are the same.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime

from tfjob.model import names
from tfjob.model.annotations import Elastic, is_elastic, started_with
from tfjob.model.annotations import parse as parse_annotations
from tfjob.model.conditions import (
    CREATED,
    FAILED,
    INVALID,
    QUEUED,
    RESUMED,
    SUCCEEDED,
    SUSPENDED,
    is_finished,
    is_true,
    reason_of,
    set_condition,
    without,
)
from tfjob.model.events import Event
from tfjob.model.kinds import Manifest
from tfjob.model.spec import IMMUTABLE, MANAGED_BY, OURS, InvalidError, TFJob, manager_of
from tfjob.model.times import stamp
from tfjob.pods import gang
from tfjob.reconciling import limits, parking
from tfjob.reconciling.abnormal import abnormal_events
from tfjob.reconciling.actions import Actions
from tfjob.reconciling.elastic_end import aimaster_lost
from tfjob.reconciling.ends import finish
from tfjob.reconciling.observed import Observed, View, deletion, owned, owner_of, phase
from tfjob.reconciling.replicas import create_missing, delete_surplus, exit_events, restart_failed
from tfjob.reconciling.verdict import Verdict, judge, replica_statuses, tallies

ADMISSION_SECONDS = 5.0
"""How often to look whether the gang scheduler has put the job in its queue, besides being told."""


def reconcile(observed: Observed, now: datetime) -> Actions:
    """Everything that is to be done now. `now` has a time zone. Raises nothing: what is wrong becomes status and events."""
    manifest = observed.manifest
    if manifest["metadata"].get("deletionTimestamp") or _left_alone(observed):  # pods go with it, by owner references
        return Actions()
    before = manifest.get("status") or {}
    try:
        actions = _reconcile(observed, now)
    except InvalidError as error:
        actions = _refuse(manifest, error, now)
    if actions.status is None or actions.status == before:
        return dataclasses.replace(actions, status=None)
    return dataclasses.replace(actions, status={**actions.status, "lastReconcileTime": stamp(now)})


def _reconcile(observed: Observed, now: datetime) -> Actions:
    job = TFJob.parse(observed.manifest)
    if is_finished(job.status):
        return finish(View.of(observed, job, is_elastic(job), None), now)
    options, told = _options(job)
    view = View.of(observed, job, options is not None or is_elastic(job), options)
    actions = Actions(events=(*told, *_manager_changed(job), *abnormal_events(view)))
    if view.elastic and not is_elastic(job):
        actions += Actions(annotations=((names.STARTED_WITH_ANNOTATION, started_with(job)),))
    status = set_condition(job.status, CREATED, f"TFJob {job.name} is created.", now)
    if (stop := parking.stopped(view, status, now)) is not None:
        if late := parking.waited_too_long(view, status, stop, now):
            return actions + _end(view, without(status, QUEUED), Verdict(FAILED, late), now)
        return actions + parking.park(view, status, stop, now)
    status = without(parking.resumed(view, status, now), QUEUED)
    if is_true(status, SUSPENDED):
        message, reason = f"TFJob {job.name} is resumed.", reason_of(RESUMED)
        status = set_condition(status, SUSPENDED, message, now, value=False, reason=reason)
        status = {key: value for key, value in status.items() if key != "startTime"}
        actions += Actions(events=(Event("Normal", reason, message),))
    if not status.get("startTime") and job.annotations.get(
        names.PARKED_ANNOTATION
    ):  # of the AIMaster before, or a copied one
        actions += Actions(annotations=((names.PARKED_ANNOTATION, ""),))
    if not status.get("startTime") and not _queued(view):
        status = {**status, "startTime": stamp(now)}
    return actions + _run(view, status, now)


def _left_alone(observed: Observed) -> bool:
    """Whether another controller has been told to run it. One that runs here goes on: the field is immutable."""
    if manager_of(observed.manifest) in (None, OURS):
        return False
    uid = str(observed.manifest["metadata"].get("uid") or "")
    return not any(uid and owner_of(one).get("uid") == uid for one in (*observed.pods, *observed.services))


def _manager_changed(job: TFJob) -> tuple[Event, ...]:
    if job.ours:
        return ()
    return (Event("Warning", reason_of(INVALID), f"{MANAGED_BY}: {IMMUTABLE}; the job goes on here"),)


def _options(job: TFJob) -> tuple[Elastic | None, tuple[Event, ...]]:
    """What the annotations ask for, and what is to be said about them. Raises InvalidError for a job not started yet."""
    started = bool(job.status.get("startTime"))
    try:
        options, warnings = parse_annotations(job)
    except InvalidError as error:
        if not started:
            raise
        return None, (Event("Warning", reason_of(INVALID), f"{error}; the job goes on as it is"),)
    events = tuple(Event("Warning", "UnknownAnnotation", text) for text in warnings)
    if options is not None and started and not is_elastic(job):
        text = "the job is running already and cannot become elastic; submit it anew"
        return None, (*events, Event("Warning", "NotElastic", text))
    return options, events


def _run(view: View, status: Manifest, now: datetime) -> Actions:
    """A job that is neither finished nor suspended."""
    job, started = view.job, status.get("startTime")
    start = started or stamp(now)
    found = tallies(view, start)
    status = {**status, "replicaStatuses": replica_statuses(job, found)}
    verdict = judge(view, found, start)
    if verdict is None or not (verdict.condition == SUCCEEDED or (view.elastic and verdict.condition == FAILED)):
        limit = limits.exceeded(view, started, now)
        verdict = Verdict(FAILED, limit) if limit else verdict
    if verdict is not None and verdict.condition in (SUCCEEDED, FAILED):
        return _end(view, status, verdict, now)
    if verdict is not None:  # Running or Restarting
        status = set_condition(status, verdict.condition, verdict.message, now)
    actions = Actions(status=status, again_seconds=limits.seconds_left(job, started, now))
    return actions + _gang(view) + (_elastic(view) if view.elastic else _ordinary(view))


def _ordinary(view: View) -> Actions:
    actions = restart_failed(view) + delete_surplus(view)
    if _queued(view):
        return actions + Actions(again_seconds=ADMISSION_SECONDS)
    return actions + create_missing(view)


def _elastic(view: View) -> Actions:
    pod = view.aimaster
    if pod is None and _queued(view):  # it would ask for pods at once
        return Actions(again_seconds=ADMISSION_SECONDS)
    lost = pod is not None and aimaster_lost(view)
    return Actions(aimaster=parking.sized(view), delete_pods=(deletion(pod),) if pod is not None and lost else ())


def _queued(view: View) -> bool:
    """Whether the job waits for its gang scheduler: nothing is made of it, and its time does not run."""
    return bool(view.cluster.scheduler) and not gang.admitted(view.pod_group, view.cluster.scheduler)


def _gang(view: View) -> Actions:
    scheduler, group = view.cluster.scheduler, view.pod_group
    if not scheduler or (group is not None and not owned(group, view.job)):
        return Actions()
    members: dict[str, int] | None = None
    if view.elastic:
        if view.options is None:
            return Actions()
        members = view.options.least(view.job)
    wanted = gang.pod_group(view.job, scheduler, members, view.priorities)
    return Actions() if group is not None and not gang.differs(group, wanted) else Actions(write_pod_group=wanted)


def _end(view: View, status: Manifest, verdict: Verdict, now: datetime) -> Actions:
    """The end is written first; cleaning up comes with the next look, which finds it written."""
    status = set_condition(status, verdict.condition, verdict.message, now)
    if not status.get("completionTime"):
        status = {**status, "completionTime": stamp(now)}
    events = [
        Event("Normal" if verdict.condition == SUCCEEDED else "Warning", reason_of(verdict.condition), verdict.message)
    ]
    if verdict.condition == FAILED:
        events += exit_events([pod for pod in view.pods if phase(pod) == "Failed"])
    return Actions(status=status, events=tuple(events), again_seconds=0.0)


def _refuse(manifest: Manifest, error: InvalidError, now: datetime) -> Actions:
    """A job that cannot run has failed. One that runs already is not taken down for a slip of the pen: it goes on as it is."""
    status = manifest.get("status") or {}
    if is_finished(status):
        return Actions()
    reason, name = reason_of(INVALID), manifest["metadata"].get("name")
    if status.get("startTime"):
        return Actions(events=(Event("Warning", reason, f"{error}; the job goes on as it is"),))
    status = set_condition(status, CREATED, f"TFJob {name} is created.", now)
    status = set_condition(status, FAILED, str(error), now, reason=reason)
    return Actions(
        status={**status, "completionTime": stamp(now)}, events=(Event("Warning", reason, str(error)),),
    )  # fmt: skip
