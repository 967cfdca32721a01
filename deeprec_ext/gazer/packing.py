"""Values of many subjects at one moment, as two byte strings; and how several such rows become one. Pure.

A row of the series has `subjects`, their ids as unsigned 32-bit integers, and `samples`, 32-bit floats: of each subject in
turn the means of its metrics, in a coarser row followed by their highest values. NaN stands for what was not measured. So a
row of a thousand roles is written, read and merged as a whole, without a database row per value.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

NAN = float("nan")
LARGEST = 3.4e38
"""Of a 32-bit float."""


@dataclass(frozen=True)
class Row:
    """One moment of one level, as stored."""

    subjects: bytes
    samples: bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.subjects) + len(self.samples)


def pack(values: Iterable[tuple[int, Sequence[float]]]) -> Row:
    """(id, values in the order of the subject's metrics) of each subject. What is no finite 32-bit float is not measured."""
    subjects, samples = array("I"), array("f")
    for subject, numbers in values:
        subjects.append(subject)
        samples.extend([number if -LARGEST < number < LARGEST else NAN for number in numbers])
    return Row(subjects.tobytes(), samples.tobytes())


def ids(row: Row) -> array[int]:
    found = array("I")
    found.frombytes(row.subjects)
    return found


def numbers(row: Row) -> array[float]:
    found = array("f")
    found.frombytes(row.samples)
    return found


def mean(column: Sequence[float]) -> float:
    """Of what was measured; NaN if nothing was."""
    total = sum(column)
    if total == total:
        return total / len(column)
    known = [value for value in column if value == value]
    return sum(known) / len(known) if known else NAN


def highest(column: Sequence[float]) -> float:
    if sum(column) == sum(column):
        return max(column)
    return max((value for value in column if value == value), default=NAN)


def merge(rows: Sequence[Row], widths: Mapping[int, int], *, doubled: bool) -> Row:
    """Several rows of a level as one of the next coarser: means and highest values.

    Args:
        widths: subject id -> number of its metrics.
        doubled: the rows are coarse themselves: each subject has means and highest values.
    """
    groups: dict[bytes, list[array[float]]] = {}
    for row in rows:
        groups.setdefault(row.subjects, []).append(numbers(row))
    parts: dict[int, list[tuple[list[tuple[float, ...]], list[tuple[float, ...]]]]] = {}
    for subjects, group in groups.items():
        columns, begin = list(zip(*group)), 0
        for subject in ids(Row(subjects, b"")):
            width = widths[subject]
            means = columns[begin : begin + width]
            begin += width
            peaks = means
            if doubled:
                peaks = columns[begin : begin + width]
                begin += width
            parts.setdefault(subject, []).append((means, peaks))
    return pack((subject, _merged(found)) for subject, found in parts.items())


def _merged(found: list[tuple[list[tuple[float, ...]], list[tuple[float, ...]]]]) -> list[float]:
    """All means, then all highest values. A subject's columns lie in several parts when others came or went meanwhile."""
    means, peaks = found[0]
    for more_means, more_peaks in found[1:]:
        means = [old + new for old, new in zip(means, more_means)]
        peaks = [old + new for old, new in zip(peaks, more_peaks)]
    return [*map(mean, means), *map(highest, peaks)]
