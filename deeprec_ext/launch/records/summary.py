"""summary.json: what the AIMaster's store says of the job, and what only the launcher knows."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Mapping, Sequence
from typing import Any

from deeprec_ext.aimaster.reporting.summary import summarize_directory
from deeprec_ext.aimaster.store import resuming
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.errors import DeepRecError
from deeprec_ext.launch.ending import Outcome
from deeprec_ext.launch.roles.supervisor import Pod
from deeprec_ext.launch.script import Progress
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.rundir import RunDirectory

_log = logging.getLogger(__name__)

EMPTY: Mapping[str, Any] = {
    "status": "", "steps": 0, "examples": 0, "seconds": 0.0, "roles": {}, "scaling": [], "failures": [], "data": None,
    "metrics": {}, "notices": [], "suspects": {}, "estimator": {}, "resume": {},
}  # fmt: skip


REASONS_MAX = 20
"""Of restarts, the most frequent."""


def merge_summary(
    stored: Mapping[str, Any], outcome: Outcome, pods: Sequence[Pod], script: Sequence[Progress], seconds: float
) -> dict[str, Any]:
    """The contract's keys first and always; the launcher's own word wins on status, seconds and starts of processes.

    Args:
        stored: from `deeprec_ext.aimaster.reporting.summary`; may lack keys.
        seconds: duration of this run of the launcher.
    """
    summary = {**EMPTY, **stored}
    summary["status"] = outcome.status
    summary["seconds"] = round(seconds, 3)
    counts = {pod.name: {"started": pod.starts, "restarted": pod.restarts} for pod in pods}
    for pod in pods:
        if (
            pod.role == "aimaster" and pod.restarted_after
        ):  # it was not there to note why: those of roles are `failures`
            summary["aimaster_restarts"] = dict(pod.restarted_after.most_common(REASONS_MAX))
    summary["roles"] = {**dict(summary["roles"] or {}), **dict(sorted(counts.items()))}
    if outcome.reason:
        summary["reason"] = outcome.reason
    if script:
        summary["events"] = [
            {
                "event": str(item.event), "fired": item.fired, "step": item.step, "outcome": item.outcome or None,
                "reason": item.reason, "seconds": round(item.seconds, 3),
            }
            for item in script
        ]  # fmt: skip
        summary["events_left"] = sum(not item.outcome for item in script)
    return summary


def read_stored(directory: RunDirectory, last: pb2.StatusReply | None) -> dict[str, Any]:
    """What the AIMaster has left in its store; only what it last said if it never came so far as to make one.

    Never raises: a summary with gaps is better than none.
    """
    said: dict[str, Any] = {"steps": last.step, "metrics": dict(last.metrics)} if last is not None else {}
    if not directory.store.exists():
        return said
    try:
        stored = summarize_directory(directory.path, status="", seconds=0.0, roles={})
    except (DeepRecError, OSError, ValueError, KeyError, sqlite3.Error) as error:
        _log.warning("%s cannot be read (%s); the summary has gaps", directory.store, error)
        return said
    return {**stored, "steps": max(stored["steps"], said.get("steps", 0))}


def begins_at(directory: RunDirectory) -> str:
    """From where a resumed run would begin, in one line; empty if the store does not tell at present."""
    try:
        with contextlib.closing(Store(directory.store, read_only=True)) as store:
            return resuming.begins(resuming.told(store, directory.path)["resume"], time.time())
    except (DeepRecError, OSError, ValueError, sqlite3.Error):
        return ""
