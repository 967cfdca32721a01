"""Pods that cannot start, or whose containers have failed: told as Warning events of the TFJob, with the reason that Kubernetes
gives (`ErrImagePull`, `CreateContainerConfigError`, `Unschedulable`, `CrashLoopBackOff`).

A user looks at the job, not at each of its pods, and a pending pod changes no condition of the job.
"""

from __future__ import annotations

from collections.abc import Iterator

from tfjob.model.events import Event
from tfjob.model.kinds import Manifest
from tfjob.reconciling.observed import View, container_statuses, deleting, name_of, phase

TOLD = 10
"""Pods of one job at a time, those of the lowest names; the rest is the same again."""


def abnormal_events(view: View) -> tuple[Event, ...]:
    """Of pods that are neither finished nor being deleted. They come with every look: who sends them remembers."""
    found: list[Event] = []
    told = 0
    for pod in sorted(view.pods, key=name_of):
        if phase(pod) in ("Succeeded", "Failed") or deleting(pod):
            continue
        events = [Event("Warning", reason, f"pod {name_of(pod)}{text}") for reason, text in _abnormal(pod)]
        found += events
        told += bool(events)
        if told == TOLD:
            break
    return tuple(found)


def _abnormal(pod: Manifest) -> Iterator[tuple[str, str]]:
    """(reason, what is said after the pod's name). Containers say more than conditions, once there are any."""
    statuses = container_statuses(pod) or container_statuses(pod, "initContainerStatuses")
    if (
        container_statuses(pod) and phase(pod) == "Pending"
    ):  # kubelet waits with them until the init containers are done
        statuses = container_statuses(pod, "initContainerStatuses") + statuses
    for status in statuses:
        state, container = status.get("state") or {}, status.get("name")
        ended, waiting = state.get("terminated") or {}, state.get("waiting") or {}
        if ended.get("exitCode"):
            text = f": {ended['message']}" if ended.get("message") else ""
            yield ended.get("reason") or "Error", f", container {container}: exited with code {ended['exitCode']}{text}"
        if waiting.get("message"):
            yield waiting.get("reason") or "Waiting", f", container {container}: {waiting['message']}"
    if not statuses:
        yield from _condition(pod)


def _condition(pod: Manifest) -> Iterator[tuple[str, str]]:
    """Of conditions the one that changed last counts."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    if not conditions:
        return
    last = max(conditions, key=lambda one: str(one.get("lastTransitionTime") or ""))
    if last.get("status") != "True" and last.get("reason"):
        yield str(last["reason"]), f": {last.get('message') or last.get('type')}"
