"""What a rule says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from deeprec_ext.gazer.report.case import Case

PROBLEM, ADVICE, NOTE = "problem", "advice", "note"
"""Something went wrong or is about to; something can be had cheaper or faster; good to know."""

LEVELS = (PROBLEM, ADVICE, NOTE)

SECONDS_MIN, TRACES_MIN = 20.0, 3
"""Calm time, and traced steps, below which nothing is said of a process: one step may be an odd one, two may disagree."""


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing, in plain words. All texts are untrusted: they may hold names from the job."""

    rule: str  # stable name, e.g. hot-ps
    level: str
    text: str  # one sentence
    evidence: tuple[str, ...]  # what was measured, with figures
    advice: str  # what to do
    subject: str = ""  # ps-1, slot-3, worker-2
    weight: float = 0.0  # how much there is to gain, as a share of the step time; first findings first


Rule = Callable[[Case], Iterable[Finding]]
"""Pure. Says nothing where the evidence is thin."""


def percent(share: float) -> str:
    """`0.184` → `18 %`; below one percent `0.4 %`."""
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else f"{100 * share:.1f} %"
