"""What a job used of what it was given: sums over its time series. Pure."""

from __future__ import annotations

import bisect
import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from deeprec_ext.gazer.series_lines import Line

GAP = 4.0
"""A step between two points that is so many times the usual one is a time in which the process was not there."""

NEAR = 5
"""Steps on each side of one that say what is usual there: of a job of days the first points are ten minutes apart, the last
ones one."""

Values = Mapping[str, Line]
"""Lines of one subject, by metric."""


@dataclass(frozen=True)
class Use:
    """All PS and trainers together, over the job. `held`: what they requested, or were held to, while they lived;
    `idle`: what of that they did not use. Both are 0 where nothing was requested."""

    process_seconds: float = 0.0
    cpu_core_seconds: float = 0.0
    cpu_held_core_seconds: float = 0.0
    cpu_idle_core_seconds: float = 0.0
    memory_byte_seconds: float = 0.0
    memory_held_byte_seconds: float = 0.0
    memory_idle_byte_seconds: float = 0.0


@dataclass(frozen=True)
class Brought:
    """What the changes of the size brought, against staying at the first one, by `outcomes.account`: of a job that was scaled
    by itself from the record of its decisions, as its report has it, of another one from its time series.

    `saved_seconds`: how much longer the same examples would have taken at the first size, pauses of the changes counted; below
    0 they cost more than they brought. A `first_examples_per_second` of 0: the first size was left too soon to be measured.
    `gained`: the same as a share of the throughput since the first change; None: not known, as in records of earlier releases.
    """

    changes: int = 0  # that were made
    not_made: int = 0  # rolled back, or refused
    first_examples_per_second: float = 0.0
    examples_per_second: float = 0.0  # over all of the training
    saved_seconds: float = 0.0
    gained: float | None = None
    by_hand: int = 0  # of `changes`: nobody but a user has asked for them


def use_of(processes: Mapping[str, Values], requested: Mapping[str, tuple[float, float]]) -> Use:
    """Args:
    processes: lines of each PS and trainer, by its name.
    requested: (cores, bytes) of one process by the kind of its name (`ps`, else ``): what counts where no limit was measured;
        0: nothing was requested, and a limit that was measured is one that it shares with others.
    """
    total = Use()
    for name, values in processes.items():
        cores, memory = requested.get("ps" if name.startswith("ps-") else "", (0.0, 0.0))
        cpu = _used(values, ("cpu_cores",), "cpu_limit_cores", cores)
        measured = ("working_set_bytes", "rss_bytes") if memory > 0 else ("rss_bytes",)  # a container of its own
        bytes_ = _used(values, measured, "memory_limit_bytes", memory)
        total = _sum(total, Use(max(cpu[0], bytes_[0]), *cpu[1:], *bytes_[1:]))
    return Use(**{name: round(value, 3) for name, value in vars(total).items()})


def _sum(one: Use, other: Use) -> Use:
    return Use(*(a + b for a, b in zip(dataclasses.astuple(one), dataclasses.astuple(other))))


def _used(values: Values, metrics: Sequence[str], limit: str, requested: float) -> tuple[float, float, float, float]:
    """(seconds, used, held, idle) of one process: the first of the metrics that was measured."""
    line = next((values[metric] for metric in metrics if metric in values), None)
    if line is None:
        return 0.0, 0.0, 0.0, 0.0
    seconds = used = held = idle = 0.0
    for time, value, length in _stretches(line):
        seconds += length
        used += value * length
        if requested > 0:
            most = _at(values.get(limit), time) or requested
            held += most * length
            idle += max(0.0, most - value) * length
    return seconds, used, held, idle


def mean_of(line: Line) -> float:
    """Over the time in which it was measured."""
    stretches = list(_stretches(line))
    seconds = sum(length for _, _, length in stretches)
    return sum(max(0.0, value) * length for _, value, length in stretches) / seconds if seconds else 0.0


def _stretches(line: Line) -> Iterator[tuple[float, float, float]]:
    """(end, mean, length in seconds) of each interval; a gap is none."""
    steps = [after - before for before, after in zip(line.times, line.times[1:])]
    usual = statistics.median(steps) if steps else 0.0
    lengths = [steps[0] if steps else 0.0, *steps]
    for at, (time, value, length) in enumerate(zip(line.times, line.means, lengths)):
        if math.isfinite(value):
            if length > GAP * usual:
                length = _ungapped(steps, max(0, at - 1))
            yield time, value, length


def _ungapped(steps: Sequence[float], at: int) -> float:
    """A step, or where it is a gap, the usual one on the side where they are longer."""
    sides = [side for side in (steps[max(0, at - NEAR) : at], steps[at + 1 : at + 1 + NEAR]) if side]
    usual = max(statistics.median(side) for side in sides)
    return steps[at] if steps[at] <= GAP * usual else usual


def _at(line: Line | None, time: float) -> float:
    """The value of the interval that ends then, or last before; 0 where there is none."""
    place = bisect.bisect_right(line.times, time + 1e-3) - 1 if line is not None else -1
    value = line.means[place] if line is not None and place >= 0 else 0.0
    return value if math.isfinite(value) else 0.0
