"""What happens in the job, as Kubernetes Events of its TFJob: `kubectl describe tfjob` tells the story."""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from deeprec_ext.aimaster.core.signals import Signal
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.errors import UnreachableError
from deeprec_ext.units import format_bytes, format_seconds, sized
from tfjob.api.client import Api, ApiError, ConflictError, ForbiddenError
from tfjob.model.events import Event
from tfjob.model.kinds import EVENTS, Manifest

log = logging.getLogger(__name__)

LOST = {"ps": "PSLost", "chief": "ChiefLost", "worker": "WorkerLost", "evaluator": "EvaluatorLost"}
OUTCOMES = {
    "committed": ("Normal", "ScalingCommitted"), "rolled_back": ("Warning", "ScalingRolledBack"),
    "refused": ("Warning", "ScalingRefused"),
}  # fmt: skip


def tell(type_: str, role: str, fields: Mapping[str, Any]) -> Event | None:
    """From an event of the AIMaster; None for what is only for its own log. Pure."""
    if type_ == "scaling_ended" and fields.get("outcome") in OUTCOMES:
        return Event(*OUTCOMES[fields["outcome"]], _scaling(fields) + _how(fields))
    if type_ == "failure":
        return Event("Warning", LOST.get(role.partition("-")[0], "RoleLost"), f"{role}: {fields.get('cause', '')}")
    if type_ == "notice":
        remedy = f": {fields['remedy']}" if fields.get("remedy") else ""
        return Event("Normal" if fields.get("mended") else "Warning", "Notice", f"{role}: {fields['text']}{remedy}")
    if type_ not in TOLD:
        return None
    kind, reason, message = TOLD[type_]
    return Event(kind, reason, message(role, fields))


TOLD: Mapping[str, tuple[str, str, Callable[[str, Mapping[str, Any]], str]]] = {
    "scaling_queued": ("Normal", "ScalingRequested", lambda _, one: _scaling(one) + _in_brackets(one.get("reason"))),
    "request_waits": ("Normal", "ScalingWaits", lambda _, one: f"{one['asked']}: {one['reason']}"),
    "request_taken_back": ("Normal", "ScalingTakenBack", lambda _, one: f"{one['asked']}: {one['reason']}"),
    "allowance": ("Normal", "Allowance", lambda _, one: _allowed(one) + str(one.get("reason", ""))),
    "allowance_ignored": ("Warning", "AllowanceIgnored", lambda _, one: str(one.get("reason", ""))),
    "request_refused": ("Warning", "ScalingRefused", lambda _, one: f"{one['asked']}: {one['reason']}"),
    "promoted": ("Normal", "PSPromoted", lambda role, one: f"{one['slots']} slots of {role} go on from their peer backups"
                 + (f", {one['stale_records']} records forgotten" if one.get("stale_records") else "")),
    "ps_replaced": ("Normal", "PSReplaced",
                    lambda role, _: f"{role}: the model comes from the disk backup or the last checkpoint"),
    "recovered": ("Normal", "Recovered", lambda role, one: f"{role} trains again after {format_seconds(one['seconds'])}"
                  + (f", by {one['by']}" if one.get("by") else "")),
    "decision": ("Normal", "Decision", lambda _, one: f"decision {one['number']}: {one['action']}, {one['reason']}"),
    "refusal": ("Warning", "ScriptRefused", lambda _, one: str(one.get("reason", ""))),
    "reclaimed": ("Warning", "NodeReclaimed", lambda role, one: f"{role}: {one['reason']}; {one['answer']}"),
    "aimaster_restarted": ("Normal", "AIMasterRestarted",
                           lambda _, one: f"AIMaster {one['incarnation']} goes on where the one before it ended"),
    "broken": ("Warning", "AIMasterFailed",
               lambda _, one: f"{one['reason']}; it is started again, and training goes on meanwhile"),
    "parking": ("Normal", "Parking", lambda _, one: str(one.get("reason", ""))),
    "parked": ("Normal", "Parked", lambda _, one: str(one.get("kept", ""))),
    "least": ("Warning", "BeginsWithLeast", lambda _, one: f"{one['ps']} PS, {one['workers']} workers: {one['reason']}"),
    "on_demand": ("Normal", "OnDemand", lambda role, one: f"{role} is made without a wish for spot nodes: {one['reason']}"),
    "job_failed": ("Warning", "JobFailed", lambda _, one: str(one.get("reason", ""))),
}  # fmt: skip
"""Event of the AIMaster → type, reason, (role, its fields) → message."""


def _allowed(fields: Mapping[str, Any]) -> str:
    return f"{sized(int(fields['ps']), int(fields['workers']))}: " if "workers" in fields else ""


def _in_brackets(text: str | None) -> str:
    return f" ({text})" if text else ""


def _scaling(fields: Mapping[str, Any]) -> str:
    if fields.get("replace") or "from_count" not in fields:
        return f"{fields['kind']} of {fields.get('replace') or fields.get('returning') or fields['target']}"
    what = "PS" if fields["target"] == "ps" else "workers"
    same = fields["from_count"] == fields["to_count"]
    size = str(fields["to_count"]) if same else f"{fields['from_count']} → {fields['to_count']}"
    both = f", workers {fields['workers_from']} → {fields['workers_to']}" if "workers_from" in fields else ""
    return f"{fields['kind']} of {what}, {size}{both}"


def _how(fields: Mapping[str, Any]) -> str:
    if fields["outcome"] != "committed":
        return f": {fields.get('reason') or 'no reason given'}"
    moved = (
        f", {fields['slots_moved']} slots with {format_bytes(fields['bytes_moved'])} moved"
        if fields.get("slots_moved")
        else ""
    )
    return f" in {format_seconds(float(fields.get('seconds', 0.0)))}{moved}"


class Reporter:
    """`about`: the TFJob, as `involvedObject` names it."""

    def __init__(self, api: Api, namespace: str, about: Manifest, job: Job) -> None:
        self._api, self._namespace, self._about, self._job = api, namespace, about, job
        self._told = job.store.newest_event()  # what happened before this AIMaster has been told
        self._changed = Signal()

    async def run(self) -> None:
        """Runs for ever, unless the right is missing."""
        async for event in self._job.events.follow(self._told, True):
            told = tell(event.type, event.role, json.loads(event.json))
            if told is not None and not await self._create(told, event.sequence, event.time):
                return
            self._told = event.sequence
            self._changed.notify()

    async def flush(self, timeout_seconds: float) -> None:
        """Waits until all there is has been told, bounded."""
        last = self._job.store.newest_event()
        await self._changed.until(lambda: self._told >= last, timeout_seconds)

    async def _create(self, told: Event, sequence: int, time: float) -> bool:
        """Whether to go on."""
        when = datetime.datetime.fromtimestamp(time, datetime.timezone.utc)
        metadata = {"name": f"{self._about['name']}.{self._job.incarnation:x}.{sequence:x}"}
        body = told.manifest(metadata, self._about, "deeprec-aimaster", when)
        try:
            await self._api.create(EVENTS, self._namespace, body)
        except ConflictError:
            pass  # told already
        except ForbiddenError as error:
            log.warning("the TFJob gets no events: %s", error)
            return False
        except (ApiError, UnreachableError) as error:
            log.warning("%s was not told: %s", told.reason, error)
        return True
