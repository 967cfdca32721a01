"""What the manifest of a pod says has become of it. Pure.

| the pod | is read as |
|---|---|
| its container runs | running; another container or another pod is another process |
| its container has ended, the pod lives | ended, with the exit code; the kubelet starts it again unless it ended well |
| phase Failed (Evicted, Shutdown, …), or its container has ended and it is being deleted | ended and lost |
| its container has never run | neither; `waiting` says why not |

Causes begin with a word that tells them apart: `oom`, `evicted`, `preempted`, `node lost`, `deleted`.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from typing import Any

from deeprec_ext.tracebacks import error_line, raised_at
from deeprec_ext.units import format_bytes, parse_bytes, parse_cores
from tfjob.model.kinds import Manifest

CONTAINER = "tensorflow"
LOST_EXIT_CODE = 137
"""Of a container of which nobody knows how it ended: it was killed."""

LINE_MAX = 2000

POD_REASONS = {
    "Evicted": "evicted", "Preempting": "preempted", "Preempted": "preempted", "NodeLost": "node lost",
    "NodeShutdown": "node lost", "Shutdown": "node lost", "Terminated": "node lost",
}  # fmt: skip
"""`status.reason` of a pod that failed as a whole. Other reasons (NodeAffinity, OutOfcpu, …: refused by the kubelet) are told
as they are."""

DISRUPTIONS = {
    "PreemptionByScheduler": "preempted", "PreemptionByKubeScheduler": "preempted", "EvictionByEvictionAPI": "evicted",
    "DeletionByTaintManager": "node lost", "DeletionByPodGC": "node lost", "TerminationByKubelet": "evicted",
}  # fmt: skip
"""Reasons of the condition `DisruptionTarget`, which servers from 1.25 on set before they delete a pod."""


@dataclass(frozen=True)
class Seen:
    """One pod at one moment."""

    uid: str
    identity: int = 0  # of the process that runs or has ended; 0: none has begun
    running: bool = False
    ended: bool = False
    lost: bool = False  # the pod itself has ended: nobody but its maker brings it back
    exit_code: int = 0
    cause: str = ""  # where the exit code does not tell
    last_line: str = ""
    raised_at: str = ""  # by what exception of its script, where it tells that
    restarts: int = 0  # of the container, in this pod
    terminating: bool = False  # somebody has deleted it, and it has not ended yet
    waiting: str = ""  # why nothing runs
    node: str = ""
    cpu: float = 0.0  # limits of the container; 0: none
    memory_bytes: int = 0
    asked_cpu: float = 0.0  # requested by the whole pod
    asked_memory_bytes: int = 0

    @property
    def finished(self) -> bool:
        """The kubelet does not start it again."""
        return self.ended and (self.lost or self.exit_code == 0)

    @property
    def by_signal(self) -> bool:
        """It did not end by itself: killed, or its pod was taken away."""
        return self.lost or self.exit_code > 128


def identity(container: str) -> int:
    """A positive number for a process: the backend has no pid of it that means anything here."""
    return int.from_bytes(hashlib.blake2b(container.encode(), digest_size=4).digest(), "big") % 0x7FFFFFFF + 1


def read(pod: Manifest) -> Seen:
    """A pod as the server gives it."""
    status, common = pod.get("status") or {}, _common(pod)
    found = _container(status)
    state, before = found.get("state") or {}, (found.get("lastState") or {}).get("terminated")
    ended = state.get("terminated") or before
    phase = status.get("phase", "")
    lost = phase == "Failed" or (phase == "Succeeded" and not ended)
    container = found.get("containerID") or f"{common['uid']}/{common['restarts']}"
    if state.get("running") is not None and not lost:
        return Seen(running=True, identity=identity(container), **common)
    if ended is None and not lost:
        return Seen(waiting=waiting_reason(status), **common)
    lost = lost or common["terminating"]  # in a pod that is being deleted nothing is started again
    return _ended(status, ended or {}, container, lost=lost, common={**common, "waiting": _waiting(state)})


def last_end(pod: Manifest) -> Seen | None:
    """How the container ended that was there before the one that runs; None where there was none."""
    status, common = pod.get("status") or {}, _common(pod)
    before = (_container(status).get("lastState") or {}).get("terminated")
    if before is None:
        return None
    return _ended(status, before, f"{common['uid']}/{common['restarts'] - 1}", lost=False, common=common)


def _common(pod: Manifest) -> dict[str, Any]:
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    restarts = int(_container(pod.get("status") or {}).get("restartCount", 0))
    cpu, memory_bytes = limits(spec)
    asked_cpu, asked_memory_bytes = requested(spec)
    return {
        "asked_cpu": asked_cpu, "asked_memory_bytes": asked_memory_bytes,
        "uid": metadata["uid"], "restarts": restarts, "node": spec.get("nodeName") or "", "cpu": cpu,
        "memory_bytes": memory_bytes, "terminating": bool(metadata.get("deletionTimestamp")),
    }  # fmt: skip


def requested(spec: Manifest) -> tuple[float, int]:
    """Cores and bytes that all containers request together; where only a limit is named, that is requested."""
    cpu, memory_bytes = 0.0, 0
    for one in spec.get("containers") or []:
        resources = one.get("resources") or {}
        values = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        with contextlib.suppress(ValueError):
            cpu += parse_cores(str(values.get("cpu", "0")))
        with contextlib.suppress(ValueError):
            memory_bytes += parse_bytes(str(values.get("memory", "0")))
    return cpu, memory_bytes


def limits(spec: Manifest) -> tuple[float, int]:
    """Cores and bytes that the container is held to; 0 where there is no limit, or one in a unit that nobody uses."""
    containers = spec.get("containers") or []
    found: Manifest = next((one for one in containers if one.get("name") == CONTAINER), {})
    values = (found.get("resources") or {}).get("limits") or {}
    cpu, memory_bytes = 0.0, 0
    with contextlib.suppress(ValueError):
        cpu = parse_cores(str(values.get("cpu", "0")))
    with contextlib.suppress(ValueError):
        memory_bytes = parse_bytes(str(values.get("memory", "0")))
    return cpu, memory_bytes


def _ended(status: Manifest, ended: Manifest, container: str, *, lost: bool, common: dict[str, Any]) -> Seen:
    code = int(ended.get("exitCode", LOST_EXIT_CODE if lost and status.get("phase") == "Failed" else 0))
    if lost and status.get("reason"):
        code = code or LOST_EXIT_CODE  # whatever its process said, it was taken away
    return Seen(
        ended=True, identity=identity(ended.get("containerID") or container), lost=lost, exit_code=code,
        cause=_cause(status, ended, common["memory_bytes"]), last_line=_last_line(ended),
        raised_at=raised_at(_message(ended)) if code == 1 else "", **common,
    )  # fmt: skip


def _container(status: Manifest) -> Manifest:
    statuses = status.get("containerStatuses") or []
    return next((one for one in statuses if one.get("name") == CONTAINER), {})


def _cause(status: Manifest, ended: Manifest, memory_bytes: int) -> str:
    if told := disruption(status):
        return told
    if reason := str(status.get("reason") or ""):
        return _with(POD_REASONS.get(reason, reason), status.get("message", ""))
    if ended.get("reason") == "OOMKilled":
        return f"oom: memory limit of {format_bytes(memory_bytes)}" if memory_bytes else "oom: out of memory"
    return ""


def disruption(status: Manifest) -> str:
    """Why the pod is about to be deleted, or was; empty where the server does not say it."""
    for condition in status.get("conditions") or []:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            reason = condition.get("reason", "")
            return _with(DISRUPTIONS.get(reason, reason or "evicted"), condition.get("message", ""))
    return ""


def _with(word: str, message: str) -> str:
    return f"{word}: {' '.join(message.split())[:LINE_MAX]}" if message else word


def _last_line(ended: Manifest) -> str:
    return error_line(_message(ended))


def _message(ended: Manifest) -> list[str]:
    """The end of its log, as the kubelet keeps it."""
    return str(ended.get("message") or "").splitlines()


def _waiting(state: Manifest) -> str:
    waiting = state.get("waiting") or {}
    return _with(waiting.get("reason", ""), waiting.get("message", "")) if waiting.get("reason") else ""


def waiting_reason(status: Manifest) -> str:
    """Why a pod does not run yet: the scheduler's words, or those of the kubelet about an image or a volume."""
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _with("", condition.get("message", "")).lstrip(": ") or condition.get("reason", "")
    for one in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        if (said := _waiting(one.get("state") or {})) and not said.startswith(("PodInitializing", "ContainerCreating")):
            return f"container {one.get('name', '')}: {said}"
        ended = (one.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            line = _last_line(ended)
            return f"container {one.get('name', '')} exited with code {ended['exitCode']}{': ' + line if line else ''}"
    return ""
