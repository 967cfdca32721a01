"""Beside Kubeflow's training operator: what our operator does for a TFJob. As `reconcile`, pure and level-triggered.

Kubeflow makes the pods, keeps the status and cleans up. Here is only what it does not know: an annotated job has an AIMaster as
long as it runs. Nothing is written but the AIMaster, what that needs, and Events.
"""

from __future__ import annotations

from datetime import datetime

from tfjob.model.annotations import Elastic
from tfjob.model.annotations import parse as parse_annotations
from tfjob.model.conditions import INVALID, is_finished, reason_of
from tfjob.model.events import Event
from tfjob.model.spec import InvalidError, TFJob
from tfjob.reconciling.actions import Actions
from tfjob.reconciling.admission import is_injected, policies_told
from tfjob.reconciling.elastic_end import aimaster_lost, still_finishing
from tfjob.reconciling.ends import clean
from tfjob.reconciling.observed import Observed, View, deleting, deletion


def decide(observed: Observed, now: datetime) -> Actions:
    """Everything that is to be done now. `observed` has of the job's pods only the AIMaster's. Raises nothing."""
    if observed.manifest["metadata"].get("deletionTimestamp"):
        return Actions()
    try:
        job = TFJob.parse(observed.manifest)
    except InvalidError:  # Kubeflow says so
        return Actions()
    if not job.ours:
        return Actions()
    options, events = _options(job)
    view = View.of(observed, job, options is not None, options)
    if is_finished(job.status):
        wait = still_finishing(view, now)
        return Actions(again_seconds=wait) if wait else clean(view)
    pod = view.aimaster
    if job.run_policy.suspend:
        return Actions(delete_pods=() if pod is None or deleting(pod) else (deletion(pod),))
    if options is None:
        return Actions(events=events)
    if pod is None and (told := policies_told(job)):  # once: with the first AIMaster
        events += (Event("Warning", "RestartPolicyChanged", told),)
    lost = pod is not None and aimaster_lost(view)
    return Actions(aimaster=options, events=events, delete_pods=(deletion(pod),) if pod is not None and lost else ())


def _options(job: TFJob) -> tuple[Elastic | None, tuple[Event, ...]]:
    try:
        options, warnings = parse_annotations(job)
    except InvalidError as error:
        return None, (Event("Warning", reason_of(INVALID), f"{error}; the job goes on as it is"),)
    events = tuple(Event("Warning", "UnknownAnnotation", text) for text in warnings)
    if options is not None and not is_injected(job):
        text = (
            "the job was created while no operator was there to prepare its pods, or annotated later; it runs as an ordinary "
            "one: create it anew to have it elastic"
        )
        return None, (*events, Event("Warning", "NotElastic", text))
    return options, events
