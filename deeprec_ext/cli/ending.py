"""The readable end of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from deeprec_ext.aimaster.core.records import AWAY
from deeprec_ext.aimaster.store.resuming import begins, has_begun
from deeprec_ext.cli.fitting import Column, Fitted
from deeprec_ext.cli.table import notice_line
from deeprec_ext.launch.ending import FAILED, STOPPED, SUCCEEDED
from deeprec_ext.launch.job import Result
from deeprec_ext.launch.records.story import REPORT
from deeprec_ext.printable import printable
from deeprec_ext.units import format_bytes, format_scaling, format_seconds, once

if TYPE_CHECKING:
    from deeprec_ext.cli.console import Console


RESUMABLE = (STOPPED, "interrupted")
WIDTH = 160

COLUMNS = (
    Column("scaling", right=False),
    Column("outcome", right=False),
    Column("pause p50", rank=3),
    Column("pause max", rank=1),
    Column("moved", rank=4),
    Column("resent", rank=5),
    Column("slots", rank=6),
    Column("took", rank=2),
)
"""Of changes of the job's size."""

MOVED = (4, 5, 6)
"""Columns of what has moved, of which workers have nothing."""


def print_result(result: Result, directory: Path, stream: IO[str], quiet: bool) -> None:
    """Quiet: only what went wrong."""
    from deeprec_ext.cli.console import Console

    console = Console(file=stream, highlight=False, soft_wrap=True, wide=WIDTH)
    if result.outcome.detail:
        console.print("\n".join(result.outcome.detail))
    if not quiet:
        print_body(result.summary, console)
    if not quiet or result.outcome.status != SUCCEEDED:
        console.print(final_line(result.summary, directory))
    if not quiet and (directory / REPORT).exists():
        console.print(f"report: {directory / REPORT}")
    if result.events_left:
        console.print(f"{len(result.events_left)} scripted events left: {'; '.join(result.events_left)}")


def print_summary(summary: Mapping[str, Any], directory: Path) -> None:
    """Of a job that has ended before."""
    from deeprec_ext.cli.console import Console

    console = Console(highlight=False, soft_wrap=True, wide=WIDTH)
    print_body(summary, console)
    console.print(final_line(summary, directory))


def print_body(summary: Mapping[str, Any], console: Console) -> None:
    """What happened: scalings, failures, notices, metrics."""
    scalings = summary.get("scaling") or []
    if scalings:
        moved = any(one.get(what) for one in scalings for what in ("bytes_moved", "bytes_resent", "slots_moved"))
        kept = [at for at in range(len(COLUMNS)) if moved or at not in MOVED]
        rows = [[row[at] for at in kept] for row in map(scaling_row, scalings)]
        console.print(Fitted([COLUMNS[at] for at in kept], rows))
    for one in scalings:
        by = str(one.get("requested_by") or "")
        if (one.get("outcome") != "committed" or by) and one.get(
            "reason"
        ):  # a sentence, for which no column is wide enough
            told = filter(None, (by, str(one["reason"])))
            console.print(": ".join([*scaling_row(one)[:2], *map(printable, told)]))
    for one in summary.get("failures") or []:
        console.print(failure_line(one))
    for one in summary.get("notices") or []:
        line = notice_line(str(one.get("text")), str(one.get("remedy") or ""), one.get("roles") or [])
        console.print(line, style="yellow")
    for name, one in (summary.get("suspects") or {}).items():
        console.print(printable(f"suspect {name}: {one.get('what')}"), style="red")
    metrics = once(summary.get("metrics") or {})
    if metrics:
        text = ", ".join(f"{name} {value:.4g}" for name, value in sorted(metrics.items()))
        console.print(printable(f"metrics: {text}"))


def failure_line(one: Mapping[str, Any]) -> str:
    """One entry of summary.json's `failures`: `ps-1 killed by SIGKILL: noticed after 0.1 s, recovered after 2.3 s`."""
    text = f"{one.get('role', '?')}-{one.get('id', '?')} {one.get('cause', 'failed')}"
    noticed, recovered = one.get("detected_seconds"), one.get("recovered_seconds")
    text += f": noticed after {format_seconds(noticed)}" if noticed is not None else ""
    how = AWAY if one.get("recovered_by") == AWAY else "recovered"
    text += f", {how} after {format_seconds(recovered)}" if recovered is not None else ", not recovered"
    return printable(text + (f", {one['steps_lost']} steps lost" if one.get("steps_lost") else ""))


def scaling_row(one: Mapping[str, Any]) -> list[str]:
    """One entry of summary.json's `scaling`."""
    counts, workers = ((some.get("from"), some.get("to")) for some in (one, one.get("workers") or {}))
    what = format_scaling(str(one.get("kind", "?")), str(one.get("role", "")), counts, workers)
    pause = one.get("pause_seconds") or {}
    outcome = str(one.get("outcome") or "unfinished")
    return [
        printable(what), printable(outcome),
        *(format_seconds(pause[key]) if pause.get(key) is not None else "" for key in ("p50", "max")),
        format_bytes(one.get("bytes_moved") or 0), format_bytes(one.get("bytes_resent") or 0),
        str(one.get("slots_moved") or 0), format_seconds(one.get("seconds") or 0.0),
    ]  # fmt: skip


def final_line(summary: Mapping[str, Any], directory: Path) -> str:
    """`succeeded; 10,000 steps in 1:12; all of it is in runs/…`."""
    status = str(summary.get("status") or "ended")
    reason = f": {summary['reason']}" if summary.get("reason") else ""
    took = f" in {format_seconds(summary['seconds'])}" if summary.get("seconds") else ""
    steps = f"{summary.get('steps') or 0:,} steps{took}"
    if summary.get("resumed"):
        steps += f" ({has_begun(summary['resumed'])})"
    if status in RESUMABLE and summary.get("resume"):
        steps = f"{begins(summary['resume'], time.time())}; {steps}"
    where = f"logs in {directory / 'logs'}" if status == FAILED else f"all of it is in {directory}"
    return printable(f"{status}{reason}; {steps}; {where}")
