"""A report as plain values for other programs. Names are stable: fields are added, not renamed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.findings import find
from deeprec_ext.gazer.report.lines import length
from deeprec_ext.gazer.report.ps_load import Loads
from deeprec_ext.gazer.report.steps import trainer_uses
from deeprec_ext.gazer.report.story import Story
from deeprec_ext.gazer.report.usage import RoleUse, Use, uses
from deeprec_ext.gazer.report.work import heaviest, transfers, within

FORMAT = 1
OPS_MAX, TRANSFERS_MAX, EVENTS_MAX = 100, 200, 1000
FIGURES = 6
"""Significant figures of measured values: what a reader compares, and what keeps two reports of one run alike."""


def values(story: Story) -> dict[str, Any]:
    """Times in Unix seconds, durations in seconds, sizes in bytes, shares from 0 to 1; `trainers` and `load` of calm time."""
    case = Case(story)
    traces = within(story.traces, case.training)
    return _plain({
        "format": FORMAT, "job": story.job, "state": story.state, "status": story.status, "reason": story.reason,
        "began": story.began, "ended": story.ended, "seconds": story.seconds, "resumed": story.resumed, "steps": story.steps,
        "examples": story.examples, "command": list(story.command), "versions": dict(story.versions),
        "limits": dict(story.limits), "requests": {kind: dataclasses.asdict(one) for kind, one in story.requests.items()},
        "settings": {name: value for name, value, _ in story.settings}, "metrics": dict(story.metrics),
        "findings": [dataclasses.asdict(finding) for finding in find(case)],
        "calm_seconds": length(case.calm),
        "throughput": {
            metric: {"mean": case.lines.mean("job", metric, case.calm), "highest": case.lines.peak("job", metric, case.calm)}
            for metric in ("examples_per_second", "steps_per_second")
        },
        "trainers": [{**dataclasses.asdict(use), "mean_seconds": use.mean_seconds} for use in trainer_uses(case)],
        "resources": [_resources(use) for use in uses(story, case.lines)],
        "load": _load(case.loads),
        "ops": [dataclasses.asdict(op) for op in heaviest(traces)[:OPS_MAX]],
        "transfers": [dataclasses.asdict(one) for one in transfers(traces)[:TRANSFERS_MAX]],
        "traced_steps": len(traces),
        "starts": {role: {"started": started, "restarted": again} for role, (started, again) in story.starts.items()},
        "scalings": [dataclasses.asdict(one) for one in story.scalings],
        "failures": [dataclasses.asdict(one) for one in story.failures],
        "suspects": [dataclasses.asdict(one) for one in story.suspects[:EVENTS_MAX]],
        "decisions": [dataclasses.asdict(one) for one in story.decisions],
        "brought": story.brought,
        "estimate": list(story.estimate),
        "data": story.data,
        "warnings": [*story.warnings, *(_warning(event.role, event.text) for event in story.events if event.type == "warning")][
            :EVENTS_MAX
        ],
        "logs": {log.role: list(log.lines) for log in story.logs},
        "missing": list(story.missing),
    })  # fmt: skip


def _warning(role: str, text: str) -> str:
    return f"{role}: {text}" if role else text


def _resources(use: RoleUse) -> dict[str, Any]:
    return {"role": use.name, "cpu": _use(use.cpu), "memory": _use(use.memory), "throttled": use.throttled}


def _use(one: Use | None) -> dict[str, Any] | None:
    """`limit` and `wasted` are null where there is no limit."""
    if one is None:
        return None
    limited = one.limit > 0
    return {"mean": one.mean, "peak": one.peak, "limit": one.limit if limited else None,
            "wasted": one.wasted if limited else None, "seconds": one.seconds}  # fmt: skip


def _load(loads: Loads | None) -> dict[str, Any] | None:
    if loads is None:
        return None
    return {
        "seconds": loads.seconds, "traced_steps": loads.traces, "trainers": loads.trainers,
        "ps": [{**dataclasses.asdict(one), "part_of_step": loads.part_of_step(one.busy)} for one in loads.ps],
        "slots": [dataclasses.asdict(one) for one in loads.slots],
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """Numbers rounded, tuples as lists: only what JSON has."""
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        return _rounded(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [_plain(one) for one in value]
    return str(value)


def _rounded(value: float) -> float | None:
    """Unix times to a millisecond; what is no number (a loss may be NaN) is null: JSON has none."""
    if value != value or value in (float("inf"), float("-inf")):
        return None
    return round(value, 3) if abs(value) >= 1e6 else float(f"{value:.{FIGURES}g}")
