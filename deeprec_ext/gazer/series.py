"""Time series of what Gazer measures: bounded in time and in bytes, so that a job of days fits beside the AIMaster's state.

Three levels: what was sampled, means and highest values of each minute, and of each ten minutes. Each level forgets its
oldest rows when they are too old or the level is too large, so a small job keeps its samples for longer than a large one and
the file never grows beyond the sum of the limits. A level's missing rows are made from the next finer one, also those that a
killed AIMaster left. Time is what the clock says: where it went back, later samples overwrite what they pass over.

The store is any object with `rows` and `write` (the AIMaster's `Store`); one that is only read may be of an older version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from deeprec_ext.gazer.metrics import metrics_of
from deeprec_ext.gazer.packing import NAN, Row, merge, pack
from deeprec_ext.gazer.series_lines import Line, extent_of, read_lines
from deeprec_ext.proto import deeprec_ext_pb2 as pb

SUBJECTS_MAX = 20_000
TRACES_KEPT = 20
TRACE_BYTES_MAX, TRACES_BYTES_MAX = 64 << 10, 8 << 20
PRUNED_AT_ONCE = 4
"""Old rows removed per level with each sample: one comes, so this catches up, in small portions."""

SCHEMA = """
CREATE TABLE gazer_subjects (id INTEGER PRIMARY KEY, name TEXT NOT NULL, metrics TEXT NOT NULL, UNIQUE (name, metrics));
CREATE TABLE gazer_samples  (time INTEGER PRIMARY KEY, subjects BLOB NOT NULL, samples BLOB NOT NULL);
CREATE TABLE gazer_minutes  (time INTEGER PRIMARY KEY, subjects BLOB NOT NULL, samples BLOB NOT NULL);
CREATE TABLE gazer_tens     (time INTEGER PRIMARY KEY, subjects BLOB NOT NULL, samples BLOB NOT NULL);
CREATE TABLE gazer_traces   (id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, subject TEXT NOT NULL,
                             trace BLOB NOT NULL);
CREATE INDEX gazer_traces_of ON gazer_traces (subject, id);
"""
"""Times of samples are Unix milliseconds, of the end of their interval. Metrics: names in the order of the values."""

_SUBJECT = re.compile(r"job|aimaster|(ps|chief|worker|evaluator|slot|host)-\d{1,6}")


class Rows(Protocol):
    """What a store must be able to do."""

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...
    def write(self, query: str, rows: Iterable[Sequence[Any]]) -> None: ...


@dataclass(frozen=True)
class Level:
    """`step`: milliseconds of a row, 0: as sampled. Rows go when they are older than `kept_seconds` or `bytes_max` is full."""

    table: str
    step: int
    kept_seconds: float
    bytes_max: int


LEVELS = (
    Level("gazer_samples", 0, 3600.0, 32 << 20),  # 1 000 roles: a quarter of an hour
    Level("gazer_minutes", 60_000, 36 * 3600.0, 36 << 20),  # 100 roles: a day and a half
    Level("gazer_tens", 600_000, 60 * 86_400.0, 16 << 20),  # 100 roles: six days; 10 roles: two months
)


@dataclass(frozen=True)
class Merge:
    """Rows of a level that make one of the next coarser. `row` computes, and may do so in a thread."""

    level: int  # that gets the row
    end: int  # milliseconds
    rows: tuple[Row, ...]
    widths: Mapping[int, int]

    def row(self) -> Row:
        return merge(self.rows, self.widths, doubled=self.level > 1)


@dataclass
class _Extent:
    """What a level holds."""

    bytes: int = 0
    oldest: int = 0  # milliseconds; 0: nothing
    newest: int = 0
    merged: int = 0  # rows that end until here have been made from the finer level


@dataclass
class _State:
    """What a writer remembers; a read-only store has none."""

    extents: list[_Extent]
    traces: int  # bytes
    last: int = 0  # the newest sample of this process, milliseconds
    ids: dict[str, int] = field(default_factory=dict)
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    widths: dict[int, int] = field(default_factory=dict)


class Series:
    """Writes and reads. One writer; after a transaction that failed, make a new one.

    `add` does everything. A writer that must not stand still calls `append`, and then, as long as there is one, computes
    `next_merge` elsewhere and gives the result to `finish`.
    """

    def __init__(self, store: Rows) -> None:
        self._store = store
        self._state: _State | None = None

    # ------------------------------------------------------------------------------------------------ writing

    def add(self, time: float, values: Mapping[str, Mapping[str, float]]) -> None:
        """One moment (Unix seconds): subject -> metric -> value. Unknown subjects and metrics are ignored, and values that
        are not finite."""
        self.append(time, values)
        while (due := self.next_merge(time)) is not None:
            self.finish(due, due.row())

    def append(self, time: float, values: Mapping[str, Mapping[str, float]]) -> None:
        """The samples alone, and removes some old rows."""
        now = milliseconds(time)
        if not now:
            return
        state = self._writer(now)
        if state.last and now > state.last:
            self._delete(0, f"time > {state.last} AND time <= {now}")  # of a clock that went back
        else:
            for level, extent in zip(LEVELS[1:], state.extents[1:]):
                extent.merged = min(extent.merged, now // level.step * level.step)
        state.last = now
        row = pack(self._numbers(state, values))
        if row.subjects:
            self._insert(0, now, row)
        for number in range(len(LEVELS)):
            self._prune(number, now)

    def _numbers(self, state: _State, values: Mapping[str, Mapping[str, float]]) -> Iterable[tuple[int, list[float]]]:
        for subject, found in values.items():
            columns = state.columns.get(subject)
            if columns is None:
                if len(state.columns) >= SUBJECTS_MAX or not _SUBJECT.fullmatch(subject):
                    continue
                columns = state.columns[subject] = tuple(metrics_of(subject))
                self._register(state, subject, columns)
            yield state.ids[subject], [found.get(name, NAN) for name in columns]

    def _register(self, state: _State, subject: str, columns: tuple[str, ...]) -> None:
        names = " ".join(columns)
        self._store.write("INSERT OR IGNORE INTO gazer_subjects (name, metrics) VALUES (?, ?)", [(subject, names)])
        found = self._store.rows("SELECT id FROM gazer_subjects WHERE name=? AND metrics=?", (subject, names))
        state.ids[subject] = found[0][0]
        state.widths[found[0][0]] = len(columns)

    def next_merge(self, time: float) -> Merge | None:
        """The oldest row of a coarser level that is due and missing."""
        now = milliseconds(time)
        state = self._writer(now)
        for number in range(1, len(LEVELS)):
            level, extent, finer = LEVELS[number], state.extents[number], LEVELS[number - 1].table
            until = now // level.step * level.step
            if extent.merged >= until:
                continue
            query = f"SELECT min(time) FROM {finer} WHERE time > ? AND time <= ?"  # nosec B608 # the names are ours
            first = self._store.rows(query, (extent.merged, until))[0][0]
            if first is None:
                extent.merged = until
                continue
            end = -(-first // level.step) * level.step
            query = f"SELECT subjects, samples FROM {finer} WHERE time > ? AND time <= ?"  # nosec B608 # the names are ours
            rows = tuple(Row(*row) for row in self._store.rows(query, (end - level.step, end)))
            return Merge(number, end, rows, dict(state.widths))
        return None

    def finish(self, due: Merge, row: Row) -> None:
        """Writes what `due.row()` computed."""
        state = self._writer(due.end)
        self._insert(due.level, due.end, row)
        state.extents[due.level].merged = due.end

    # ------------------------------------------------------------------------------------------------ traces

    def add_trace(self, time: float, subject: str, trace: bytes) -> None:
        """A serialised pb.Trace; the newest of a subject are kept, within the bytes for all. Too large a one is ignored."""
        now = milliseconds(time)
        if not now or len(trace) > TRACE_BYTES_MAX or not _SUBJECT.fullmatch(subject):
            return
        state = self._writer(now)
        self._store.write("INSERT INTO gazer_traces VALUES (NULL, ?, ?, ?)", [(time, subject, trace)])
        state.traces += len(trace)
        query = "SELECT id, length(trace) FROM gazer_traces WHERE subject=? ORDER BY id DESC LIMIT ? OFFSET ?"
        old = self._store.rows(query, (subject, PRUNED_AT_ONCE, TRACES_KEPT))
        if state.traces > TRACES_BYTES_MAX:
            old += self._store.rows("SELECT id, length(trace) FROM gazer_traces ORDER BY id LIMIT ?", (PRUNED_AT_ONCE,))
        for number, size in dict(old).items():
            self._store.write("DELETE FROM gazer_traces WHERE id=?", [(number,)])
            state.traces -= size

    def traces(self, subject: str = "") -> list[tuple[float, str, pb.Trace]]:
        """(Unix seconds, trainer, trace), oldest first; of one trainer or of all."""
        if not self._exists():
            return []
        query = "SELECT time, subject, trace FROM gazer_traces WHERE subject=? OR ?='' ORDER BY id"
        return [
            (time, name, pb.Trace.FromString(data)) for time, name, data in self._store.rows(query, (subject, subject))
        ]

    # ------------------------------------------------------------------------------------------------ reading

    def subjects(self) -> list[str]:
        """Names of all of which something was ever recorded, in order of their first sample."""
        return list(dict.fromkeys(row[1] for row in self._known()))

    def query(
        self, subjects: Sequence[str] = (), metrics: Sequence[str] = (), since: float = 0.0, until: float = 0.0,
        points: int = 500,
    ) -> list[Line]:  # fmt: skip
        """A line per subject and metric that has values in the window.

        Args:
            subjects, metrics: names; none: all.
            since, until: Unix seconds; 0: from the start, to the newest.
            points: per line, at most; fewer where so many lines are asked for that it would be millions.
        """
        wanted, chosen = frozenset(subjects), frozenset(metrics)
        known = {number: (name, tuple(columns.split())) for number, name, columns in self._known()}
        lines = {
            (name, metric): None
            for name, columns in known.values() if not wanted or name in wanted
            for metric in columns if not chosen or metric in chosen
        }  # fmt: skip
        window = (round(1000 * max(0.0, since)), round(1000 * until) if until > 0 else 0)
        return read_lines(
            self._store, [(level.table, level.step) for level in LEVELS], known, list(lines), window, points
        )

    def _known(self) -> list[tuple[int, str, str]]:
        if not self._exists():
            return []
        return [
            (row[0], row[1], row[2])
            for row in self._store.rows("SELECT id, name, metrics FROM gazer_subjects ORDER BY id")
        ]

    def _exists(self) -> bool:
        return bool(self._store.rows("SELECT 1 FROM sqlite_master WHERE type='table' AND name='gazer_subjects'"))

    # ------------------------------------------------------------------------------------------------ the tables

    def _writer(self, now: int) -> _State:
        """What a writer knows; read from the tables at first."""
        if self._state is None:
            extents = []
            for level in LEVELS:
                query = f"SELECT coalesce(sum(length(subjects) + length(samples)), 0) FROM {level.table}"  # nosec B608 # the names are ours
                oldest, newest = extent_of(self._store, level.table)
                until = now // level.step * level.step if level.step else 0
                extents.append(_Extent(self._store.rows(query)[0][0], oldest, newest, min(newest, until)))
            traces = self._store.rows("SELECT coalesce(sum(length(trace)), 0) FROM gazer_traces")[0][0]
            widths = {number: len(columns.split()) for number, _, columns in self._known()}
            self._state = _State(extents, traces, widths=widths)
        return self._state

    def _insert(self, number: int, time: int, row: Row) -> None:
        self._delete(number, f"time = {time}")
        self._store.write(f"INSERT INTO {LEVELS[number].table} VALUES (?, ?, ?)", [(time, row.subjects, row.samples)])  # nosec B608 # the names are ours
        extent = self._writer(time).extents[number]
        extent.bytes += row.size
        extent.oldest = min(extent.oldest or time, time)
        extent.newest = max(extent.newest, time)

    def _prune(self, number: int, now: int) -> None:
        """Removes the oldest rows when there is reason to; and those of a clock that was far ahead."""
        level, extent = LEVELS[number], self._writer(now).extents[number]
        kept = round(1000 * level.kept_seconds)
        if extent.newest > now + kept:
            self._delete(number, f"time > {now + kept}")
        if extent.bytes > level.bytes_max:
            self._delete(number, "TRUE")
        elif 0 < extent.oldest < now - kept:
            self._delete(number, f"time < {now - kept}")

    def _delete(self, number: int, where: str) -> None:
        """Rows of a level, the oldest first, a few at a time."""
        table, state = LEVELS[number].table, self._state
        query = f"SELECT time, length(subjects) + length(samples) FROM {table} WHERE {where} ORDER BY time LIMIT ?"  # nosec B608 # the names are ours
        found = self._store.rows(query, (PRUNED_AT_ONCE,))
        if not found or state is None:
            return
        self._store.write(f"DELETE FROM {table} WHERE time=?", [(time,) for time, _ in found])  # nosec B608 # the names are ours
        extent = state.extents[number]
        extent.bytes -= sum(size for _, size in found)
        extent.oldest, extent.newest = extent_of(self._store, table)


def milliseconds(time: float) -> int:
    """Unix seconds as milliseconds; 0 for what is no time of a sample."""
    return round(1000 * time) if 0 < time < 1e11 else 0
