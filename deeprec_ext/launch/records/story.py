"""Reads a run directory as a `Story`: of a run that has ended, crashed, or goes on. Nothing in it is changed.

The AIMaster's store has nearly all of it, summary.json what only the launcher knew. What is missing is left out and named.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deeprec_ext import wholefiles
from deeprec_ext.aimaster.core.records import parse_name
from deeprec_ext.aimaster.reporting.estimated import sentences
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.autoscaler.policy import record as decisions
from deeprec_ext.errors import DeepRecError, UsageError
from deeprec_ext.gazer import report
from deeprec_ext.gazer.report.story import CRASHED, ENDED, RUNNING, Log, Request, Story
from deeprec_ext.launch.records.logs import ends
from deeprec_ext.launch.records.stored import read_store
from deeprec_ext.options import Settings
from deeprec_ext.rundir import RunDirectory

REPORT = "report.html"
LOGS_MAX, LOG_LINES, LOG_WIDTH = 12, 30, 500
SAME_MOMENT_SECONDS = 1.0
"""A summary that does not say of which start of the launcher it is, and is older than it by more, is of the run before a
--resume. One that says so is known by that: the clock may have been set back since."""


def read_story(directory: RunDirectory, *, running: bool | None = None) -> Story:
    """Everything there is about a run.

    Args:
        running: whether its launcher is at work; None: look. The launcher itself says False when all processes have ended.

    Raises:
        UsageError: this is no run directory; its database is empty, torn, or of a newer version; there is nothing to tell yet.
    """
    described = directory.read_description()
    running = directory.in_use() if running is None else running
    began = float(described["started"]) if isinstance(described.get("started"), (int, float)) else 0.0
    summary = _summary(directory, began)
    state = RUNNING if running else ENDED if summary else CRASHED
    try:
        told = _described(described)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{directory.description}: is damaged ({error}); give another run directory") from None
    known = {**told, "job": str(described["job"]), "directory": str(directory.path), "state": state, "began": began}
    if directory.store.exists():
        known.update(read_store(directory, given=_mapping(described, "settings"), since=began, running=running))
        known["brought"], known["estimate"] = _brought(directory.path), _estimate(directory, running)
    elif not summary:
        why = "has not begun: its AIMaster is still being started" if running else "ended before it began"
        raise UsageError(f"{directory.path}: the job {why}; see {directory.logs}")
    else:
        known["missing"] = ("everything that the AIMaster records, because it never started",)
    known["ended"] = _end(state, began, summary, known)
    known["logs"] = _logs(directory, summary, [one.role for one in known.get("failures", ())])
    return Story(**{**known, **_summarised(summary)})


def _brought(path: Path) -> str:
    """What the decisions have brought, in a sentence; empty: none has changed a size, or their record cannot be read."""
    try:
        found = decisions.brought_in(path)
    except (UsageError, OSError):
        return ""
    return found.sentence() if found is not None else ""


def _estimate(directory: RunDirectory, running: bool) -> tuple[str, ...]:
    with contextlib.suppress(DeepRecError, OSError, sqlite3.Error):
        with contextlib.closing(Store(directory.store, read_only=True)) as store:
            return tuple(sentences(store, directory.path, running=running))
    return ()


def write_report(directory: RunDirectory, *, running: bool | None = None) -> Path:
    """Writes report.html, whole or not at all. Raises UsageError, OSError."""
    path = directory.path / REPORT
    wholefiles.write(path, report.to_html(read_story(directory, running=running)))
    return path


# ------------------------------------------------------------------------------------------------- job.json, summary.json


def _described(described: Mapping[str, Any]) -> dict[str, Any]:
    """What job.json says; each part only if it has the right shape."""
    defaults = asdict(Settings())
    settings, requests = _mapping(described, "settings"), _mapping(described, "requests")
    found = {
        kind: _mapping(requests, "ps" if kind == "ps" else "worker") for kind in ("ps", "chief", "worker", "evaluator")
    }
    return {
        "command": tuple(map(str, described.get("command") or ())),
        "versions": {str(name): str(value) for name, value in _mapping(described, "versions").items() if value},
        "limits": dict(_mapping(described, "limits")),
        "resumed": bool(described.get("resumed")),
        "settings": tuple(
            (name, str(value), str(defaults.get(name, ""))) for name, value in settings.items()
            if str(value) != str(defaults.get(name))
        ),
        "requests": {
            kind: Request(float(one.get("cpu") or 0), float(one.get("memory_bytes") or 0)) for kind, one in found.items() if one
        },
    }  # fmt: skip


def _mapping(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def _summary(directory: RunDirectory, began: float) -> dict[str, Any]:
    """summary.json of this start of the launcher; empty if there is none."""
    try:
        written = directory.summary.stat().st_mtime
        found = json.loads(directory.summary.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    ours = found["started"] == began if "started" in found else written >= began - SAME_MOMENT_SECONDS
    return found if ours else {}


def _summarised(summary: Mapping[str, Any]) -> dict[str, Any]:
    if not summary:
        return {}
    found: dict[str, Any] = {"status": str(summary.get("status") or ""), "reason": str(summary.get("reason") or "")}
    found["starts"] = {
        str(role): (int(counts.get("started", 0)), int(counts.get("restarted", 0)))
        for role, counts in _mapping(summary, "roles").items()
    }
    if summary.get("steps"):
        found["steps"] = int(summary["steps"])
    return found


def _end(state: str, began: float, summary: Mapping[str, Any], known: Mapping[str, Any]) -> float:
    if state == RUNNING:
        return time.time()
    if state == ENDED:
        return began + float(summary.get("seconds") or 0.0)
    return max([began, *(event.time for event in known["events"]), *(line.times[-1] for line in known["lines"])])


# -------------------------------------------------------------------------------------------------------------------- logs


def _logs(directory: RunDirectory, summary: Mapping[str, Any], failed: list[str]) -> tuple[Log, ...]:
    """Ends of the logs of roles that failed or were started again; of a failed job at least the chief's and the AIMaster's."""
    restarted = [role for role, counts in _mapping(summary, "roles").items() if counts.get("restarted")]
    names = list(dict.fromkeys([*failed, *restarted]))
    if summary.get("status") == "failed":
        names += [name for name in ("chief-0", "aimaster") if name not in names]
    found = []
    for name in names[:LOGS_MAX]:
        if name == "aimaster" or _is_role(name):
            lines = tuple(line[:LOG_WIDTH] for line in ends(directory.log(name), LOG_LINES))
            found += [Log(name, lines)] if lines else []
    return tuple(found)


def _is_role(name: str) -> bool:
    """A name in a damaged file must not lead out of the directory."""
    try:
        parse_name(name)
    except UsageError:
        return False
    return True
