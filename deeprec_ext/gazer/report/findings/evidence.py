"""How much there was to judge by: said when it was little, so that silence is not taken for health."""

from __future__ import annotations

from collections.abc import Iterable

from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.findings.finding import NOTE, SECONDS_MIN, TRACES_MIN, Finding
from deeprec_ext.gazer.report.lines import length
from deeprec_ext.gazer.report.work import within
from deeprec_ext.units import format_seconds

CALM_SECONDS_MIN = 60.0
"""Undisturbed training below which rules are mostly silent for want of evidence."""


def thin(case: Case) -> Iterable[Finding]:
    """Few samples, or few traced steps."""
    if not case.story.lines:
        yield Finding("thin-evidence", NOTE, "Nothing was measured: no finding about speed or resources can be made", (),
                      "Samples come every `gazer_seconds`; 0 turns them off.")  # fmt: skip
        return
    calm, traces = length(case.calm), len(within(case.story.traces, case.calm))
    if calm < CALM_SECONDS_MIN:
        yield Finding(
            "thin-evidence", NOTE,
            f"Evidence is thin: there were {format_seconds(calm)} of training without start, scalings and failures",
            (f"findings about trainers take at least {SECONDS_MIN:.0f} s of it",),
            "Look again after a longer run.",
        )  # fmt: skip
    elif traces < TRACES_MIN and not case.story.in_step:
        yield Finding(
            "thin-evidence", NOTE,
            f"Evidence about PS and slots is thin: {traces} traced steps in {format_seconds(calm)}",
            (f"findings about loads take at least {TRACES_MIN}", *_why(case)),
            "`trace_seconds` says how often a step is traced, `trace_budget` how much that may cost; 0 turns traces off.",
        )  # fmt: skip


def _why(case: Case) -> tuple[str, ...]:
    """What trainers said about it."""
    said = (event for event in case.story.events if event.type == "warning" and "traced" in event.text)
    return tuple(f"{event.role}: {event.text}" for event in said)[:3]


RULES = (thin,)
