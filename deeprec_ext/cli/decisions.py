"""`deeprec-ext decisions JOB`: what the autoscaler decided, why, what it expected, and what came of it."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from deeprec_ext.cli.cluster.target import on_cluster
from deeprec_ext.cli.job import add_job, no_directory, print_json
from deeprec_ext.errors import DeepRecError
from deeprec_ext.printable import printable
from deeprec_ext.rundir import RunDirectory
from deeprec_ext.units import format_rate, format_seconds

if TYPE_CHECKING:
    from deeprec_ext.autoscaler.policy.decision import Decision
    from deeprec_ext.autoscaler.policy.record import Entry, Outcome

WIDTH = 160
TABLE_WIDTH = 100
"""Below, a decision is some lines of its own: a reason is a sentence, and in a narrow column nobody reads it."""


class Told(Protocol):
    """A recorded decision, as far as it is shown."""

    @property
    def decision(self) -> Decision: ...

    @property
    def outcome(self) -> Outcome | None: ...


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "decisions", help="show what the autoscaler decided, why, and what came of it", description=__doc__
    )
    add_job(parser)
    parser.add_argument("--changes", action="store_true", help="leave out decisions that keep the size")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    from deeprec_ext.autoscaler.policy.record import brought_by, read

    if (code := on_cluster("decisions", arguments)) is not None:
        return code
    if not arguments.job.is_dir():
        raise no_directory(arguments.job)
    recorded = read(arguments.job)
    entries = [entry for entry in recorded if entry.decision.action != "keep" or not arguments.changes]
    nothing = "nothing was changed by a decision yet" if recorded else "nothing was decided yet"
    show(entries, [to_values(entry) for entry in entries] if arguments.json else None, nothing)
    if not arguments.json and (found := brought_by(recorded)) is not None:
        print(f"\nWhat the decisions brought: {found.sentence()}.")
    if not arguments.json:
        print_estimate(_estimated(arguments.job))
    return 0


def print_estimate(told: Sequence[str]) -> None:
    """Nothing, where nothing was estimated."""
    if told:
        print("\nEstimated before the start:", *(f"- {printable(one)}" for one in told), sep="\n")


def _estimated(directory: Path) -> list[str]:
    """And what came of it; empty: nothing was, or it cannot be read."""
    from deeprec_ext.aimaster.reporting.estimated import sentences
    from deeprec_ext.aimaster.store.store import Store

    try:
        with contextlib.closing(Store(directory / "aimaster.db", read_only=True)) as store:
            return sentences(store, directory, running=RunDirectory(directory).in_use())
    except (DeepRecError, OSError, sqlite3.Error):
        return []


def show(told: Sequence[Told], values: Any, nothing: str) -> None:
    """A table, or these values as JSON; `nothing`: what is said where there are none."""
    from deeprec_ext.cli.console import Console

    if values is not None:
        print_json(values)
    else:
        console = Console(wide=WIDTH, highlight=False)
        console.print((table(told) if console.width >= TABLE_WIDTH else stacked(told)) if told else nothing)


def to_values(entry: Entry) -> dict[str, Any]:
    """One decision without its observation, which is long; it stands in decisions.jsonl."""
    return {
        "at": entry.at, **json.loads(entry.decision.to_json()),
        "outcome": dataclasses.asdict(entry.outcome) if entry.outcome is not None else None,
    }  # fmt: skip


class Row(NamedTuple):
    number: str
    at: str
    what: str
    why: str
    predicted: str
    came: str
    style: str

    @classmethod
    def of(cls, some: Sequence[Told]) -> Row:
        """One decision, or those of one line."""
        first, decision = some[0].decision, some[-1].decision
        number, at = str(decision.number), format_seconds(decision.time)
        if len(some) > 1:
            number, at = f"{first.number}–{number}", f"{format_seconds(first.time)}–{at}"
        style = "dim" if decision.action == "keep" else ""
        return cls(number, at, what(decision), decision.reason, predicted(decision), came_of(some[-1]), style)


def table(entries: Sequence[Told]) -> Any:
    """Without columns that are empty."""
    from rich.table import Table
    from rich.text import Text

    rows = [Row.of(some) for some in lines(entries)]
    titles = {
        "number": "#",
        "at": "at",
        "what": "decision",
        "why": "why",
        "predicted": "predicted",
        "came": "came of it",
    }
    shown = [name for name in titles if any(getattr(row, name) for row in rows)]
    table = Table(box=None, header_style="dim", padding=(0, 1))
    for name in shown:
        table.add_column(
            titles[name], justify="right" if name in ("number", "at", "predicted") else "left", overflow="fold",
            ratio=3 if name == "why" else None,
        )  # fmt: skip
    for row in rows:
        table.add_row(*(Text(getattr(row, name)) for name in shown), style=row.style)
    return table


def stacked(entries: Sequence[Told]) -> Any:
    """The same below each other."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[Any] = []
    for row in (Row.of(some) for some in lines(entries)):
        parts.append(Text(f"{row.number}  {row.at}  {row.what}", style=row.style or "bold"))
        told = row.why, f"predicted {row.predicted}" * bool(row.predicted), row.came
        parts += [Padding(Text(text, style=row.style), (0, 0, 0, 4)) for text in told if text]
    return Group(*parts)


def lines(entries: Sequence[Told]) -> list[list[Told]]:
    """Decisions to keep the size that follow on each other for a reason of the same kind are one line, with the newest."""

    def kept(one: Told) -> str:
        return f"keep: {one.decision.kind}" if one.decision.action == "keep" and one.outcome is None else ""

    found: list[list[Told]] = []
    for why, group in itertools.groupby(entries, kept):
        some = list(group)
        found += [some] if why else [[one] for one in some]
    return found


def what(decision: Decision) -> str:
    """`scale to 2 PS, 3 workers`, `replace worker-1`, `keep`."""
    from deeprec_ext.autoscaler.policy.limits import describe

    if decision.action in ("scale", "explore", "resize", "start"):
        return f"{decision.action} {'at' if decision.action == 'start' else 'to'} {describe(decision.size)}"
    return f"{decision.action} {decision.replace}".rstrip()


def predicted(decision: Decision) -> str:
    """`1,200 → 1,900 examples/s ± 8 %`; nothing where nothing was predicted."""
    prediction = decision.prediction
    if decision.action == "keep" or not prediction.examples_per_second:
        return ""
    error = f" ± {prediction.mape_holdout:.0%}" if prediction.mape_holdout is not None else ""
    return f"{format_rate(prediction.before)} → {format_rate(prediction.examples_per_second)} examples/s{error}"


def came_of(entry: Told) -> str:
    """`committed: 1,850 examples/s, 3 % less than predicted`."""
    outcome, expected = entry.outcome, entry.decision.prediction.examples_per_second
    if outcome is None:
        return "" if entry.decision.action in ("keep", "start") else "not known yet"
    text = outcome.outcome.replace("_", " ") + (f": {outcome.reason}" if outcome.reason else "")
    if outcome.examples_per_second_after:
        text += f": {format_rate(outcome.examples_per_second_after)} examples/s"
        if expected and outcome.outcome == "committed":
            off = outcome.examples_per_second_after / expected - 1
            text += f", {abs(off):.0%} {'more' if off > 0 else 'less'} than predicted"
    return text
