"""The readable end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from deeprec_ext.launch.ending import FAILED, SUCCEEDED
from deeprec_ext.launch.job import Result
from deeprec_ext.units import format_bytes, format_seconds


def print_result(result: Result, directory: Path, stream: IO[str], quiet: bool) -> None:
    """Quiet: only what went wrong."""
    from rich.console import Console
    from rich.table import Table

    console = Console(file=stream, highlight=False, soft_wrap=True)
    if result.outcome.detail:
        console.print("\n".join(result.outcome.detail), markup=False)
    if not quiet:
        summary = result.summary
        table = Table(title=None, header_style="dim", box=None)
        for title in ("scaling", "outcome", "pause p50", "pause max", "moved", "resent", "slots", "took"):
            table.add_column(title, justify="left" if title in ("scaling", "outcome") else "right")
        for one in summary.get("scaling") or []:
            table.add_row(*scaling_row(one))
        if table.row_count:
            console.print(table)
        metrics = summary.get("metrics") or {}
        if metrics:
            console.print("metrics: " + ", ".join(f"{name} {value:.4g}" for name, value in sorted(metrics.items())), markup=False)
    console.print(final_line(result, directory), markup=False)
    if result.events_left:
        console.print(f"{len(result.events_left)} scripted events left: {'; '.join(result.events_left)}", markup=False)


def scaling_row(one: Mapping[str, Any]) -> list[str]:
    """One entry of summary.json's `scaling`."""
    size = f" {one['from']} → {one['to']}" if one.get("from") != one.get("to") else ""
    pause = one.get("pause_seconds") or {}
    outcome = str(one.get("outcome") or "unfinished")
    if outcome != "committed" and one.get("reason"):
        outcome += f": {one['reason']}"
    return [
        f"{one.get('kind', '?')} {one.get('role', '')}{size}", outcome,
        *(format_seconds(pause[key]) if pause.get(key) is not None else "" for key in ("p50", "max")),
        format_bytes(one.get("bytes_moved") or 0), format_bytes(one.get("bytes_resent") or 0),
        str(one.get("slots_moved") or 0), format_seconds(one.get("seconds") or 0.0),
    ]  # fmt: skip


def final_line(result: Result, directory: Path) -> str:
    """`succeeded: 10,000 steps in 1:12; all of it is in runs/…`."""
    outcome, summary = result.outcome, result.summary
    reason = f": {outcome.reason}" if outcome.reason else ""
    steps = f"{summary.get('steps') or 0:,} steps in {format_seconds(summary.get('seconds') or 0.0)}"
    where = f"logs in {directory / 'logs'}" if outcome.status == FAILED else f"all of it is in {directory}"
    start = outcome.status if outcome.status == SUCCEEDED else f"{outcome.status}{reason}"
    return f"{start}; {steps}; {where}"
