"""The store's file, which follows what the store has in memory. While it cannot be written it is *behind*.

Whatever the reason is (a full disk, a directory without write permission, an input/output error, a file that was deleted or
damaged), what is to be written waits in order, and is written when that is possible again. What waits is bounded: beyond
`WAITING_BYTES_MAX` it is forgotten, and the whole store is written instead. Nobody else writes this file.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

WAITING_BYTES_MAX = 8 << 20
"""Of statements that wait."""

AGAIN_SECONDS = 0.5
"""How soon a write that failed is tried again."""

BUSY_SECONDS = 0.5
"""How long a lock of somebody else's is waited for: the AIMaster stands still meanwhile."""

CHECKPOINT_PAGES = 16_384
"""64 MB of the write-ahead log: then a commit copies it into the database itself, and waits for the disk. `checkpoint` does
that earlier, in a thread."""

_PROBE_BYTES = 64 << 10

TRANSACTIONS = "transactions"
"""Key of their number among what the store keeps by key."""

_COUNT = f"INSERT OR REPLACE INTO meta VALUES ('{TRANSACTIONS}', ?)"

Statement = tuple[str, Sequence[Sequence[Any]]]
"""SQL, and the values of each time it is run."""


class StoreFile:
    """Raises sqlite3.Error or OSError when it is opened and read; never when it is written."""

    def __init__(self, path: Path, memory: sqlite3.Connection, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Reads everything into `memory`."""
        self.path, self._memory, self._clock = path, memory, clock
        self.behind = ""  # why it is; empty: it is not
        self.since = 0.0  # monotonic
        self._waiting: deque[tuple[Sequence[Statement], bool]] = deque()
        self._bytes = 0
        self._whole = False  # what waits is everything
        self._damaged = False
        self._tried = 0.0
        self._inode = 0
        self._count = 0  # transactions ever
        self._found_damage = ""  # by another thread
        self._db: sqlite3.Connection | None = None
        try:
            self._read()
        except sqlite3.DatabaseError as error:
            self._shut()
            if not is_damage(error):
                raise
            log.error("%s is damaged (%s) and is put aside as %s", path, error, damaged(path).name)
            quarantine(path)
            self._read()

    def _read(self) -> None:
        db = self._open()
        if broken := damage(db):
            raise sqlite3.DatabaseError(f"malformed: {broken}")
        db.backup(self._memory)
        self._count = count_of(self._memory)

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                db.execute("PRAGMA journal_mode=WAL")
                db.execute("PRAGMA synchronous=NORMAL")
                db.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
                self.path.chmod(0o600)
                self._inode = self.path.stat().st_ino
            except BaseException:
                db.close()
                raise
            self._db = db
        return self._db

    def _shut(self) -> None:
        """The next write opens it anew."""
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    # ------------------------------------------------------------------------------------------------ writing

    def append(self, statements: Sequence[Statement], *, durable: bool = False) -> None:
        """One transaction: written now, or when that is possible. `durable`: also survives a power cut."""
        if not statements:
            return
        self._count += 1
        counted: Statement = (_COUNT, [(str(self._count),)])
        self._memory.executemany(*counted)
        statements = [*statements, counted]
        if not self._whole:
            self._waiting.append((statements, durable))
            self._bytes += sum(_size(one) for one in statements)
            if self._bytes > WAITING_BYTES_MAX:
                self._write_whole()
        if not self.behind:
            self.write()

    def write(self) -> None:
        """Everything that waits, if that is possible."""
        self._tried = self._clock()
        try:
            if self._whole:
                self._rewrite()
            if self._waiting:  # in one transaction: of many small ones each writes whole pages
                statements = [one for some, _ in self._waiting for one in some]
                self._commit(statements, any(durable for _, durable in self._waiting))
                self._waiting.clear()
                self._bytes = 0
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
        else:
            self._goes_on()
            with contextlib.suppress(OSError):
                _note_count(self.path, self._count)

    def try_again(self) -> None:
        """If it is behind, and not too soon. Notices also that the file was deleted."""
        if self.behind:
            if self._clock() - self._tried >= AGAIN_SECONDS:
                self.write()
        elif self._found_damage:
            self._failed(sqlite3.DatabaseError(self._found_damage))
            self._found_damage = ""
            self.write()
        elif not self._is_there():
            self._failed(FileNotFoundError(f"{self.path.name} was deleted, or another one lies in its place"))
            self._write_whole()
            self.write()

    def _commit(self, statements: Sequence[Statement], durable: bool) -> None:
        db = self._open()
        if durable:
            db.execute("PRAGMA synchronous=FULL")
        try:
            db.execute("BEGIN IMMEDIATE")
            for query, rows in statements:
                db.executemany(query, rows)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:  # SQLite rolls back by itself when the disk is full
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
            raise
        finally:
            if durable:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("PRAGMA synchronous=NORMAL")

    def _rewrite(self) -> None:
        """All of it: into the file that there is, in one transaction, or into a new one."""
        if self._damaged:
            quarantine(self.path)
            self._damaged = False
        db = self._open()
        db.execute("PRAGMA synchronous=FULL")
        self._memory.backup(db)
        db.execute("PRAGMA synchronous=NORMAL")
        self._whole = False

    def _write_whole(self) -> None:
        self._whole = True
        self._waiting.clear()
        self._bytes = 0

    def _failed(self, error: Exception) -> None:
        self._shut()
        if not self.behind:
            self.since = self._clock()
            log.error("%s cannot be written: %s; it waits, and is tried again", self.path, error)
        self.behind = reason(self.path, error)
        if is_damage(error) or isinstance(error, (sqlite3.IntegrityError, sqlite3.ProgrammingError)):
            self._damaged = True
            self._write_whole()
        elif not self._is_there():
            self._write_whole()

    def _goes_on(self) -> None:
        if self.behind:
            log.warning("%s is written again, after %.1f s", self.path, self._clock() - self.since)
        self.behind = ""

    def _is_there(self) -> bool:
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False
        except OSError:
            return True  # nobody knows

    # ------------------------------------------------------------------------------------------------ the rest

    def checkpoint(self) -> None:
        """Copies the write-ahead log into the database. From any thread; commits go on meanwhile. Raises sqlite3.Error."""
        if self.behind:
            return
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def copy(self) -> None:
        """Writes the copy that is kept beside the file, whole or not at all. From any thread. Raises sqlite3.Error, OSError."""
        draft = kept_copy(self.path).with_name(f".{kept_copy(self.path).name}.{os.getpid()}")
        try:
            with contextlib.closing(sqlite3.connect(draft)) as new:
                os.chmod(draft, 0o600)
                with contextlib.closing(sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True)) as db:
                    if broken := damage(db):
                        self._found_damage = f"malformed: {broken}"
                        raise sqlite3.DatabaseError(broken)
                    db.backup(new)
                new.execute("PRAGMA journal_mode=DELETE")
            os.replace(draft, kept_copy(self.path))
        finally:
            for suffix in ("", "-wal", "-shm", "-journal"):
                draft.with_name(draft.name + suffix).unlink(missing_ok=True)

    def close(self) -> None:
        if self.behind:
            self.write()
        if self.behind:
            log.error("%s: what was decided and done in the last %.1f s is lost: %s", self.path,
                      self._clock() - self.since, self.behind)  # fmt: skip
        self._shut()


def reason(path: Path, error: Exception) -> str:
    """In the words of the operating system, where it tells: SQLite calls many things an unreachable file."""
    said, probe = str(error) or type(error).__name__, path.with_name(f".{path.name}.probe-{os.getpid()}")
    try:
        with probe.open("wb", buffering=0) as file:
            if file.write(bytes(_PROBE_BYTES)) < _PROBE_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as found:
        return f"{found.strerror} ({said})"
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return said


def is_damage(error: Exception) -> bool:
    """Whether the file itself is damaged, and not only out of reach."""
    text = str(error)
    return isinstance(error, sqlite3.DatabaseError) and any(
        word in text for word in ("malformed", "not a database", "unsupported file format")
    )


def damage(db: sqlite3.Connection) -> str:
    """What is wrong with a database; empty: nothing. Reads all of it. Raises sqlite3.DatabaseError."""
    found = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    return "" if found == "ok" else found


def count_of(db: sqlite3.Connection) -> int:
    """Transactions that this store has seen; 0 for an empty one."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name='meta'").fetchone():
        return 0
    row = db.execute("SELECT value FROM meta WHERE key=?", (TRANSACTIONS,)).fetchone()
    return 0 if row is None else int(row[0])


def is_empty(path: Path) -> bool:
    """Whether a store has no table at all. Raises sqlite3.Error."""
    with contextlib.closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as db:
        return not db.execute("SELECT 1 FROM sqlite_master").fetchone()


def lacks(path: Path) -> int:
    """How many transactions a store has lost that were committed: when its write-ahead log is damaged, SQLite goes back to what
    was before, and says nothing. Their number is written beside it after each commit. Raises sqlite3.Error."""
    try:
        noted = int(_counter(path).read_bytes())
    except (OSError, ValueError):
        return 0
    with contextlib.closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as db:
        return max(0, noted - count_of(db))


def _counter(path: Path) -> Path:
    return path.with_name(path.name + ".count")


def _note_count(path: Path, count: int) -> None:
    """In place, so that it needs no room of a full disk. Raises OSError."""
    descriptor = os.open(_counter(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, b"%020d" % count, 0)
    finally:
        os.close(descriptor)


def kept_copy(path: Path) -> Path:
    """Where a copy of the store is, a minute old or as it was when the AIMaster ended."""
    return path.with_name(path.name + ".copy")


def damaged(path: Path) -> Path:
    """Where a damaged store is put aside."""
    return path.with_name(path.name + ".damaged")


def quarantine(path: Path) -> None:
    """A damaged store, with what belongs to it, in place of the one before. Raises OSError."""
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            os.replace(part, damaged(path).with_name(damaged(path).name + suffix))


def _size(statement: Statement) -> int:
    query, rows = statement
    return len(query) + sum(
        sum(len(value) if isinstance(value, (str, bytes)) else 16 for value in row) + 64 for row in rows
    )
