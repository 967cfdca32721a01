"""From spans of a series to curves that can be drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.document import DECISION, FAILURE, SCALING, Mark
from deeprec_ext.gazer.report.lines import Span

CUT_QUANTILE = 0.98
"""Scales of small multiples end here: one long pause must not flatten the rest."""

TOUCHING = 1e-3  # seconds between spans that belong together

SPARK_VALUES = 40

MARKS_MAX = 60
"""More than these cannot be told apart on a chart; tables have all."""


def points(
    spans: Sequence[Span], value: Callable[[Span], float | None] = lambda span: span.mean
) -> list[list[tuple[float, float]]]:
    """Pieces without gaps; a span stands at its middle. Spans without a value (None) are gaps."""
    known = [span._replace(mean=found) for span in spans if (found := value(span)) is not None]
    return [[((span.start + span.end) / 2, span.mean) for span in piece] for piece in _pieces(known)]


def stretched(spans: Sequence[Span]) -> list[list[tuple[float, float]]]:
    """The same for counts: each span from its start to its end."""
    return [
        [moment for span in piece for moment in ((span.start, span.mean), (span.end, span.mean))]
        for piece in _pieces(spans)
    ]


def _pieces(spans: Sequence[Span]) -> list[list[Span]]:
    pieces: list[list[Span]] = []
    for span in spans:
        if pieces and span.start <= pieces[-1][-1].end + TOUCHING:
            pieces[-1].append(span)
        else:
            pieces.append([span])
    return pieces


def top_of(values: Sequence[float]) -> float:
    """Where a shared scale ends."""
    ordered = sorted(values)
    return 1.15 * ordered[min(len(ordered) - 1, int(CUT_QUANTILE * len(ordered)))] if ordered else 1.0


def spark(spans: Sequence[Span], start: float, end: float) -> list[float | None]:
    """Highest values, in equal parts of the time; None where nothing was measured."""
    values: list[float | None] = [None] * SPARK_VALUES
    width = (end - start) / SPARK_VALUES
    for span in spans:
        if width > 0 and span.end > start and span.start < end:
            first = max(0, int((span.start - start) / width))
            for number in range(first, max(first + 1, min(SPARK_VALUES, int((span.end - start) / width) + 1))):
                if number < SPARK_VALUES:
                    values[number] = max(values[number] or 0.0, span.mean)
    return values


def marks(case: Case) -> list[Mark]:
    """What happened, in order of time; of very many the last."""
    return case.once(_marks)[-MARKS_MAX:]


def unmarked(case: Case) -> int:
    """How many earlier ones there are that `marks` leaves out."""
    return max(0, len(case.once(_marks)) - MARKS_MAX)


def _marks(case: Case) -> list[Mark]:
    """Scalings S1, S2, …, failures F1, …, decisions by the number that they have everywhere, in order of time."""
    story = case.story
    found = [
        Mark(f"S{number}", SCALING, one.started, one.started + one.seconds, f"{one.title}: {one.outcome or 'unfinished'}")
        for number, one in enumerate(story.scalings, 1) if one.started
    ]  # fmt: skip
    found += [
        Mark(f"F{number}", FAILURE, one.died, one.died + (one.recovered_seconds or 0.0), f"{one.role}: {one.cause}")
        for number, one in enumerate(story.failures, 1)
    ]
    found += [
        Mark(f"D{one.number}", DECISION, one.time, one.time, f"{one.action}: {one.reason}") for one in story.decisions
    ]
    return sorted((mark for mark in found if mark.start >= story.began - 1), key=lambda mark: mark.start)
