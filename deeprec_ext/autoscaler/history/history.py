"""What finished jobs needed and how fast they were: an SQLite file of the user, from which the next job's size is estimated.

One row per job, with what its model was like, and a few rows of throughput, one per size it had. Bounded: the oldest jobs go.
Several jobs may write at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deeprec_ext.autoscaler.history.possible import ALLREDUCE, PS, WINDOWS_MAX, complaint
from deeprec_ext.autoscaler.history.use import Brought, Use
from deeprec_ext.autoscaler.observe.observed import Model, Window
from deeprec_ext.decoding import built
from deeprec_ext.errors import UsageError

SCHEMA_VERSION = 1
JOBS_MAX = 500
FILE_BYTES_MAX = 64 << 20
"""A file larger than this is none of ours: 500 jobs fill a tenth of it."""

_BUSY_SECONDS = 30.0
_APPLICATION = 0x44_52_45_48
"""`DREH` in the file's header: what has none is another program's database."""

_SCHEMA = (
    "CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, finished REAL NOT NULL, script TEXT NOT NULL, "
    "json TEXT NOT NULL)",
    "CREATE TABLE windows (job INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE, json TEXT NOT NULL)",
    "CREATE INDEX windows_of ON windows (job)",
)


class HistoryError(UsageError):
    """The history cannot be used; the message says what to do."""


class NoHistoryError(HistoryError):
    """Finished jobs are not kept: nobody has asked for it, or somebody has asked that they are not."""

    def __init__(self) -> None:
        super().__init__("no history of finished jobs is kept")


@dataclass(frozen=True)
class Fitted:
    """The throughput model that the sizes of one job gave. Coefficients as `formula.NAMES` has them, none: too few sizes."""

    coefficients: tuple[float, ...] = ()
    mape_holdout: float | None = (
        None  # mean absolute error at sizes that it was not shown, relative; None: not measured
    )


@dataclass(frozen=True)
class Finished:
    """One job that has ended. `script`: what tells jobs of one script from others. Memory: the highest of any process.

    `fingerprint`: of its variables (`features.fingerprint_of`). `machine`: what tells the kind of host that all its PS and
    trainers ran on from others. Both empty: not known, or of several kinds. `ps_computed_bytes`, and of these
    `ps_stored_bytes`: of its fullest PS, as `memory_model` computes them from its variables for the fewest PS that it had; 0:
    not known. `ps_copied_bytes`: of the same PS, what a checkpoint copied of its tables; 0: none was written, or nobody knows.
    `computes`: kinds of the operations of its forward pass (`graph.describing`), sorted; none: not known.

    `strategy`: with PS (`ps`), or without (`allreduce`); a job of one says nothing of a job of the other. Without PS nothing is
    declared, `Model.batch_size` is the records of a step of all workers, and those of a window of one; `local_batch`: each
    worker was said to have a batch of its own.
    """

    script: str
    finished: float  # Unix seconds
    status: str
    seconds: float
    model: Model
    windows: tuple[Window, ...] = ()  # one per size, `seconds` long in all
    ps_memory_bytes: int = 0
    worker_memory_bytes: int = 0
    examples: int = 0
    backups: bool = True
    name: str = ""
    autoscaled: bool = False
    fitted: Fitted = field(default_factory=Fitted)
    use: Use = field(default_factory=Use)
    brought: Brought = field(default_factory=Brought)
    fingerprint: str = ""
    machine: str = ""
    ps_computed_bytes: int = 0
    ps_stored_bytes: int = 0
    ps_copied_bytes: int = 0
    computes: tuple[str, ...] = ()
    strategy: str = PS
    local_batch: bool = False

    @property
    def sums(self) -> bool:
        """Whether it had no PS: its workers summed what they had."""
        return self.strategy == ALLREDUCE


def of_strategy(jobs: Sequence[Finished], *, sums: bool) -> list[Finished]:
    """Those that say something of a job with PS, or (`sums`) of one without."""
    return [job for job in jobs if job.sums is sums]


def default_path(environment: dict[str, str] | None = None) -> Path:
    """Below the user's data directory (XDG base directories)."""
    values = dict(os.environ) if environment is None else environment
    base = values.get("XDG_DATA_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share") / "deeprec-ext" / "history.db"


class History:
    """An open file. Made when it is missing, unless `read_only`: then it is empty. Raises HistoryError."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path, self.left_out = path, 0
        self._db: sqlite3.Connection | None = None
        if read_only and not path.exists():
            return
        with self._errors():
            if path.exists() and path.stat().st_size > FILE_BYTES_MAX:
                raise HistoryError(
                    f"{path} has {path.stat().st_size >> 20} MiB: this is no history of jobs; choose another"
                )
            if not read_only:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
            self._db.execute("PRAGMA foreign_keys=ON")
            self._check_version(make=not read_only)

    def _check_version(self, *, make: bool) -> None:
        assert self._db is not None
        if make:
            self._make()
        version, application, empty = self._marks()
        if empty and not version:  # somebody is about to make it
            self.close()
            return
        if application != _APPLICATION:
            self.close()
            raise HistoryError(f"{self.path} is a database of another program; choose another file with --history")
        if version != SCHEMA_VERSION:
            self.close()
            raise HistoryError(
                f"{self.path} has version {version} of the history, known is {SCHEMA_VERSION}: use the deeprec-ext that wrote "
                "it, or another file with --history"
            )

    def _marks(self) -> tuple[int, int, bool]:
        """(version, whose it is, nothing in it)"""
        assert self._db is not None
        version, application = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id")
        )
        return version, application, not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

    def _make(self) -> None:
        """The tables, in an empty file. Two may come at once."""
        assert self._db is not None
        if self._marks()[2]:
            self._db.execute("BEGIN IMMEDIATE")
            if self._marks() == (0, 0, True):
                for statement in (
                    *_SCHEMA,
                    f"PRAGMA application_id={_APPLICATION}",
                    f"PRAGMA user_version={SCHEMA_VERSION}",
                ):
                    self._db.execute(statement)
            self._db.execute("COMMIT")
            self.path.chmod(0o600)

    def add(self, job: Finished) -> None:
        """Writes it, and forgets the oldest beyond JOBS_MAX."""
        assert self._db is not None
        values = dataclasses.asdict(dataclasses.replace(job, windows=()))
        windows = sorted(job.windows, key=lambda window: -window.seconds)[:WINDOWS_MAX]
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                row = (job.finished, job.script, json.dumps(values, allow_nan=False))
                number = self._db.execute("INSERT INTO jobs VALUES (NULL, ?, ?, ?)", row).lastrowid
                rows = [(number, json.dumps(dataclasses.asdict(window), allow_nan=False)) for window in windows]
                self._db.executemany("INSERT INTO windows VALUES (?, ?)", rows)
                kept = "SELECT id FROM jobs ORDER BY finished DESC, id DESC LIMIT ?"
                self._db.execute(f"DELETE FROM jobs WHERE id NOT IN ({kept})", (JOBS_MAX,))  # nosec B608 # the names are ours
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise

    def jobs(self) -> list[Finished]:
        """The newest first. Rows that cannot be read, or cannot be, are left out: `left_out` of them."""
        self.left_out = 0
        if self._db is None:
            return []
        found: list[Finished] = []
        with self._errors():
            windows: dict[int, list[str]] = {}
            for number, text in self._db.execute("SELECT job, json FROM windows ORDER BY rowid"):
                windows.setdefault(number, []).append(text)
            for number, text in self._db.execute(
                "SELECT id, json FROM jobs ORDER BY finished DESC, id DESC LIMIT ?", (JOBS_MAX,)
            ):
                try:
                    found.append(_finished(text, windows.get(number, [])))
                except (ValueError, TypeError, KeyError, RecursionError):
                    self.left_out += 1
        return found

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise HistoryError(
                f"the history of jobs {self.path} cannot be used ({error}); choose another file with --history"
            ) from error


def _finished(text: str, windows: list[str]) -> Finished:
    values = json.loads(text)
    values["windows"] = [json.loads(one) for one in windows]
    job = built(Finished, values, newer=True, measured=True)
    if why := complaint(job):
        raise ValueError(why)
    return job
