"""The rows of the history, in a database by URL: a file of SQLite, or PostgreSQL.

Everything is bounded: rows of a namespace, of all, their age; pages; waits for a connection, for a lock, for an answer.
Blocking: the service calls it in threads.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from deeprec_ext.autoscaler.history.history import Finished, HistoryError
from deeprec_ext.bounds import DIGITS
from deeprec_ext.history.record import Kept, RecordError, from_text, to_text
from deeprec_ext.history.tables import JOBS, VERSION_TABLE

MIGRATIONS = Path(__file__).with_name("migrations")
WAIT_SECONDS = 5
"""For a connection, a lock, an answer of the database."""

SILENT_SECONDS = 2.0 * WAIT_SECONDS
"""A PostgreSQL gives up a statement by itself before. One that has not by then is frozen, or its packets are lost."""

CONNECTIONS_MAX = 4
PAGE_MAX = 100
"""Rows of one answer."""

DELETED_AT_ONCE = 1_000
MIGRATION_LOCK = 0x44_52_45_48
"""Of PostgreSQL: of several services that start at once, one migrates."""

_WRITES = "writes"


@dataclass(frozen=True)
class Retention:
    """What is forgotten first. Seconds, rows, and bytes of records: a volume that is full lets nobody forget anything."""

    seconds: float = 365 * 86_400.0
    jobs_of_namespace: int = 2_000
    jobs: int = 100_000
    bytes: int = 2 << 30


class Database:
    """Open. Brought to the schema of this release where that is later. Raises HistoryError, and so does everything else."""

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        """Args:
        url: `sqlite:////directory/history.db`, `postgresql://user:password@host/name`.
        read_only: no schema is made or changed.
        """
        parsed = parsed_url(url)
        self.shown = parsed.render_as_string(hide_password=True)
        self._postgresql = parsed.get_backend_name() == "postgresql"
        self._engine = _postgresql(parsed) if self._postgresql else _sqlite(parsed)
        try:
            self._look_at_schema(change=not read_only)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._engine.dispose()

    # ------------------------------------------------------------------------------------------------ schema

    def _look_at_schema(self, *, change: bool) -> None:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        script = ScriptDirectory.from_config(config)
        with self._begin(writes=change) as connection:
            if change and self._postgresql:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
            context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
            there, ours = context.get_current_revision(), script.get_current_head()
            if there is not None and there not in {one.revision for one in script.walk_revisions()}:
                raise HistoryError(
                    f"the history {self.shown} is of a later release (schema {there[:DIGITS]}): start that one, or use "
                    "another database"
                )
            if there == ours:
                return
            if not change:
                raise HistoryError(
                    f"{self.shown} is no history of this release (schema {there or 'none'}): `deeprec-ext history` makes it one"
                )
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    # ------------------------------------------------------------------------------------------------ rows

    def add(self, namespace: str, uid: str, job: Finished, most: int = 0) -> bool:
        """False: it is there already, and stays as it is. Raises RecordError for what is no job.

        Args:
            most: jobs of this namespace that are kept: the oldest go at once. 0: `forget` sees to it.
        """
        text = to_text(job)
        row = {
            "namespace": namespace, "uid": uid, "finished": float(job.finished), "name": job.name, "script": job.script,
            "record": text,
        }  # fmt: skip
        try:
            with self._begin(writes=True) as connection:
                connection.execute(sa.insert(JOBS).values(row))
                if most:
                    mine = sa.select(JOBS.c.number).where(JOBS.c.namespace == namespace)
                    oldest = (
                        mine.order_by(JOBS.c.finished.desc(), JOBS.c.number.desc()).offset(most).limit(DELETED_AT_ONCE)
                    )
                    beyond = [number for (number,) in connection.execute(oldest)]
                    if beyond:
                        connection.execute(sa.delete(JOBS).where(JOBS.c.number.in_(beyond)))
        except IntegrityError:
            return False
        return True

    def jobs(
        self, *, namespace: str | None = None, script: str | None = None, before: str = "", limit: int = PAGE_MAX
    ) -> tuple[list[Kept], str]:
        """The newest first, and where the next page begins (empty: there is none). Rows that cannot be read are left out.

        Args:
            namespace: None: of all.
            before: what the page before has given.
            limit: at most so many, and at most PAGE_MAX.
        """
        limit = max(1, min(limit, PAGE_MAX))
        asked = sa.select(JOBS.c.number, JOBS.c.namespace, JOBS.c.finished, JOBS.c.record)
        if namespace is not None:
            asked = asked.where(JOBS.c.namespace == namespace)
        if script is not None:
            asked = asked.where(JOBS.c.script == script)
        if before:
            asked = asked.where(sa.tuple_(JOBS.c.finished, JOBS.c.number) < _place(before))
        asked = asked.order_by(JOBS.c.finished.desc(), JOBS.c.number.desc()).limit(limit + 1)
        with self._begin() as connection:
            rows = connection.execute(asked).all()
        found = []
        for number, whose, _, text in rows[:limit]:
            with contextlib.suppress(RecordError):
                found.append(Kept(number, whose, from_text(text)))
        last = rows[limit - 1] if len(rows) > limit else None
        return found, f"{last.finished!r}:{last.number}" if last is not None else ""

    def job(self, number: int) -> Kept | None:
        """None where there is none that can be read."""
        asked = sa.select(JOBS.c.namespace, JOBS.c.record).where(JOBS.c.number == number)
        with self._begin() as connection:
            row = connection.execute(asked).one_or_none()
        if row is None:
            return None
        with contextlib.suppress(RecordError):
            return Kept(number, row.namespace, from_text(row.record))
        return None

    def forget(self, retention: Retention, now: float) -> int:
        """Removes what is too old or too much, so many rows at once; returns how many. `now`: Unix seconds."""
        with self._begin(writes=True) as connection:
            aged = sa.select(JOBS.c.number).where(JOBS.c.finished < now - retention.seconds)
            beyond = (
                sa.select(JOBS.c.number).order_by(JOBS.c.finished.desc(), JOBS.c.number.desc()).offset(retention.jobs)
            )
            place = sa.func.row_number().over(
                partition_by=JOBS.c.namespace, order_by=[JOBS.c.finished.desc(), JOBS.c.number.desc()]
            )
            ranked = sa.select(JOBS.c.number, place.label("place")).subquery()
            crowded = sa.select(ranked.c.number).where(ranked.c.place > retention.jobs_of_namespace)
            bytes_ = sa.func.sum(sa.func.length(JOBS.c.record)).over(
                order_by=[JOBS.c.finished.desc(), JOBS.c.number.desc()]
            )
            sized = sa.select(JOBS.c.number, bytes_.label("bytes")).subquery()
            heavy = sa.select(sized.c.number).where(sized.c.bytes > retention.bytes)
            gone = 0
            for chosen in (aged, beyond, crowded, heavy):
                limited = chosen.limit(DELETED_AT_ONCE).subquery()
                gone += connection.execute(
                    sa.delete(JOBS).where(JOBS.c.number.in_(sa.select(limited.c.number)))
                ).rowcount
            return gone

    @contextlib.contextmanager
    def _begin(self, *, writes: bool = False) -> Iterator[sa.Connection]:
        try:
            with self._engine.execution_options(**{_WRITES: writes}).begin() as connection:
                yield connection
        except IntegrityError:
            raise
        except (SQLAlchemyError, CommandError, OSError) as error:
            why = " ".join(str(getattr(error, "orig", None) or error).split())[:300]
            raise HistoryError(f"the history {self.shown} cannot be used: {why}") from error


def parsed_url(text: str) -> sa.URL:
    """Raises HistoryError; a password is not repeated."""
    try:
        url = sa.make_url(text)
        backend = url.get_backend_name()
    except (SQLAlchemyError, ValueError):
        raise HistoryError("this is no URL of a database: write sqlite:////DIR/history.db or postgresql://…") from None
    if backend == "sqlite" and url.database and url.database != ":memory:":
        return url.set(drivername="sqlite")
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    raise HistoryError(
        f"{url.render_as_string(hide_password=True)}: the history lies in a file (sqlite:////DIR/history.db) or in PostgreSQL"
    )


def _place(text: str) -> Any:
    finished, _, number = text.partition(":")
    try:
        if len(text) > 2 * DIGITS:
            raise ValueError
        return sa.tuple_(sa.literal(float(finished), sa.Double()), sa.literal(int(number), sa.BigInteger()))
    except ValueError:
        raise RecordError("`before` is what the page before has given, and nothing else") from None


def _postgresql(url: sa.URL) -> sa.Engine:
    try:
        engine = sa.create_engine(
            url, pool_size=CONNECTIONS_MAX, max_overflow=0, pool_timeout=WAIT_SECONDS, pool_pre_ping=True,
            connect_args={
                "connect_timeout": WAIT_SECONDS, "tcp_user_timeout": 1000 * WAIT_SECONDS, "keepalives_idle": WAIT_SECONDS,
                "keepalives_interval": 2, "keepalives_count": 2,  # one that is gone without a word is given up
                "options": f"-c statement_timeout={1000 * WAIT_SECONDS} -c lock_timeout={1000 * WAIT_SECONDS}",
            },
        )  # fmt: skip
        import psycopg
    except ImportError as error:
        raise HistoryError(f"PostgreSQL needs {error.name}: pip install 'deeprec-ext[history]'") from None

    class Impatient(psycopg.Connection[Any]):
        """Its timeouts are the server's, who may be frozen: then the socket is shut, and the driver says that it is."""

        def wait(self, *words: Any, **named: Any) -> Any:
            with socket.socket(
                fileno=os.dup(self.pgconn.socket)
            ) as twin:  # this one may be closed, and its number used again
                timer = threading.Timer(SILENT_SECONDS, _shut, [twin])
                timer.start()
                try:
                    return super().wait(*words, **named)
                finally:
                    timer.cancel()
                    timer.join()

    def connect(_: Any, __: Any, words: Any, named: Any) -> Any:
        return Impatient.connect(*words, **named)

    sa.event.listen(engine, "do_connect", connect)
    return engine


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


def _sqlite(url: sa.URL) -> sa.Engine:
    engine = sa.create_engine(
        url,
        pool_size=CONNECTIONS_MAX,
        max_overflow=0,
        pool_timeout=WAIT_SECONDS,
        connect_args={"timeout": WAIT_SECONDS},
    )

    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say, not where the driver thinks

    def began(connection: sa.Connection) -> None:
        # A transaction that first reads and then writes cannot wait for another writer: it says at once what it will do.
        writes = connection.get_execution_options().get(_WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    sa.event.listen(engine, "connect", connected)
    sa.event.listen(engine, "begin", began)
    return engine
