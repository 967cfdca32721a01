"""Arithmetic of time series: means and peaks over windows of time.

A point of a line stands for the interval that ends at its time. An interval begins where the one before it ended, but is
never much longer than those around it: a process that was away has a gap in its line, not a long interval. Around it, for
lines begin with minutes and end with seconds: what is old is kept in larger steps.
"""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from deeprec_ext.gazer.series import Line

Windows = tuple[tuple[float, float], ...]
"""Disjoint stretches of time (from, to), Unix seconds, in order."""

GAP_FACTOR = 2.5
"""An interval so many times longer than the median of those around it is a gap: a sample or two may be lost, a restart takes
longer."""

NEAR = 4
"""Intervals before it and behind it."""


class Span(NamedTuple):
    """One interval of a line; there may be a million of them."""

    start: float
    end: float
    mean: float
    highest: float

    def mostly_in(self, start: float, end: float) -> bool:
        return min(self.end, end) - max(self.start, start) > 0.5 * (self.end - self.start)

    def overlap(self, windows: Windows) -> float:
        """Seconds of it that lie in the windows."""
        first = max(0, bisect.bisect_right(windows, (self.start, float("inf"))) - 1)
        seconds = 0.0
        for start, end in windows[first:]:
            if start >= self.end:
                break
            seconds += max(0.0, min(self.end, end) - max(self.start, start))
        return seconds


class Lines:
    """Lines by subject and metric. `windows` restricts every question; None: all of the line."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._spans = {(line.subject, line.metric): tuple(_spans(line)) for line in lines if line.times}
        self._ends = {key: [span.end for span in spans] for key, spans in self._spans.items()}

    def spans(self, subject: str, metric: str, windows: Windows | None = None) -> tuple[Span, ...]:
        """Those that lie in one of the windows for more than half."""
        spans = self._spans.get((subject, metric), ())
        if windows is None or not spans:
            return spans
        ends, found = self._ends[subject, metric], []
        for start, end in windows:
            part = spans[bisect.bisect_right(ends, start) : bisect.bisect_left(ends, end) + 1]
            inside = part[1:-1]  # only the first and the last can reach beyond the window
            found += [span for span in part[:1] if span.mostly_in(start, end)]
            found += inside
            found += [span for span in part[1:][-1:] if span.mostly_in(start, end)]
        return tuple(found)

    def subjects(self, metric: str, prefix: str = "") -> list[str]:
        """Who has this metric, in natural order."""
        names = {subject for subject, name in self._spans if name == metric and subject.startswith(prefix)}
        return sorted(names, key=natural)

    def mean(self, subject: str, metric: str, windows: Windows | None = None) -> float | None:
        """Weighted by time; None without data in the windows."""
        spans = self.spans(subject, metric, windows)
        seconds = sum(span.end - span.start for span in spans)
        return sum(span.mean * (span.end - span.start) for span in spans) / seconds if seconds else None

    def peak(self, subject: str, metric: str, windows: Windows | None = None) -> float | None:
        return max((span.highest for span in self.spans(subject, metric, windows)), default=None)

    def last(self, subject: str, metric: str) -> float | None:
        spans = self.spans(subject, metric)
        return spans[-1].mean if spans else None

    def seconds(self, subject: str, metric: str, windows: Windows | None = None) -> float:
        """How long there is data."""
        return sum(span.end - span.start for span in self.spans(subject, metric, windows))


def _spans(line: Line) -> Iterator[Span]:
    """A time that is not later than the one before (a clock that went back) is left out."""
    points: list[tuple[float, float, float]] = []
    for point in zip(line.times, line.means, line.highest):
        if not points or point[0] > points[-1][0]:
            points.append(point)
    lengths = [later[0] - earlier[0] for earlier, later in zip(points, points[1:])]
    lengths.insert(0, statistics.median(lengths[:NEAR] or [1.0]))  # the first is as those behind it
    for number, ((time, mean, highest), length) in enumerate(zip(points, lengths)):
        near = lengths[max(0, number - NEAR) : number + NEAR + 1]
        if length > GAP_FACTOR * min(near):  # mostly it is not, and they need not be sorted
            usual = statistics.median(near)
            length = length if length <= GAP_FACTOR * usual else usual
        yield Span(time - length, time, mean, highest)


def natural(name: str) -> tuple[str, int]:
    """Sort key: `ps-2` before `ps-10`."""
    kind, _, index = name.rpartition("-")
    return (kind, int(index)) if kind and index.isdigit() else (name, -1)


def without(windows: Windows, holes: Iterable[tuple[float, float]]) -> Windows:
    """The windows with the holes cut out."""
    left = list(windows)
    for low, high in holes:
        if high > low:
            parts = [part for start, end in left for part in ((start, min(end, low)), (max(start, high), end))]
            left = [(start, end) for start, end in parts if end > start]
    return tuple(sorted(set(left)))


def length(windows: Windows) -> float:
    return sum(end - start for start, end in windows)


def buckets(windows: Windows, seconds: float) -> list[tuple[float, float]]:
    """The windows cut into pieces of this length; what is left over at an end is dropped."""
    return [
        (start + number * seconds, start + (number + 1) * seconds)
        for start, end in windows
        for number in range(int((end - start) / seconds))
    ]


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Theil-Sen: the median of the slopes of all pairs, unimpressed by outliers (Sen, 1968). 0 for fewer than two points.

    Args:
        times, values: at most a few hundred; pairs grow with the square.
    """
    pairs = [
        (values[j] - values[i]) / (times[j] - times[i])
        for i in range(len(times))
        for j in range(i + 1, len(times))
        if times[j] > times[i]
    ]
    return statistics.median(pairs) if pairs else 0.0
