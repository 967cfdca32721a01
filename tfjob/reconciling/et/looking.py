"""All that carries one name: a TrainingJob, its TFJob, and the ScaleOuts and ScaleIns that name it. Pure and level-triggered.

What is not ours is left alone: a TrainingJob that says so (annotation `aimaster.deeprec.io/enabled: "false"`), or that the ET
operator has begun with, and whatever would scale it. And so is a ScaleOut or ScaleIn whose job is not there (yet).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tfjob.model import conditions
from tfjob.model.events import Event
from tfjob.model.kinds import Manifest
from tfjob.model.spec import InvalidError
from tfjob.reconciling.et import scalers as scaling
from tfjob.reconciling.et import words
from tfjob.reconciling.et.conversion import converted, is_left_alone, wants_suspension
from tfjob.reconciling.et.mirror import mirrored, refused
from tfjob.reconciling.observed import owner_of

REFUSED = "TrainingJobRefused"


@dataclass(frozen=True)
class Named:
    """What there is of one name in one namespace."""

    training_job: Manifest | None = None
    tfjob: Manifest | None = None
    scalers: tuple[Manifest, ...] = ()
    pods: tuple[Manifest, ...] = ()
    own_pods: bool = True


@dataclass(frozen=True)
class Steps:
    """To be carried out in the order of the fields. Nothing in it: all is as it should be."""

    create: Manifest | None = None
    """A TFJob."""

    own: tuple[tuple[Manifest, Manifest], ...] = ()
    """(object, owner) of those that are to be deleted with it."""

    take_back: Manifest | None = None
    """A patch of the TFJob."""

    statuses: tuple[tuple[Manifest, Manifest], ...] = ()
    """(object, its whole status)."""

    patch: Manifest | None = None
    """Of the TFJob."""

    events: tuple[tuple[Manifest, Event], ...] = ()
    again_seconds: float | None = None


def decide(named: Named, now: datetime) -> Steps:
    """Everything that is to be done now. `now` has a time zone. Raises nothing."""
    training_job, tfjob = named.training_job, named.tfjob
    if training_job is not None:
        if training_job["metadata"].get("deletionTimestamp") or is_left_alone(training_job):
            return Steps()
        if not _is_of(tfjob, training_job):
            return _not_run_yet(training_job, tfjob, now)
    if tfjob is None or tfjob["metadata"].get("deletionTimestamp"):
        return Steps()
    pods = tuple(pod for pod in named.pods if owner_of(pod).get("uid") == tfjob["metadata"].get("uid"))
    done = scaling.decide(named.scalers, tfjob, pods, now, own_pods=named.own_pods)
    owner = tfjob if training_job is None else training_job
    own = tuple(
        (one, owner)
        for one in named.scalers
        if not one["metadata"].get("ownerReferences") and not scaling.is_finished(one)
    )
    patch, statuses = done.patch, _changed(done.statuses, now)
    if training_job is not None:
        statuses = (*statuses, *_mirror(training_job, tfjob, pods, done, now))
        patch = patch or _suspension(training_job, tfjob)
    return Steps(None, own, done.take_back, statuses, patch, done.events, done.again_seconds)


def _is_of(tfjob: Manifest | None, training_job: Manifest) -> bool:
    uid = training_job["metadata"].get("uid")
    return tfjob is not None and bool(uid) and owner_of(tfjob).get("uid") == uid


def _not_run_yet(training_job: Manifest, tfjob: Manifest | None, now: datetime) -> Steps:
    """One that has no TFJob."""
    status = training_job.get("status") or {}
    name = training_job["metadata"]["name"]
    if conditions.is_finished(status):
        return Steps()
    if (conditions.condition(status, words.WORKERS_CREATED) or {}).get("reason") == words.TAKEN:
        return refuse(training_job, f"TFJob {name}, as which it ran, has been deleted", now)
    if status.get("conditions"):  # the ET operator is at it
        return Steps()
    if tfjob is not None:
        text = f"there is a TFJob {name} already, which is not of this TrainingJob; delete one of them"
        return refuse(training_job, text, now)
    try:
        return Steps(create=converted(training_job), again_seconds=0.0)
    except InvalidError as error:
        return refuse(training_job, str(error), now)


def refuse(training_job: Manifest, why: str, now: datetime) -> Steps:
    """It has failed: `why` is for its user."""
    changed = _changed(((training_job, refused(training_job, why, now)),), now)
    return Steps(statuses=changed, events=((training_job, Event("Warning", REFUSED, why)),))


def _mirror(
    training_job: Manifest, tfjob: Manifest, pods: Sequence[Manifest], done: scaling.Scaled, now: datetime
) -> tuple[tuple[Manifest, Manifest], ...]:
    if conditions.is_finished(training_job.get("status") or {}):
        return ()
    status = mirrored(training_job, tfjob, pods, done.current, now)
    for type_, reason, message in done.told:
        status = words.told(status, type_, reason, message, now)
    return _changed(((training_job, status),), now)


def _changed(pairs: Sequence[tuple[Manifest, Manifest]], now: datetime) -> tuple[tuple[Manifest, Manifest], ...]:
    """Those that would change something."""
    found = ((one, words.changed(one, status, now)) for one, status in pairs)
    return tuple((one, status) for one, status in found if status is not None)


def _suspension(training_job: Manifest, tfjob: Manifest) -> Manifest | None:
    """Suspending and resuming, as the TrainingJob's annotation says where it says anything."""
    if words.SUSPENDED_ANNOTATION not in (training_job["metadata"].get("annotations") or {}):
        return None
    wanted, spec = wants_suspension(training_job), tfjob.get("spec") or {}
    if bool((spec.get("runPolicy") or {}).get("suspend")) == wanted:
        return None
    return {"spec": {"runPolicy": {"suspend": wanted}}}
