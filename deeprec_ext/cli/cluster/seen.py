"""What the API server knows of a job, put together: for when there is no AIMaster to ask, or not yet, or not any more."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from deeprec_ext.cli.cluster import kept
from deeprec_ext.units import format_seconds
from tfjob.api.client import Api, ForbiddenError
from tfjob.api.finding import Found, events_of, find, is_running, pods_of, when, why_not_running
from tfjob.model import names
from tfjob.model.kinds import Manifest

EVENTS_MAX = 6
MESSAGE_MAX = 160
PODS_MAX = 40
"""Lines of a kind."""


@dataclass(frozen=True)
class Seen:
    found: Found
    pods: list[Manifest] = field(default_factory=list)
    events: list[Manifest] = field(default_factory=list)
    summary: dict[str, Any] | None = None
    missing: tuple[str, ...] = ()
    """What could not be looked at, and which right it takes."""

    @property
    def status(self) -> Manifest:
        return dict(self.found.manifest.get("status") or {})

    @property
    def aimaster(self) -> Manifest | None:
        name = names.aimaster_name(self.found.name)
        return next((pod for pod in self.pods if pod["metadata"]["name"] == name), None)

    @property
    def ended(self) -> bool:
        """By the conditions; without an operator by the AIMaster's own end."""
        if self.found.operator:
            return self.found.finished
        phase = ((self.aimaster or {}).get("status") or {}).get("phase")
        return self.summary is not None or phase in ("Succeeded", "Failed")

    @property
    def state(self) -> str:
        if not self.found.operator:
            if self.summary:
                return str(self.summary.get("status") or "ended")
            return "no AIMaster" if self.aimaster is None else "running" if is_running(self.aimaster) else "starting"
        true = [one for one in self.status.get("conditions") or [] if one.get("status") == "True"]
        return str(true[-1]["type"]) if true else "not noticed yet: is the operator running?"

    def values(self) -> dict[str, Any]:
        """For `--json`."""
        job = self.found
        return {
            "namespace": job.namespace, "name": job.name, "elastic": self.found.elastic, "operator": self.found.operator,
            "state": self.state, "conditions": self.status.get("conditions") or [],
            "replica_statuses": self.status.get("replicaStatuses") or {},
            "line": job.annotations.get(names.STATUS_ANNOTATION, ""),
            "pods": [{"name": pod["metadata"]["name"], "state": state_of(pod)} for pod in self.pods],
            "events": [
                {"time": when(one), "type": one.get("type"), "reason": one.get("reason"), "message": one.get("message")}
                for one in self.events
            ],
            "summary": self.summary, "missing": list(self.missing),
        }  # fmt: skip


async def look(api: Api, namespace: str, name: str) -> Seen:
    """Raises UsageError when there is no such job, ApiError, UnreachableError."""
    found = await find(api, namespace, name)
    missing: list[str] = []

    async def tried(call: Any, nothing: Any) -> Any:
        try:
            return await call
        except ForbiddenError as error:
            missing.append(str(error))
            return nothing

    pods, events, files = await asyncio.gather(
        tried(pods_of(api, namespace, name), []), tried(events_of(api, namespace, found), []),
        tried(kept.read(api, namespace, found) if found.elastic else _nothing(), {}),
    )  # fmt: skip
    return Seen(found, pods, events[-EVENTS_MAX:], kept.summary(files), tuple(missing))


async def _nothing() -> dict[str, str]:
    return {}


def lines(seen: Seen) -> list[str]:
    """For people."""
    job, status = seen.found, seen.status
    kind = "elastic" if seen.found.elastic else "not elastic"
    found = [
        f"{job.namespace}/{job.name}  {seen.state}  ({kind}{'' if seen.found.operator else ', without an operator'})"
    ]
    for one in status.get("conditions") or []:
        if one.get("status") == "True" and one.get("message"):
            found.append(f"  {one['type']} at {one.get('lastTransitionTime', '?')}: {one['message']}")
    if line := job.annotations.get(names.STATUS_ANNOTATION):
        found.append(f"last said: {line}")
    if counts := _counts(status):
        found.append(f"replicas: {counts}")
    if seen.found.elastic and not seen.ended and not is_running(seen.aimaster):
        found.append(f"the AIMaster does not run: {why_not_running(seen.aimaster)}")
    found += [f"  {pod['metadata']['name']}: {state_of(pod)}" for pod in seen.pods[:PODS_MAX]]
    if len(seen.pods) > PODS_MAX:
        found.append(f"  and {len(seen.pods) - PODS_MAX} pods more")
    found += [f"{when(one)} {one.get('reason')}: {str(one.get('message'))[:MESSAGE_MAX]}" for one in seen.events]
    if seen.summary is not None:
        found.append(_ended(seen.summary))
    return found + [f"not seen: {text}" for text in seen.missing]


def _counts(status: Manifest) -> str:
    parts = []
    for type_, counts in (status.get("replicaStatuses") or {}).items():
        some = [f"{counts[key]} {key}" for key in ("active", "succeeded", "failed") if counts.get(key)]
        parts += [f"{type_} {', '.join(some)}"] if some else []
    return "; ".join(parts)


def _ended(summary: dict[str, Any]) -> str:
    reason = f": {summary['reason']}" if summary.get("reason") else ""
    took = f" in {format_seconds(float(summary['seconds']))}" if summary.get("seconds") else ""
    return f"{summary.get('status') or 'ended'}{reason}; {summary.get('steps') or 0:,} steps{took}"


def state_of(pod: Manifest) -> str:
    """`Running on node-1, 2 restarts`; of a pod that does not run, why."""
    container = names.CONTAINER if names.TYPE_LABEL in (pod["metadata"].get("labels") or {}) else "aimaster"
    status = pod.get("status") or {}
    restarts = sum(int(one.get("restartCount") or 0) for one in status.get("containerStatuses") or [])
    node = (pod.get("spec") or {}).get("nodeName")
    text = "Running" if is_running(pod, container) else why_not_running(pod)
    text += f" on {node}" if node and text == "Running" else ""
    return text + (f", {restarts} restart{'s' * (restarts > 1)}" if restarts else "")
