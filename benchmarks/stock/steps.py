"""The times of steps, as the trainers themselves wrote them: one file per trainer, one line `<Unix seconds> <global step>`
(more words may follow)."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

DIRECTORY_VARIABLE = "BENCHMARK_STEPS"
"""Environment variable with the directory of the files; without it nothing is written."""
HURRY = "hurry"
"""A file of this name in that directory: a script that keeps a pace (benchmarks/steady.py) keeps it no longer."""


@dataclass(frozen=True)
class Step:
    """One completed step of one trainer."""

    time: float
    step: int


@dataclass(frozen=True)
class Pause:
    """How one trainer saw a change."""

    gap_seconds: float
    """The longest time between two completed steps."""
    median_step_seconds: float
    """The step before the change."""

    @property
    def seconds(self) -> float:
        """What the change cost: the gap minus a usual step."""
        return max(0.0, self.gap_seconds - self.median_step_seconds)


def read(directory: Path) -> dict[str, list[Step]]:
    """Trainer (`chief-0`, `worker-1`) → its steps, oldest first. A line that is being written is left out."""
    found = {}
    for path in sorted(directory.glob("*.steps")):
        lines = path.read_text().splitlines(keepends=True)
        words = [line.split() for line in lines if line.endswith("\n")]
        found[path.stem] = [Step(float(time), int(step)) for time, step, *_ in words]
    return found


def median_step_seconds(steps: list[Step], begin: float = 0.0, end: float = float("inf")) -> float:
    """Of the steps that ended in [begin, end]; NaN when there are fewer than two."""
    times = [step.time for step in steps if begin <= step.time <= end]
    gaps = [later - earlier for earlier, later in zip(times, times[1:])]
    return statistics.median(gaps) if gaps else float("nan")


def pause(steps: list[Step], begin: float, end: float, before_seconds: float = 10.0) -> Pause | None:
    """The longest gap that overlaps [begin, end]; None for a trainer without a step before and one after the beginning."""
    pairs = [
        (earlier.time, later.time)
        for earlier, later in zip(steps, steps[1:])
        if later.time >= begin and earlier.time <= end
    ]
    if not pairs:
        return None
    return Pause(
        max(later - earlier for earlier, later in pairs), median_step_seconds(steps, begin - before_seconds, begin)
    )
