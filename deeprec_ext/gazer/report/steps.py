"""How the steps of each trainer went, against the others at the same time."""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.lines import buckets, length, natural

PIECE_SECONDS, PIECE_STEPS = 5.0, 10
"""Trainers are compared over pieces of this length, and at least so many usual steps: one slow step does not decide."""

PIECES_MAX = 500
"""More pieces tell no more, and are compared for every trainer."""

COVERED = 0.7
"""Share of a piece that a trainer must have trained and been measured in to count in it."""


@dataclass(frozen=True)
class TrainerUse:
    """Over the calm time of this trainer. Of a step, by the samples that it was measured in: half of the steps are in samples
    with a median (a 95th percentile) of at most so much."""

    name: str
    steps_per_second: float
    examples_per_second: float
    median_seconds: float
    p95_seconds: float
    longest_seconds: float
    gate_wait: float  # share
    input_wait: float  # share
    seconds: float  # measured

    @property
    def mean_seconds(self) -> float:
        """Of a step: what the median does not show, standing still now and then, is in it."""
        return 1.0 / self.steps_per_second if self.steps_per_second else 0.0


def trainer_uses(case: Case) -> list[TrainerUse]:
    return case.once(_uses)


def _uses(case: Case) -> list[TrainerUse]:
    return [_use(case, name) for name in case.trainers]


def _use(case: Case, name: str) -> TrainerUse:
    windows = case.calm_of(name)

    def mean(metric: str) -> float:
        return case.lines.mean(name, metric, windows) or 0.0

    return TrainerUse(
        name, mean("steps_per_second"), mean("examples_per_second"), _by_steps(case, name, "step_seconds"),
        _by_steps(case, name, "step_p95_seconds"), case.lines.peak(name, "step_longest_seconds", windows) or 0.0,
        mean("gate_wait_share"), mean("input_wait_share"), case.lines.seconds(name, "steps_per_second", windows),
    )  # fmt: skip


def _by_steps(case: Case, name: str, metric: str) -> float:
    """The middle one of the samples, each of which counts as often as steps were made in it: of one in which the trainer made
    three slow steps the mean over time would take as much notice as of one with a thousand quick ones."""
    windows = case.calm_of(name)
    rates = {span.end: span.mean for span in case.lines.spans(name, "steps_per_second", windows)}
    samples = sorted(
        (span.mean, rates.get(span.end, 0.0) * (span.end - span.start))
        for span in case.lines.spans(name, metric, windows)
    )
    left = sum(steps for _, steps in samples) / 2
    for value, steps in samples:
        left -= steps
        if left <= 0 < steps:
            return value
    return 0.0


@dataclass(frozen=True)
class Comparison:
    """One trainer against the median of the others, piece by piece."""

    name: str
    ratios: tuple[float, ...]  # its mean step time divided by the others' median, per piece of time

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    def share_above(self, ratio: float) -> float:
        return sum(one >= ratio for one in self.ratios) / len(self.ratios)


def compare(case: Case) -> list[Comparison]:
    """Of every trainer that trained beside another; slowest first.

    A step time is seconds divided by steps: a trainer that stands still every second is slow, though most of its steps are
    as quick as ever. Pieces with a scaling or a failure in them do not count, nor does a trainer's warm-up.
    """
    usual = [use.mean_seconds for use in trainer_uses(case) if use.steps_per_second]
    if not usual:
        return []
    seconds = max(PIECE_SECONDS, PIECE_STEPS * statistics.median(usual), length(case.calm) / PIECES_MAX)
    pieces = buckets(case.calm, seconds)
    times = {name: _step_times(case, name, pieces) for name in case.trainers}
    ratios: dict[str, list[float]] = {}
    for number in range(len(pieces)):
        here = {name: mine[number] for name, mine in times.items() if number in mine}
        ordered = sorted(here.values())
        for name, step in here.items() if len(here) > 1 else ():
            ratios.setdefault(name, []).append(step / _median_without(ordered, step))
    found = [Comparison(name, tuple(one)) for name, one in ratios.items()]
    return sorted(found, key=lambda one: (-one.median, natural(one.name)))


def _median_without(ordered: Sequence[float], value: float) -> float:
    """Of at least two sorted values, one of which is left out."""
    at, rest = bisect.bisect_left(ordered, value), len(ordered) - 1
    low, high = (rest - 1) // 2, rest // 2
    return (ordered[low + (low >= at)] + ordered[high + (high >= at)]) / 2


def _step_times(case: Case, name: str, pieces: list[tuple[float, float]]) -> Mapping[int, float]:
    """Number of the piece → seconds per step."""
    own = case.calm_of(name)
    spans = case.lines.spans(name, "steps_per_second")
    found: dict[int, float] = {}
    first = 0
    for number, (start, end) in enumerate(pieces):
        if not any(low <= start and end <= high for low, high in own):
            continue
        while first < len(spans) and spans[first].end <= start:
            first += 1
        steps = seconds = 0.0
        for span in spans[first:]:
            if span.start >= end:
                break
            part = span.overlap(((start, end),))
            seconds += part
            steps += part * span.mean
        if seconds >= COVERED * (end - start):
            found[number] = seconds / max(1.0, steps)  # one that made none took at least so long
    return found
