"""Lines of a time series: which levels answer for which part of a window, and how rows become points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from deeprec_ext.gazer.packing import NAN, Row, highest, ids, mean, numbers

POINTS_MAX = 5000
VALUES_MAX = 500_000
"""Points of all lines together: a careless question to a job of a thousand roles costs a second, not the memory."""

_PAGE = 100


@dataclass(frozen=True)
class Line:
    """One metric of one subject. Times (Unix seconds, of the end of each interval) grow, and are not evenly spaced."""

    subject: str
    metric: str
    times: list[float] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    highest: list[float] = field(default_factory=list)


class _Rows(Protocol):
    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...


Known = Mapping[int, tuple[str, tuple[str, ...]]]
"""Id of a subject -> its name and metrics. One name has several ids where versions of this package differ in metrics."""


def read_lines(
    store: _Rows, levels: Sequence[tuple[str, int]], known: Known, wanted: Sequence[tuple[str, str]],
    window: tuple[int, int], points: int,
) -> list[Line]:  # fmt: skip
    """Lines that have points, in the order of `wanted` (subject, metric).

    Args:
        levels: table and step (milliseconds, 0: as sampled), the finest first.
        window: Unix milliseconds; an end of 0 is the newest row.
    """
    if not wanted:
        return []
    extents = [extent_of(store, table) for table, _ in levels]
    if not any(newest for _, newest in extents):
        return []
    since = max(window[0], min(oldest for oldest, newest in extents if newest) - 1)
    until = window[1] or max(newest for _, newest in extents)
    points = max(2, min(points or 500, POINTS_MAX, VALUES_MAX // len(wanted)))
    width = max(1, -(-(until - since) // points))
    lines = [Line(subject, metric) for subject, metric in wanted]
    bucket, held = 0, _Bucket(lines)
    for number, begin, end in segments(levels, extents, since, until, width):
        places = _Places(known, wanted, doubled=levels[number][1] > 0)
        for time, row in _read(store, levels[number][0], begin, end):
            if (time - since - 1) // width != bucket:
                held.empty()
                bucket = (time - since - 1) // width
            values = numbers(row)
            values.append(NAN)  # what `places` gives for a subject that is not in the row
            means, peaks = places.of(row)
            found = [values[place] for place in means]
            held.put(time, found, found if peaks is means else [values[place] for place in peaks])
    held.empty()
    return [line for line in lines if line.times]


def extent_of(store: _Rows, table: str) -> tuple[int, int]:
    """Oldest and newest row, milliseconds; 0 of an empty table."""
    oldest, newest = store.rows(f"SELECT (SELECT min(time) FROM {table}), (SELECT max(time) FROM {table})")[0]  # nosec B608 # the names are ours
    return oldest or 0, newest or 0


def segments(
    levels: Sequence[tuple[str, int]], extents: Sequence[tuple[int, int]], since: int, until: int, width: int
) -> list[tuple[int, int, int]]:
    """(level, after, until) in order of time, without overlap.

    The coarsest level that still has a row for each point is read as far as it goes, what is newer than its last row from
    finer levels, what is older than its first from coarser ones.
    """
    best = max(number for number, (_, step) in enumerate(levels) if step <= width)
    newer: list[tuple[int, int, int]] = []
    begin, end = until, since  # what the levels so far cover
    for number in range(best, -1, -1):
        oldest, newest = extents[number]
        first = max(since, oldest - max(1, levels[number][1]))
        if newest and min(until, newest) > max(first, end):
            newer.append((number, max(first, end), min(until, newest)))
            begin, end = min(begin, first), min(until, newest)
    older: list[tuple[int, int, int]] = []
    for number in range(best + 1, len(levels)):
        oldest, newest = extents[number]
        first = max(since, oldest - levels[number][1])
        if newest and first < min(begin, newest):
            older.insert(0, (number, first, min(begin, newest)))
            begin = first
    return older + newer


def _read(store: _Rows, table: str, after: int, until: int) -> Iterator[tuple[int, Row]]:
    query = f"SELECT time, subjects, samples FROM {table} WHERE time > ? AND time <= ? ORDER BY time LIMIT {_PAGE}"  # nosec B608 # the names are ours
    while page := store.rows(query, (after, until)):
        for time, subjects, samples in page:
            yield time, Row(subjects, samples)
        after = page[-1][0]


class _Places:
    """Where in a row the wanted values are; -1: not there. Rows that follow each other mostly have the same subjects."""

    def __init__(self, known: Known, wanted: Sequence[tuple[str, str]], *, doubled: bool) -> None:
        self._known, self._doubled = known, doubled
        self._numbers = {pair: number for number, pair in enumerate(wanted)}
        self._found: dict[bytes, tuple[list[int], list[int]]] = {}

    def of(self, row: Row) -> tuple[list[int], list[int]]:
        """Of the means and of the highest values, in the order of `wanted`; the same list where a row has but one."""
        if (found := self._found.get(row.subjects)) is None:
            found = self._found[row.subjects] = self._look(row)
        return found

    def _look(self, row: Row) -> tuple[list[int], list[int]]:
        means = [-1] * len(self._numbers)
        peaks = [-1] * len(self._numbers) if self._doubled else means  # a sample is its own highest value
        begin = 0
        for subject in ids(row):
            name, columns = self._known[subject]
            behind = len(columns) if self._doubled else 0
            for offset, metric in enumerate(columns):
                if (number := self._numbers.get((name, metric))) is not None:
                    means[number], peaks[number] = begin + offset, begin + offset + behind
            begin += len(columns) + behind
        return means, peaks


class _Bucket:
    """Rows that become one point of each line."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines
        self._time = 0
        self._means: list[list[float]] = []
        self._peaks: list[list[float]] = []

    def put(self, time: int, means: list[float], peaks: list[float]) -> None:
        self._time = time
        self._means.append(means)
        self._peaks.append(peaks)

    def empty(self) -> None:
        """Appends the point."""
        if not self._means:
            return
        means, peaks = self._means[0], self._peaks[0]
        if len(self._means) > 1:
            means = [mean(column) for column in zip(*self._means)]
            peaks = [highest(column) for column in zip(*self._peaks)]
        time = self._time / 1000
        for line, value, peak in zip(self._lines, means, peaks):
            if value == value:
                line.times.append(time)
                line.means.append(value)
                line.highest.append(peak)
        self._means, self._peaks = [], []
