"""ScaleOut and ScaleIn: each becomes one change of `replicas` of the TFJob that its selector names, as a user would make it.

One of a job is under way at a time, the oldest first, and only while the job runs and is of the size that was asked for. The
same patch that changes `replicas` notes in the annotation `aimaster.deeprec.io/scaler` whose it is: from there on it is begun,
whoever looks next, and is not begun again. What became of it says the AIMaster's own note of what runs (`scaled-to`), so
nothing has to be remembered. A status that says ScaleSucceeded or ScaleFailed is the end: it is never looked at again.

    Created → Scaling → ScaleSucceeded | ScaleFailed          (of an invalid one: Created → ScaleFailed)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tfjob.model import conditions, names
from tfjob.model.annotations import Elastic, sizes
from tfjob.model.annotations import parse as parse_annotations
from tfjob.model.arbitrated import allowance_of
from tfjob.model.events import Event
from tfjob.model.kinds import Manifest
from tfjob.model.scaler import Asked, asked
from tfjob.model.spec import InvalidError, TFJob
from tfjob.model.times import seconds_since, stamp
from tfjob.reconciling.et import words
from tfjob.reconciling.et.mirror import lowest_free, worker_pods
from tfjob.reconciling.observed import phase

TIMEOUT_MAX = 86_400 * 30
_ING = {words.SCALE_OUT: "ScalingOut", words.SCALE_IN: "ScalingIn"}
"""As reasons begin."""


@dataclass(frozen=True)
class Scaled:
    """What is to be written, in this order: what is begun counts its time from its status, and what is over says so only when
    the job has been asked for its former size."""

    take_back: Manifest | None = None
    """A patch of the TFJob."""

    statuses: tuple[tuple[Manifest, Manifest], ...] = ()
    patch: Manifest | None = None
    """Of the TFJob."""

    events: tuple[tuple[Manifest, Event], ...] = ()
    current: str = ""
    """The one under way, as `currentScaler` has it."""

    told: tuple[tuple[str, str, str], ...] = ()
    """(type, reason, message) of conditions that the TrainingJob gets as well."""

    again_seconds: float | None = None


@dataclass(frozen=True)
class Change:
    """Of the workers, as the TFJob counts them."""

    before: int
    after: int
    pods: tuple[str, ...]
    """That come, or go; where it is the AIMaster that chooses, as it will."""

    leaving: tuple[str, ...] = ()
    """Those that were named, as the AIMaster calls them."""

    @property
    def text(self) -> str:
        return f"workers {self.before} → {self.after}"


def selector_of(scaler: Manifest) -> str:
    """The name of the job."""
    selector = (scaler.get("spec") or {}).get("selector")
    return str(selector.get("name") or "") if isinstance(selector, dict) else ""


def is_finished(scaler: Manifest) -> bool:
    status = scaler.get("status") or {}
    return conditions.is_true(status, words.SCALED) or conditions.is_true(status, words.SCALE_FAILED)


def decide(
    scalers: Sequence[Manifest], tfjob: Manifest, pods: Sequence[Manifest], now: datetime, *, own_pods: bool = True
) -> Scaled:
    """What is to be done for those of one TFJob of ours.

    Args:
        pods: of the TFJob, as far as they are seen.
        own_pods: the AIMaster makes them; else Kubeflow's operator, which knows them by their index.
    """
    there = [one for one in scalers if not is_finished(one) and not one["metadata"].get("deletionTimestamp")]
    there.sort(key=lambda one: (one["metadata"].get("creationTimestamp") or "", one["metadata"]["name"]))
    if not there:
        return Scaled()
    try:
        job = TFJob.parse(tfjob)
        elastic, _ = parse_annotations(job)
    except InvalidError as error:
        return _all_fail(there, f"TFJob {tfjob['metadata']['name']} cannot be scaled: {error}", now)
    if elastic is None:
        enabled = f'{names.ANNOTATION_PREFIX}enabled: "true"'
        return _all_fail(
            there, f"TFJob {job.name} is not elastic: it has to be submitted with the annotation {enabled}", now
        )
    if conditions.is_finished(job.status):
        return _all_fail(there, f"TFJob {job.name} has ended", now)
    begun = asked(tfjob)
    for one in there:
        if begun.uid and one["metadata"].get("uid") == begun.uid:
            return _with_created(there, _followed(one, begun, job, pods, now), now)
    return _with_created(there, _begun(there, job, elastic, pods, now, own_pods), now)


# ------------------------------------------------------------------------------------------------------- one of them


def _begun(
    there: Sequence[Manifest], job: TFJob, elastic: Elastic, pods: Sequence[Manifest], now: datetime, own_pods: bool
) -> Scaled:
    """The oldest that is valid; those before it that are not have failed."""
    ready = conditions.is_true(job.status, conditions.RUNNING) and not job.run_policy.suspend and _settled(job)
    statuses = list[tuple[Manifest, Manifest]]()
    events, told = list[tuple[Manifest, Event]](), list[tuple[str, str, str]]()
    for one in there:
        try:
            timeout_of(one)
            check(one)
            if not ready:
                continue
            change = change_of(one, job, elastic, pods, own_pods=own_pods)
        except InvalidError as error:
            failed = _ended(one, words.SCALE_FAILED, str(error), now)
            statuses, events, told = [*statuses, *failed.statuses], [*events, *failed.events], [*told, *failed.told]
            continue
        told.append((words.SCALING, "ScalingStart", f"{words.full_name(one)}: {change.text}"))
        status = words.told(_created(one, now), *told[-1], now)
        listed = "addPods" if one["kind"] == words.SCALE_OUT else "toDeletePods"
        status = {
            **status,
            "phase": words.SCALING,
            "startTime": status.get("startTime") or stamp(now),
            listed: list(change.pods),
        }
        timeout = timeout_of(one)
        return Scaled(
            None, (*statuses, (one, status)), _patch(one, job, change), tuple(events), words.full_name(one), tuple(told),
            None if timeout is None else float(timeout),
        )  # fmt: skip
    return Scaled(statuses=tuple(statuses), events=tuple(events), told=tuple(told))


def _followed(one: Manifest, begun: Asked, job: TFJob, pods: Sequence[Manifest], now: datetime) -> Scaled:
    """What has become of the one that was begun."""
    grows = begun.after > begun.before
    want, runs = job.replicas(names.WORKER), sizes(job, names.SCALED_TO_ANNOTATION).get(names.WORKER, 0)
    if runs >= begun.after if grows else runs <= begun.after:
        status = (one.get("status") or {}).get("addPods") or []
        up = sum(phase(pod) == "Running" for pod in pods if pod["metadata"]["name"] in status)
        return _ended(one, words.SCALED, f"TFJob {job.name} has {runs} workers", now, active=up)
    left = _left(one, now)
    late = left is not None and left <= 0
    if grows and want in (begun.after, runs) and (most := _allowed(job)) is not None and most < begun.after:
        return _waits(one, begun, job, runs, most, now)
    text = f"not done within {timeout_of(one)} s; TFJob {job.name} "
    if want == runs and not (late and grows):
        text = "it was refused or rolled back; Events of the TFJob (ScalingRefused, ScalingRolledBack) say why"
        failed = _ended(one, words.SCALE_FAILED, f"TFJob {job.name} has {runs} workers: {text}", now)
        return _wanted_no_more(failed, begun, job) if grows else failed
    if want not in (begun.after, runs):
        return _ended(one, words.SCALE_FAILED, f"{want} workers of TFJob {job.name} were asked for meanwhile", now)
    if not late:
        return Scaled(current=words.full_name(one), again_seconds=left)
    if not grows:
        return _ended(one, words.SCALE_FAILED, text + "goes on with it", now)
    failed = _ended(one, words.SCALE_FAILED, text + f"is asked for {begun.before} workers again", now)
    if want == runs:  # it has been, already
        return _wanted_no_more(failed, begun, job)
    return _wanted_no_more(failed, begun, job, begun.before)


def _wanted_no_more(failed: Scaled, begun: Asked, job: TFJob, size: int | None = None) -> Scaled:
    """The AIMaster forgets that it was asked for that, which it would else do as soon as it may; `size`: it is asked for so
    many workers instead."""
    patch: dict[str, Any] = {}
    if not begun.failed:
        note = dataclasses.replace(begun, failed=True)
        patch["metadata"] = {"annotations": {names.SCALER_ANNOTATION: note.text}}
    if size is not None:
        key = job.specs[names.WORKER].path.rpartition(".")[2]
        patch["spec"] = {"tfReplicaSpecs": {key: {"replicas": size}}}
    return dataclasses.replace(failed, take_back=patch or None)


def _waits(one: Manifest, begun: Asked, job: TFJob, runs: int, most: int, now: datetime) -> Scaled:
    """For the cluster's arbiter, which allows less than it asks for: the AIMaster remembers what is wanted, and the job grows
    when it may, until its time is over. What has come by then stays."""
    left, allows = _left(one, now), f"the arbiter allows TFJob {job.name} {most} workers at present"
    if left is not None and left <= 0:
        text = (
            f"TFJob {job.name} has {runs} workers: not done within {timeout_of(one)} s, because {allows}; no more are asked "
            "for (a ScaleOut with a longer timeout waits longer)"
        )
        failed = _ended(one, words.SCALE_FAILED, text, now)
        return _wanted_no_more(failed, begun, job, None if job.replicas(names.WORKER) == runs else runs)
    message = (
        f"{words.full_name(one)}: workers {begun.before} → {begun.after}; {allows}, the rest comes when there is room"
    )
    status = conditions.retold(words.status_of(one), words.SCALING, message, now)  # its time runs on
    return Scaled(statuses=((one, status),), current=words.full_name(one), again_seconds=left)


def _allowed(job: TFJob) -> int | None:
    """Workers, as the TFJob counts them; None: no arbiter limits it. One that is turned off takes back what it wrote."""
    allowance, _ = allowance_of(job.annotations, f"{job.namespace}/{job.name}")
    if allowance is None or not allowance.runs:
        return None
    return allowance.workers + (0 if job.chief else 1)


def _left(one: Manifest, now: datetime) -> float | None:
    """Seconds until its time is over; None: it has no limit."""
    timeout = timeout_of(one)
    if timeout is None:
        return None
    since = (conditions.condition(one.get("status") or {}, words.SCALING) or {}).get("lastTransitionTime")
    return timeout - (seconds_since(since, now) or 0.0)


def _patch(one: Manifest, job: TFJob, change: Change) -> Manifest:
    """Of the TFJob: the size, and whose wish it is."""
    note = Asked(one["metadata"].get("uid", ""), change.before, change.after, change.leaving, words.full_name(one))
    key = job.specs[names.WORKER].path.rpartition(".")[2]
    return {
        "metadata": {"annotations": {names.SCALER_ANNOTATION: note.text}},
        "spec": {"tfReplicaSpecs": {key: {"replicas": change.after}}},
    }


# ------------------------------------------------------------------------------------------------------- what is asked


def check(one: Manifest) -> None:
    """What can be said without the job. Raises InvalidError."""
    spec = one.get("spec") or {}
    if spec.get("script"):
        raise InvalidError("spec.script", "there is no launcher whose hosts a script would change; leave it out")
    if one["kind"] == words.SCALE_OUT:
        count = (spec.get("toAdd") or {}).get("count")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidError("spec.toAdd.count", f"is {count!r}; must be a whole number, 1 or more")
        return
    count, pods = _to_delete(one)
    if not pods and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise InvalidError(
            "spec.toDelete", f"names no pods (podNames), and count is {count!r}; must be a whole number, 1 or more"
        )
    if pods and count and count != len(pods):
        raise InvalidError("spec.toDelete", f"count is {count}, and podNames are {len(pods)}; leave one of them out")


def change_of(
    one: Manifest, job: TFJob, elastic: Elastic, pods: Sequence[Manifest], *, own_pods: bool = True
) -> Change:
    """Of a checked one, and a job that is of the size that was asked for. Raises InvalidError."""
    if names.WORKER not in job.specs:
        raise InvalidError("spec.selector.name", f"TFJob {job.name} has no Worker")
    beside = 0 if job.chief else 1  # worker 0 is the chief
    now = sizes(job, names.SCALED_TO_ANNOTATION)[names.WORKER]
    there = worker_pods(pods) if own_pods else {}
    indices = list(there) or list(range(now))
    if one["kind"] == words.SCALE_OUT:
        count = one["spec"]["toAdd"]["count"]
        most = elastic.max_workers + beside
        if now + count > most:
            key = f"{names.ANNOTATION_PREFIX}max-workers"
            raise InvalidError(
                "spec.toAdd.count", f"is {count}; TFJob {job.name} has {now} workers, and may have {most} ({key})"
            )
        return Change(now, now + count, _pods(job, lowest_free(indices, count)))
    count, named = _to_delete(one)
    chosen = [_index(job, name, indices) for name in named] if named else indices[max(0, len(indices) - count) :]
    after, least = now - (len(chosen) if named else count), elastic.min_workers + beside
    where = "spec.toDelete.podNames" if named else "spec.toDelete.count"
    if after < least:
        key = f"{names.ANNOTATION_PREFIX}min-workers"
        text = f"of {now} workers of TFJob {job.name} {max(0, after)} would stay, and {least} have to ({key})"
        raise InvalidError(where, text)
    if not named:
        return Change(now, after, _pods(job, chosen))
    if beside and 0 in chosen:
        raise InvalidError(
            where, f"{names.pod_name(job.name, names.WORKER, 0)} leads TFJob {job.name}, and stays until its end"
        )
    if not own_pods and sorted(chosen) != list(range(after, now)):
        raise InvalidError(
            where, f"beside Kubeflow's operator the highest indices leave: {', '.join(_pods(job, range(after, now)))}"
        )
    leaving = tuple(names.role_of(job, names.WORKER, index) for index in sorted(chosen)) if own_pods else ()
    return Change(now, after, _pods(job, sorted(chosen)), leaving)


def timeout_of(one: Manifest) -> int | None:
    """Seconds; None: no limit. Raises InvalidError."""
    found = (one.get("spec") or {}).get("timeout")
    if found is None:
        return words.TIMEOUT_SECONDS if one["kind"] == words.SCALE_OUT else None
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= TIMEOUT_MAX:
        raise InvalidError("spec.timeout", f"is {found!r}; must be seconds, from 1 to {TIMEOUT_MAX}")
    return found


def _to_delete(one: Manifest) -> tuple[Any, tuple[str, ...]]:
    found = (one.get("spec") or {}).get("toDelete")
    found = found if isinstance(found, dict) else {}
    return found.get("count"), tuple(dict.fromkeys(str(name) for name in found.get("podNames") or ()))


def _index(job: TFJob, name: str, indices: Sequence[int]) -> int:
    for index in indices:
        if name == names.pod_name(job.name, names.WORKER, index):
            return index
    there = ", ".join(_pods(job, indices[:20]))
    raise InvalidError("spec.toDelete.podNames", f"{name} is no worker of TFJob {job.name}; there are {there}")


def _pods(job: TFJob, indices: Any) -> tuple[str, ...]:
    return tuple(names.pod_name(job.name, names.WORKER, index) for index in indices)


def _settled(job: TFJob) -> bool:
    """What runs is what was asked for, and the AIMaster has said so."""
    if not job.annotations.get(names.SCALED_TO_ANNOTATION):
        return False
    return sizes(job, names.SCALED_TO_ANNOTATION) == {type_: spec.replicas for type_, spec in job.specs.items()}


# ------------------------------------------------------------------------------------------------------- what is told


def _created(one: Manifest, now: datetime) -> Manifest:
    status = words.status_of(one)
    message = f"{words.full_name(one)} is for job {one['metadata'].get('namespace')}/{selector_of(one)}"
    status = words.told(status, words.CREATED, "ScalerCreated", message, now)
    return {"phase": words.CREATED, **status}


def _with_created(there: Sequence[Manifest], done: Scaled, now: datetime) -> Scaled:
    """Those that wait have a status, too."""
    written = {id(one) for one, _ in done.statuses}
    waiting = [(one, _created(one, now)) for one in there if id(one) not in written]
    return dataclasses.replace(done, statuses=(*done.statuses, *waiting))


def _ended(one: Manifest, type_: str, message: str, now: datetime, *, active: int = 0) -> Scaled:
    good = type_ == words.SCALED
    reason = _ING[one["kind"]] + ("Succeeded" if good else "Failed")
    status = words.told(_created(one, now), type_, reason, message, now)
    counts: Mapping[str, Any] = {"replicaStatuses": {"Worker": {"active": active}}} if active else {}
    status = {**status, "phase": type_, "completionTime": stamp(now), **counts}
    event = Event("Normal" if good else "Warning", type_, message)
    told = ((type_, reason, f"{words.full_name(one)}: {message}"),)
    return Scaled(statuses=((one, status),), events=((one, event),), told=told)


def _all_fail(there: Sequence[Manifest], why: str, now: datetime) -> Scaled:
    ended = [_ended(one, words.SCALE_FAILED, why, now) for one in there]
    return Scaled(
        statuses=tuple(pair for one in ended for pair in one.statuses), told=tuple(said for one in ended for said in one.told),
        events=tuple(pair for one in ended for pair in one.events),
    )  # fmt: skip
