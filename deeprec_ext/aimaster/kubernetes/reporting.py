"""What happens in the job, as Kubernetes Events of its TFJob: `kubectl describe tfjob` tells the story."""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from deeprec_ext.aimaster.core.signals import Signal
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.errors import UnreachableError
from deeprec_ext.units import format_bytes, format_seconds
from tfjob.api.client import Api, ApiError, ConflictError, ForbiddenError
from tfjob.model.kinds import EVENTS, Manifest

log = logging.getLogger(__name__)

MESSAGE_MAX = 1000
"""The server takes 1 024 characters."""

LOST = {"ps": "PSLost", "chief": "ChiefLost", "worker": "WorkerLost", "evaluator": "EvaluatorLost"}
OUTCOMES = {
    "committed": ("Normal", "ScalingCommitted"), "rolled_back": ("Warning", "ScalingRolledBack"),
    "refused": ("Warning", "ScalingRefused"),
}  # fmt: skip


class Told(NamedTuple):
    """Of a Kubernetes Event."""

    type: str
    reason: str
    message: str


def tell(type_: str, role: str, fields: Mapping[str, Any]) -> Told | None:
    """From an event of the AIMaster; None for what is only for its own log. Pure."""
    if type_ == "scaling_queued":
        asked = f" ({fields['reason']})" if fields.get("reason") else ""
        return Told("Normal", "ScalingRequested", _scaling(fields) + asked)
    if type_ == "scaling_ended" and fields.get("outcome") in OUTCOMES:
        kind, reason = OUTCOMES[fields["outcome"]]
        return Told(kind, reason, _scaling(fields) + _how(fields))
    if type_ == "request_refused":
        return Told("Warning", "ScalingRefused", f"{fields['to_count']} {fields['target']}: {fields['reason']}")
    if type_ == "failure":
        return Told("Warning", LOST.get(role.partition("-")[0], "RoleLost"), f"{role}: {fields.get('cause', '')}")
    if type_ == "promoted":
        forgotten = f", {fields['stale_records']} records forgotten" if fields.get("stale_records") else ""
        text = f"{fields['slots']} slots of {role} go on from their peer backups{forgotten}"
        return Told("Normal", "PSPromoted", text)
    if type_ == "ps_replaced":
        return Told("Normal", "PSReplaced", f"{role}: the model comes from the disk backup or the last checkpoint")
    if type_ == "recovered":
        text = f"{role} trains again after {format_seconds(fields['seconds'])}"
        return Told("Normal", "Recovered", text + (f", by {fields['by']}" if fields.get("by") else ""))
    if type_ == "decision":
        return Told("Normal", "Decision", f"decision {fields['number']}: {fields['action']}, {fields['reason']}")
    if type_ == "refusal":
        return Told("Warning", "ScriptRefused", str(fields.get("reason", "")))
    if type_ == "notice":
        remedy = f": {fields['remedy']}" if fields.get("remedy") else ""
        return Told("Normal" if fields.get("mended") else "Warning", "Notice", f"{role}: {fields['text']}{remedy}")
    if type_ == "reclaimed":
        return Told("Warning", "NodeReclaimed", f"{role}: {fields['reason']}; {fields['answer']}")
    if type_ == "aimaster_restarted":
        return Told(
            "Normal", "AIMasterRestarted", f"AIMaster {fields['incarnation']} goes on where the one before it ended"
        )
    if type_ == "broken":
        return Told(
            "Warning", "AIMasterFailed", f"{fields['reason']}; it is started again, and training goes on meanwhile"
        )
    if type_ == "job_failed":
        return Told("Warning", "JobFailed", str(fields.get("reason", "")))
    return None


def _scaling(fields: Mapping[str, Any]) -> str:
    if fields.get("replace") or "from_count" not in fields:
        return f"{fields['kind']} of {fields.get('replace') or fields.get('returning') or fields['target']}"
    what = "PS" if fields["target"] == "ps" else "workers"
    same = fields["from_count"] == fields["to_count"]
    size = str(fields["to_count"]) if same else f"{fields['from_count']} → {fields['to_count']}"
    return f"{fields['kind']} of {what}, {size}"


def _how(fields: Mapping[str, Any]) -> str:
    if fields["outcome"] != "committed":
        return f": {fields.get('reason') or 'no reason given'}"
    moved = (
        f", {fields['slots_moved']} slots with {format_bytes(fields['bytes_moved'])} moved"
        if fields.get("slots_moved")
        else ""
    )
    return f" in {format_seconds(float(fields.get('seconds', 0.0)))}{moved}"


class Teller:
    """`about`: the TFJob, as `involvedObject` names it."""

    def __init__(self, api: Api, namespace: str, about: Manifest, job: Job) -> None:
        self._api, self._namespace, self._about, self._job = api, namespace, about, job
        self._told = self._newest()  # what happened before this AIMaster has been told
        self._changed = Signal()

    def _newest(self) -> int:
        [(last,)] = self._job.store.rows("SELECT coalesce(max(sequence), 0) FROM events")
        return int(last)

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
        last = self._newest()
        await self._changed.until(lambda: self._told >= last, timeout_seconds)

    async def _create(self, told: Told, sequence: int, time: float) -> bool:
        """Whether to go on."""
        when = datetime.datetime.fromtimestamp(time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "apiVersion": "v1", "kind": "Event", "involvedObject": self._about, "type": told.type, "reason": told.reason,
            "metadata": {"name": f"{self._about['name']}.{self._job.incarnation:x}.{sequence:x}"},
            "message": told.message[:MESSAGE_MAX], "source": {"component": "deeprec-aimaster"}, "count": 1,
            "firstTimestamp": when, "lastTimestamp": when,
        }  # fmt: skip
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
