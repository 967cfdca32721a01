"""What ran, how fast, and how each trainer's steps went."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from deeprec_ext.gazer.report import curves
from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.document import (
    PS,
    TRAINER,
    Block,
    Chart,
    Curve,
    Facts,
    Legend,
    Mark,
    Section,
    Strip,
    Strips,
    Table,
    Text,
)  # fmt: skip
from deeprec_ext.gazer.report.findings.finding import percent
from deeprec_ext.gazer.report.lines import Span
from deeprec_ext.gazer.report.steps import TrainerUse, trainer_uses
from deeprec_ext.gazer.report.story import CRASHED, RUNNING, Story
from deeprec_ext.gazer.report.words import count, moment, number, offset, seconds
from deeprec_ext.units import counted, format_bytes, format_seconds, once

STRIPS_MAX = 24
"""Trainers drawn; a job of a thousand has them in the table of the JSON form."""
ROWS_MAX = 50
METRICS = ("auc", "loss", "val_auc", "val_loss")
"""Among the few numbers."""


def headline(story: Story) -> str:
    """How the run stands, in one sentence."""
    after = f"after {format_seconds(story.seconds)}"
    if story.state == RUNNING:
        return f"The job is still running: this is how it stood at {moment(story.ended)}, {after}."
    if story.state == CRASHED:
        return f"The run crashed: its launcher was killed and left no summary; the last sign of life was {after}."
    return f"The job {story.status or 'ended'} {after}{f': {story.reason}' if story.reason else ''}."


def figures(case: Case) -> list[tuple[str, str]]:
    """The few numbers everybody wants."""
    story = case.story
    found = [("steps", count(story.steps)), ("duration", format_seconds(story.seconds))]
    if story.examples:
        found.append(("examples", count(story.examples)))
    rate, unit = case.lines.mean("job", "examples_per_second", case.calm), "examples/s"
    if not rate:
        rate, unit = case.lines.mean("job", "steps_per_second", case.calm), "steps/s"
    if rate:
        found.append((f"undisturbed {unit}", number(rate)))
    found += [(name, f"{value:.4g}") for name, value in sorted(once(story.metrics).items()) if name in METRICS]
    if story.scalings:
        found.append(("scalings", str(len(story.scalings))))
    if story.failures:
        found.append(("failures", str(len(story.failures))))
    return found


def what_ran(case: Case) -> Section:
    story = case.story
    command = f"`{shlex.join(story.command).replace('`', chr(39))}`" if story.command else "not known"
    resumed = ", resumed: curves show this start of the launcher only" if story.resumed else ""
    rows = [("command", command), ("started", moment(story.began) + resumed)]
    if story.directory:
        rows.append(("directory", story.directory))
    if limits := _limits(story):
        rows.append(("size", limits))
    for kind, request in story.requests.items():
        words = [f"{request.cores:g} cores"] if request.cores else []
        words += [format_bytes(request.memory_bytes)] if request.memory_bytes else []
        if words:
            rows.append((f"each {kind}", " and ".join(words)))
    changed = ", ".join(f"{name} = {value} (default {default or 'none'})" for name, value, default in story.settings)
    rows.append(("settings", changed or "all at their defaults"))
    rows.append(
        ("versions", ", ".join(f"{name} {value}" for name, value in story.versions.items() if value) or "not known")
    )
    if story.metrics:
        rows.append(
            ("metrics", ", ".join(f"{name} {value:.4g}" for name, value in sorted(once(story.metrics).items())))
        )
    if again := {role: again for role, (_, again) in story.starts.items() if again}:
        rows.append(("started again", ", ".join(f"{role} {times} ×" for role, times in again.items())))
    blocks: list[Block] = [Facts(rows)]
    if story.missing:
        blocks.append(Text(f"Not in this report: {'; '.join(story.missing)}."))
    return Section("what-ran", "What ran", blocks)


def _limits(story: Story) -> str:
    limits = story.limits
    if not limits:
        return ""

    def of(name: str, one: str) -> str:
        low, high = limits.get(f"min_{name}", "?"), limits.get(f"max_{name}", "?")
        return f"{counted(limits.get(name, '?'), one)} ({low} to {high})"

    if story.in_step:
        return f"in step, without PS: a chief, {of('workers', 'worker')}"
    text = f"{of('ps', 'PS')}, a chief, {of('workers', 'worker')}, {limits.get('slots', '?')} slots"
    return text + (", an evaluator" if limits.get("evaluator") else "")


def throughput(case: Case) -> Section:
    """Examples and steps per second, and the size of the job, over time."""
    story, marks = case.story, curves.marks(case)
    blocks: list[Block] = []
    for metric, title in (("examples_per_second", "Examples per second"), ("steps_per_second", "Steps per second")):
        spans = case.lines.spans("job", metric)
        if any(span.mean > 0 for span in spans):
            curve = Curve(title, TRAINER, curves.points(spans))
            blocks.append(Chart(title, [curve], story.began, story.ended, number, marks))
    if not blocks:
        return Section("throughput", "Throughput", [Text("No step was measured.")])
    sizes = [
        Curve(name, kind, curves.stretched(spans))
        for metric, name, kind in (("ps", "PS", PS), ("workers", "trainers, with the chief", TRAINER))
        if not (story.in_step and metric == "ps") and (spans := case.lines.spans("job", metric))
    ]
    if sizes:
        blocks.append(Chart("Processes", sizes, story.began, story.ended, number, marks, stepped=True, low=True))
    if marks:
        blocks.append(Legend(marks, story.began))
    if earlier := curves.unmarked(case):
        blocks.append(Text(f"{earlier} earlier ones are not marked; the tables have all that is known of them."))
    return Section("throughput", "Throughput", blocks)


def steps(case: Case) -> Section:
    """Step time of each trainer, over time and in figures."""
    uses = trainer_uses(case)
    if not uses:
        return Section("steps", "Steps of each trainer", [Text("No trainer has made a step that was measured.")])
    slowest = sorted(uses, key=lambda use: -use.mean_seconds)[:STRIPS_MAX]
    shown = [use for use in uses if use in slowest]
    spans = {use.name: case.lines.spans(use.name, "steps_per_second") for use in shown}
    values = [1.0 / span.mean for found in spans.values() for span in found if span.mean > 0]
    rows = [_strip(case, use, spans[use.name]) for use in shown]
    more = f"The {len(shown)} slowest of {len(uses)} trainers." if len(shown) < len(uses) else ""
    note = f"Bold: mean, thin: median. Higher values are cut off. {more}".strip()
    story = case.story
    marks: Sequence[Mark] = curves.marks(case)
    blocks: list[Block] = [
        Strips(
            "Seconds per step", rows, story.began, story.ended, curves.top_of(values), TRAINER, seconds, note, marks
        ),
        _table(uses),
    ]
    return Section("steps", "Steps of each trainer", blocks)


def _strip(case: Case, use: TrainerUse, spans: Sequence[Span]) -> Strip:
    mean = curves.points(spans, lambda span: 1.0 / span.mean if span.mean > 0 else None)
    median = curves.points(case.lines.spans(use.name, "step_seconds"), lambda span: span.mean or None)
    text = (
        f"mean {seconds(use.mean_seconds)}, median {seconds(use.median_seconds)}" if use.seconds else "too short to say"
    )
    return Strip(use.name, mean, median, text)


def _table(uses: Sequence[TrainerUse]) -> Table:
    columns = (
        "trainer", "steps/s", "examples/s", "mean step", "median", "95 %", "longest", "at the gate", "for input", "measured"
    )  # fmt: skip
    rows = [(use.name, *_figures(use)) for use in uses[:ROWS_MAX]]
    note = (
        "Without start, scalings and failures. Median and 95 % are those of the sample in the middle, by steps. The gate is "
        "where steps wait during a change; input: of the data ledger."
    )
    left = f" {len(uses) - ROWS_MAX} more trainers are in `--json`." if len(uses) > ROWS_MAX else ""
    return Table(columns, rows, frozenset(range(1, len(columns))), note + left)


def _figures(use: TrainerUse) -> tuple[str, ...]:
    if not use.seconds:  # nothing but start and changes: zeros would look as if it stood still
        return (*["–"] * 8, offset(0.0))
    return (
        number(use.steps_per_second), number(use.examples_per_second) if use.examples_per_second else "–",
        seconds(use.mean_seconds), seconds(use.median_seconds), seconds(use.p95_seconds), seconds(use.longest_seconds),
        percent(use.gate_wait), percent(use.input_wait), offset(use.seconds),
    )  # fmt: skip
