"""Durable state of the AIMaster: one SQLite file in WAL mode, readable by others while it runs and after it died.

Facts are JSON in narrow tables: few columns are ever searched. Writes are small and synchronous: they happen on changes
of membership and state, never per heartbeat. A killed process loses nothing; only COMMIT also waits for the disk.

The AIMaster works on a copy in memory, and the file follows it (`storefile`), normally within the same call. While the file
cannot be written nothing here fails or stands still: reads, heartbeats and status go on. Who is about to act on what it
has written waits until the store is not `behind` (`Job.stored`, `after_commit`).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from deeprec_ext.aimaster.core.records import Failure, RoleRecord, Scaling
from deeprec_ext.aimaster.store.storefile import Statement, StoreFile
from deeprec_ext.decoding import built
from deeprec_ext.errors import DeepRecError
from deeprec_ext.gazer import series
from deeprec_ext.units import saturated

T = TypeVar("T")
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
QUARANTINED_MAX = 500

SCHEMA_VERSION = 4
VIEWS_KEPT = 200

EVENTS_KEPT, SCALINGS_KEPT, FAILURES_KEPT = 100_000, 5_000, 5_000
"""The newest ones; about 30, 5 and 2 MB. Jobs run for months, and a job of 1 000 workers has an event of each for every
change."""

FORGET_EVERY = 1000
"""So many more are kept before the oldest go, all at once."""

_SCHEMA = """
CREATE TABLE meta     (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE blobs    (key TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE events   (sequence INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, type TEXT NOT NULL,
                       role TEXT NOT NULL, epoch INTEGER NOT NULL, json TEXT NOT NULL);
CREATE TABLE scalings (id INTEGER PRIMARY KEY AUTOINCREMENT, json TEXT NOT NULL, moved BLOB);
CREATE TABLE views    (epoch INTEGER PRIMARY KEY, time REAL NOT NULL, view BLOB NOT NULL);
CREATE TABLE roles    (name TEXT PRIMARY KEY, json TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE fenced   (incarnation TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE failures (id INTEGER PRIMARY KEY AUTOINCREMENT, json TEXT NOT NULL);
CREATE TABLE totals   (incarnation TEXT PRIMARY KEY, examples INTEGER NOT NULL) WITHOUT ROWID;
"""
_LEDGER = """
CREATE TABLE ledger_datasets (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, declaration BLOB NOT NULL,
                              json TEXT NOT NULL, pending BLOB NOT NULL);
CREATE TABLE ledger_files    (dataset INTEGER NOT NULL, file INTEGER NOT NULL, shards BLOB NOT NULL,
                              PRIMARY KEY (dataset, file));
CREATE TABLE ledger_epochs   (dataset INTEGER NOT NULL, number INTEGER NOT NULL, cursor INTEGER NOT NULL,
                              issued INTEGER NOT NULL, aside INTEGER NOT NULL, PRIMARY KEY (dataset, number)) WITHOUT ROWID;
CREATE TABLE ledger_visits   (dataset INTEGER NOT NULL, epoch INTEGER NOT NULL, rank INTEGER NOT NULL,
                              records INTEGER NOT NULL, done INTEGER NOT NULL, lease INTEGER NOT NULL,
                              incarnation TEXT NOT NULL, sequence INTEGER NOT NULL,
                              PRIMARY KEY (dataset, epoch, rank)) WITHOUT ROWID;
CREATE TABLE ledger_replayed (dataset INTEGER NOT NULL, incarnation TEXT NOT NULL, records INTEGER NOT NULL,
                              PRIMARY KEY (dataset, incarnation)) WITHOUT ROWID;
"""
_TABLES = "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%'"
HISTORY = tuple(
    "events failures totals scalings gazer_subjects gazer_samples gazer_minutes gazer_tens gazer_traces".split()
)
"""Tables without which the job goes on as well: what was, and not what is."""
_ASIDE = """
CREATE TABLE set_aside (place TEXT NOT NULL, key TEXT NOT NULL, value BLOB, why TEXT NOT NULL);
"""
"""What was stored and cannot be read back, for whoever wants to know why; nobody reads it again."""

MIGRATIONS = {0: _SCHEMA, 1: _LEDGER, 2: series.SCHEMA, 3: _ASIDE}
"""What leads from a version to the next one."""


class StoreError(DeepRecError):
    """The store cannot be used; the message says what to do."""


class Store:
    """All of it. One writer: the AIMaster's event loop."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Raises StoreError; sqlite3.Error or OSError where the file cannot be opened or read now."""
        self._path, self._read_only = path, read_only
        self.quarantined: list[str] = []
        """Of what could not be read back, and is set aside: where it was and why, one line each; not told yet."""
        if read_only and not path.exists():
            raise StoreError(f"{path} does not exist: this is no run directory, or its AIMaster never started")
        if read_only:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._check(path)
            return
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._file = StoreFile(path, self._db)
        self._depth = 0
        self._said: list[Statement] = []  # of the transaction under way
        self._then: list[Callable[[], None]] = []  # likewise
        self._waiting: list[Callable[[], None]] = []  # until it is written
        for old in range(self._check(path), SCHEMA_VERSION):
            with self.transaction():
                for query in MIGRATIONS[old].split(";"):
                    if query.strip():
                        self._run(query)
                self._run(f"PRAGMA user_version={old + 1}")

    def _check(self, path: Path) -> int:
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version > SCHEMA_VERSION:
            raise StoreError(f"{path} has schema {version}, known is {SCHEMA_VERSION}: use a newer deeprec-ext")
        return version

    def close(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()
        self._db.close()

    # ------------------------------------------------------------------------------------------------ writing

    @property
    def behind(self) -> str:
        """Why the file does not have everything; empty: it has."""
        return self._file.behind

    def try_again(self) -> None:
        """Writes what waits, if that is possible; call it now and then."""
        self._file.try_again()
        self._tell()

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """All or nothing. `durable`: also survives a power cut. Nested ones join the outermost."""
        if self._depth:
            yield
            return
        self._db.execute("BEGIN IMMEDIATE")
        self._depth = 1
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._said, self._then = [], []
            raise
        finally:
            self._depth = 0
        said, self._said = self._said, []
        for function in self._then:
            self._wait(function)
        self._then = []
        self._file.append(said, durable=durable)
        self._tell()

    def after_commit(self, function: Callable[[], None]) -> None:
        """Calls it when what has been written is there to stay: now, at the end of the transaction (not if that fails), or
        when the file can be written again. The same function is called once, however often it was given meanwhile."""
        if self._depth:
            self._then.append(function)
        else:
            self._wait(function)
            self._tell()

    def _wait(self, function: Callable[[], None]) -> None:
        if function not in self._waiting:
            self._waiting.append(function)

    def _tell(self) -> None:
        while self._waiting and not self._depth and not self.behind:
            self._waiting.pop(0)()

    def _run(self, query: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        cursor = self._db.execute(query, values)
        self._note(query, [values])
        return cursor

    def _run_many(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        rows = list(rows)
        if rows:
            self._db.executemany(query, rows)
            self._note(query, rows)

    def _note(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        if self._depth:
            self._said.append((query, rows))
        else:
            self._file.append([(query, rows)])

    def checkpoint(self) -> None:
        """Copies the write-ahead log into the database. From any thread; commits go on meanwhile. Raises sqlite3.Error."""
        self._file.checkpoint()

    def copy(self) -> None:
        """Writes the copy beside the file. From any thread. Raises sqlite3.Error, OSError."""
        self._file.copy()

    def take_over(self, path: Path, tables: Iterable[str] = ()) -> None:
        """Rows of another store that this one lacks: of these tables, or of all. Raises sqlite3.Error, StoreError."""
        with contextlib.closing(Store(path, read_only=True)) as other, self.transaction():
            ours = {row[0] for row in self.rows(_TABLES)}
            for table in sorted(ours.intersection(tables or ours)):
                if other.has_table(table) and (rows := other.rows(f"SELECT * FROM {table}")):  # nosec B608 # ours
                    marks = ", ".join("?" * len(rows[0]))
                    self.write(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)  # nosec B608 # ours

    def reader(self) -> Store:
        """Another connection that only reads, for a thread; close it."""
        return Store(self._path, read_only=True)

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """For parts with tables of their own (the data ledger)."""
        return self._db.execute(query, values).fetchall()

    def write(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Once per row."""
        self._run_many(query, rows)

    def has_table(self, name: str) -> bool:
        """A store that is only read may be of an older version."""
        return bool(self.rows("SELECT 1 FROM sqlite_master WHERE type='table' AND name=?", (name,)))

    # ------------------------------------------------------------------------------------------------ quarantined

    @property
    def is_read_only(self) -> bool:
        return self._read_only

    def quarantine(self, place: str, key: str, value: str | bytes, why: object, delete: str = "") -> None:
        """What cannot be read back goes where nobody reads it again. In a store that is only read it is passed over.

        Args:
            place: table, or what it is; key: of the row in it.
            delete: statement that takes it away from where it was, for `key`.
        """
        self.quarantined.append(f"{place} {key}: {why}"[:QUARANTINED_MAX])
        if not self._read_only:
            with self.transaction():
                self._run("INSERT INTO set_aside VALUES (?, ?, ?, ?)", (place, key, value, str(why)[:QUARANTINED_MAX]))
                if delete:
                    self._run(delete, (key,))

    def _sound(self, table: str, key: str, rows: Iterable[tuple[Any, str]], read: Callable[[str], T]) -> list[T]:
        """The rows of (key, text) that can be read."""
        found = []
        for identifier, text in list(rows):
            try:
                found.append(read(text))
            except UNREADABLE as error:
                if self._read_only:
                    raise  # who only looks tells that, and changes nothing
                delete = f"DELETE FROM {table} WHERE {key}=?"  # nosec B608 # the names are ours
                self.quarantine(table, str(identifier), text, error, delete)
        return found

    # ------------------------------------------------------------------------------------------------ key, value

    def get(self, key: str, default: Any = None) -> Any:
        row = self._db.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()
        try:
            return default if row is None else json.loads(row[0])
        except UNREADABLE as error:
            if self._read_only:
                raise
            self.quarantine("meta", key, row[0], error, "DELETE FROM meta WHERE key=?")
            return default

    def read(self, key: str, read: Callable[[Any], T], default: T) -> T:
        """What `read` makes of the value. One of which it makes nothing is set aside."""
        if (value := self.get(key)) is None:
            return default
        try:
            return read(value)
        except UNREADABLE as error:
            if self._read_only:
                raise
            self.quarantine("meta", key, json.dumps(value), error, "DELETE FROM meta WHERE key=?")
            return default

    def put(self, **values: Any) -> None:
        rows = [(key, json.dumps(value)) for key, value in values.items()]
        self._run_many("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)

    def everything(self) -> dict[str, Any]:
        """All keys with their values."""
        keys = [key for (key,) in self._db.execute("SELECT key FROM meta").fetchall()]
        return {key: value for key in keys if (value := self.get(key, self)) is not self}

    def blob(self, key: str) -> bytes:
        row = self._db.execute("SELECT value FROM blobs WHERE key=?", (key,)).fetchone()
        return b"" if row is None else bytes(row[0])

    def put_blob(self, key: str, value: bytes) -> None:
        self._run("INSERT OR REPLACE INTO blobs VALUES (?, ?)", (key, value))

    def next_incarnation(self) -> int:
        """A number that grows with every start of the AIMaster on this store."""
        with self.transaction(durable=True):
            incarnation = int(self.get("aimaster_incarnation", 0)) + 1
            self.put(aimaster_incarnation=incarnation)
        return incarnation

    # ------------------------------------------------------------------------------------------------ events

    def add_event(self, time: float, type_: str, role: str, epoch: int, fields: Mapping[str, Any]) -> int:
        row = (time, type_, role, epoch, json.dumps(fields))
        sequence = int(self._run("INSERT INTO events VALUES (NULL, ?, ?, ?, ?, ?)", row).lastrowid or 0)
        if sequence % FORGET_EVERY == 0:
            self._run("DELETE FROM events WHERE sequence <= ?", (sequence - EVENTS_KEPT,))
        return sequence

    def events(self, after: int, limit: int = 500) -> list[tuple[int, float, str, str, int, str]]:
        """(sequence, time, type, role, epoch, json), oldest first."""
        query = "SELECT * FROM events WHERE sequence > ? ORDER BY sequence LIMIT ?"
        return self._db.execute(query, (after, limit)).fetchall()

    def newest_event(self) -> int:
        """Its sequence number; 0: there is none."""
        return int(self.rows("SELECT coalesce(max(sequence), 0) FROM events")[0][0])

    def newest_time(self) -> float:
        """Unix seconds of the newest event; 0: there is none."""
        row = self._db.execute("SELECT time FROM events ORDER BY sequence DESC LIMIT 1").fetchone()
        return 0.0 if row is None else float(row[0])

    def continue_events(self, last: int) -> None:
        """The next event gets a higher number than `last`: those before are in another place."""
        self._run("INSERT INTO sqlite_sequence SELECT 'events', 0 WHERE NOT EXISTS "
                         "(SELECT 1 FROM sqlite_sequence WHERE name='events')")  # fmt: skip
        self._run("UPDATE sqlite_sequence SET seq=max(seq, ?) WHERE name='events'", (last,))

    # ------------------------------------------------------------------------------------------------ scalings

    def next_scaling_id(self) -> int:
        identifier = int(self.get("scalings", 0)) + 1
        self.put(scalings=identifier)
        if identifier % FORGET_EVERY == 0:
            self._run("DELETE FROM scalings WHERE id <= ?", (identifier - SCALINGS_KEPT,))
        return identifier

    def save_scaling(self, scaling: Scaling, moved: bytes | None = None) -> None:
        """`moved`: the variables that move, a serialised Catalogue; None keeps what is there."""
        query = (
            "INSERT INTO scalings VALUES (?, ?, ?) ON CONFLICT(id) DO UPDATE SET json=excluded.json, "
            "moved=coalesce(excluded.moved, moved)"
        )
        self._run(query, (scaling.id, scaling.to_json(), moved))

    def scalings(self) -> list[Scaling]:
        rows = self._db.execute("SELECT id, json FROM scalings ORDER BY id")
        return self._sound("scalings", "id", rows, Scaling.from_json)

    def newest_scalings(self, count: int) -> list[str]:
        """As `Scaling.to_json` wrote them, oldest first."""
        rows = self._db.execute("SELECT json FROM scalings ORDER BY id DESC LIMIT ?", (count,)).fetchall()
        return [row[0] for row in reversed(rows)]

    def moved(self, scaling_id: int) -> bytes:
        row = self._db.execute("SELECT moved FROM scalings WHERE id=?", (scaling_id,)).fetchone()
        return b"" if row is None or row[0] is None else bytes(row[0])

    # ------------------------------------------------------------------------------------------------ membership

    def save_view(self, epoch: int, time: float, view: bytes) -> None:
        self._run("INSERT OR REPLACE INTO views VALUES (?, ?, ?)", (epoch, time, view))
        self._run("DELETE FROM views WHERE epoch <= ?", (epoch - VIEWS_KEPT,))

    def save_role(self, record: RoleRecord) -> None:
        self._run("INSERT OR REPLACE INTO roles VALUES (?, ?)", (record.name, json.dumps(asdict(record))))

    def roles(self) -> list[RoleRecord]:
        rows = self._db.execute("SELECT name, json FROM roles")
        return self._sound("roles", "name", rows, lambda text: built(RoleRecord, json.loads(text)))

    def fence(self, incarnation: str, name: str) -> None:
        self._run("INSERT OR IGNORE INTO fenced VALUES (?, ?)", (incarnation, name))

    def is_fenced(self, incarnation: str) -> bool:
        return self._db.execute("SELECT 1 FROM fenced WHERE incarnation=?", (incarnation,)).fetchone() is not None

    # ------------------------------------------------------------------------------------------------ measurements

    def save_failure(self, failure: Failure) -> Failure:
        """Inserts it when its id is 0; returns it with its id."""
        if failure.id == 0:
            identifier = int(self._run("INSERT INTO failures VALUES (NULL, '{}')").lastrowid or 0)
            failure = replace(failure, id=identifier)
            if identifier % FORGET_EVERY == 0:
                self._run("DELETE FROM failures WHERE id <= ?", (identifier - FAILURES_KEPT,))
        self._run("UPDATE failures SET json=? WHERE id=?", (json.dumps(asdict(failure)), failure.id))
        return failure

    def insert_failure(self, failure: Failure) -> None:
        """One of another store, with the id it had there."""
        row = (failure.id, json.dumps(asdict(failure)))
        self._run("INSERT OR REPLACE INTO failures VALUES (?, ?)", row)

    def failures(self, newest: int = FAILURES_KEPT + FORGET_EVERY) -> list[Failure]:
        """The newest, oldest first; all that are kept, if no number is given."""
        rows = self._db.execute("SELECT id, json FROM failures ORDER BY id DESC LIMIT ?", (newest,)).fetchall()
        return self._sound("failures", "id", reversed(rows), lambda text: built(Failure, json.loads(text)))

    def save_totals(self, examples: Iterable[tuple[str, int]]) -> None:
        """Examples per incarnation, the highest ever told."""
        query = (
            "INSERT INTO totals VALUES (?, ?) ON CONFLICT(incarnation) DO UPDATE SET "
            "examples=max(examples, excluded.examples)"
        )
        with self.transaction():
            self._run_many(query, examples)

    def totals(self) -> dict[str, int]:
        """Examples per incarnation."""
        return dict(self._db.execute("SELECT incarnation, examples FROM totals").fetchall())

    def examples(self) -> int:
        return saturated(sum(self.totals().values()))  # SQLite's sum raises beyond 2^63
