"""The rows of the history, the same on SQLite and on PostgreSQL."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from deeprec_ext.autoscaler.history.history import Finished, HistoryError
from deeprec_ext.history import database as databases
from deeprec_ext.history.database import PAGE_MAX, Database, Retention, parsed_url
from deeprec_ext.history.record import RecordError, to_text
from deeprec_ext.history.tables import JOBS, VERSION_TABLE, metadata
from deeprec_ext.history.words import short_sizes, sizes
from tests.unit.history.jobs import FINISHED, job, window


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    opened = Database(url)
    yield opened
    opened.close()


def fill(database: Database, count: int, namespace: str = "ads", **changes: Any) -> None:
    for number in range(count):
        assert database.add(namespace, f"uid-{number}", job(number, **changes))


def numbers(found: list[Any]) -> list[float]:
    return [one.job.finished - FINISHED for one in found]


def test_a_job_comes_back_as_it_was_written(database: Database) -> None:
    assert database.add("ads", "u", job())
    ((kept,), following) = database.jobs()
    assert (kept.namespace, kept.job, following) == ("ads", job(), "")
    assert database.job(kept.number) == kept and database.job(kept.number + 1) is None


def test_a_job_without_ps_comes_back_as_it_was_written(database: Database) -> None:
    one = job(strategy="allreduce", windows=(window(0, 1, 100.0), window(0, 3, 190.0)), backups=False, local_batch=True)
    assert database.add("ads", "u", one)
    ((kept,), _) = database.jobs()
    assert kept.job == one and (sizes(one), short_sizes(one)) == ("1 worker → 3 workers", "in step 1 → 3")
    with pytest.raises(RecordError, match="1 PS"):
        database.add("ads", "v", job(strategy="allreduce"))


def test_a_job_that_is_written_twice_is_there_once_and_as_it_was_first(database: Database) -> None:
    assert database.add("ads", "u", job()) and not database.add("ads", "u", job(status="failed"))
    assert database.add("search", "u", job()), "of another namespace it is another"
    assert [one.job.status for one in database.jobs(namespace="ads")[0]] == ["succeeded"]


def test_pages_have_every_job_once_the_newest_first(database: Database) -> None:
    fill(database, 7)
    database.add("ads", "same moment", job(3))
    seen, before, pages = [], "", 0
    while True:
        found, before = database.jobs(before=before, limit=3)
        seen += numbers(found)
        pages += 1
        if not before:
            break
    assert seen == [6, 5, 4, 3, 3, 2, 1, 0] and pages == 3


def test_jobs_are_found_by_namespace_and_script(database: Database) -> None:
    fill(database, 3)
    fill(database, 2, "search", script="rank")
    assert len(database.jobs(namespace="ads")[0]) == 3
    assert len(database.jobs(script="rank")[0]) == 2 and database.jobs(namespace="ads", script="rank") == ([], "")


@pytest.mark.parametrize("limit", [0, -1, 10**9])
def test_a_page_is_bounded_whatever_is_asked(database: Database, limit: int) -> None:
    fill(database, 3)
    assert len(database.jobs(limit=limit)[0]) == (3 if limit > 0 else 1) <= PAGE_MAX


@pytest.mark.parametrize("before", ["x", "1", "1:x", ":", "1:2:3", "9" * 500, "1:1; DROP TABLE deeprec_history_jobs"])
def test_what_no_page_has_given_is_refused(database: Database, before: str) -> None:
    with pytest.raises(RecordError, match="before"):
        database.jobs(before=before)


@pytest.mark.parametrize("changes", [
    {"seconds": float("nan")}, {"examples": -1}, {"script": "x" * 1000}, {"name": "a\0b"}, {"name": "\ud800"},
    {"ps_memory_bytes": 10**30},
])  # fmt: skip
def test_what_no_job_has_is_not_written(database: Database, changes: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        database.add("ads", "u", job(**changes))
    assert database.jobs() == ([], "")


def test_the_oldest_go_by_age_by_namespace_and_by_number(database: Database) -> None:
    fill(database, 6)
    fill(database, 3, "search")
    now = FINISHED + 100
    assert database.forget(Retention(seconds=98.5, jobs_of_namespace=99, jobs=99), now) == 4  # 0 and 1 of both
    assert database.forget(Retention(jobs_of_namespace=3, jobs=99), now) == 1
    assert numbers(database.jobs(namespace="ads")[0]) == [5, 4, 3]
    assert database.forget(Retention(jobs=2), now) == 2
    assert numbers(database.jobs()[0]) == [5, 4]
    assert database.forget(Retention(), now) == 0


def test_a_namespace_has_no_more_than_its_own_at_any_time_and_all_together_so_many_bytes(database: Database) -> None:
    fill(database, 4)
    fill(database, 2, "search")
    assert database.add("ads", "newest", job(finished=FINISHED + 50), 3)
    assert numbers(database.jobs(namespace="ads")[0])[1:] == [3, 2]
    assert len(database.jobs(namespace="search")[0]) == 2
    assert not database.add("ads", "newest", job(finished=FINISHED + 50), 3)
    each = len(to_text(job(finished=FINISHED)))
    assert database.forget(Retention(bytes=round(3.5 * each)), FINISHED + 100) == 2
    assert len(database.jobs()[0]) == 3


def test_a_row_that_somebody_has_damaged_is_left_out(database: Database) -> None:
    fill(database, 3)
    with database._begin(writes=True) as connection:
        for uid, text in (("uid-0", "no JSON"), ("uid-1", '{"script": 7}')):
            connection.execute(sa.update(JOBS).where(JOBS.c.uid == uid).values(record=text))
    assert numbers(database.jobs()[0]) == [2]


def test_several_write_at_once_and_nothing_is_lost(database: Database) -> None:
    def write(name: str) -> None:
        for number in range(10):
            database.add(name, f"{number}", job(number))

    threads = [threading.Thread(target=write, args=(f"team-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(database.jobs(limit=100)[0]) == 40


# ------------------------------------------------------------------------------------------------ the schema


def test_migrations_make_what_the_tables_say(database: Database) -> None:
    with database._begin() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        ours = [one for one in compare_metadata(context, metadata) if "deeprec_history" in str(one)]
    assert ours == []


def test_services_that_start_at_once_make_one_schema(url: str) -> None:
    failed: list[BaseException] = []

    def start() -> None:
        try:
            Database(url).close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    Database(url, read_only=True).close()


def test_jobs_outlive_the_service(url: str) -> None:
    first = Database(url)
    fill(first, 2)
    first.close()
    second = Database(url)
    assert numbers(second.jobs()[0]) == [1, 0]
    second.close()


def test_a_database_of_a_later_release_is_left_alone(url: str) -> None:
    opened = Database(url)
    with opened._begin(writes=True) as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = 'later9'"))
    opened.close()
    for read_only in (True, False):
        with pytest.raises(HistoryError, match=r"later release.*later9"):
            Database(url, read_only=read_only)


def test_who_only_reads_makes_no_schema(url: str) -> None:
    with pytest.raises(HistoryError, match="no history of this release"):
        Database(url, read_only=True)


def test_other_tables_of_the_database_stay(url: str) -> None:
    engine = sa.create_engine(parsed_url(url))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE jobs (id INTEGER)"))
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
    opened = Database(url)
    fill(opened, 1)
    opened.close()
    with engine.begin() as connection:
        assert {"jobs", "alembic_version"} <= set(sa.inspect(connection).get_table_names())
    engine.dispose()


# ------------------------------------------------------------------------------------------------ a server that is silent


@pytest.fixture
def freeze(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[sa.Connection], Callable[[], None]]]:
    """Freezes the process of PostgreSQL that serves a connection: it takes what it is sent, and nothing comes."""
    if not database._postgresql:
        pytest.skip("a file answers")
    monkeypatch.setattr(databases, "SILENT_SECONDS", 1.0)
    frozen: list[int] = []

    def one(connection: sa.Connection) -> Callable[[], None]:
        pid = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()

        def stop() -> None:
            frozen.append(pid)
            os.kill(pid, signal.SIGSTOP)

        return stop

    yield one
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)


def test_a_server_that_falls_silent_is_given_up(database: Database, freeze: Any) -> None:
    fill(database, 2)
    with pytest.raises(HistoryError, match="cannot be used"), database._begin(writes=True) as connection:
        freeze(connection)()
        connection.execute(sa.delete(JOBS))
    assert len(database.jobs()[0]) == 2


def test_a_connection_that_has_fallen_silent_is_replaced(database: Database, freeze: Any) -> None:
    fill(database, 2)
    with database._begin() as connection:
        stop = freeze(connection)
    stop()
    assert len(database.jobs()[0]) == 2


# ------------------------------------------------------------------------------------------------ URLs


@pytest.mark.parametrize(
    "text", ["", "no url", "mysql://a/b", "sqlite://", "sqlite:///:memory:", "postgresql:/x", "history.db"]
)
def test_what_is_no_url_of_a_database_is_refused(text: str) -> None:
    with pytest.raises(HistoryError, match="sqlite:"):
        parsed_url(text)


def test_a_database_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(HistoryError) as caught:
        Database(f"postgresql://me:hush@/none?host={tmp_path}")
    assert "hush" not in str(caught.value) and "postgresql" in str(caught.value)
    with pytest.raises(HistoryError, match="cannot be used"):
        Database(f"sqlite:///{tmp_path}/no/such/directory/history.db")


def test_a_record_of_a_later_release_is_read_without_what_it_added(database: Database) -> None:
    assert database.add("ads", "u", job())
    with database._begin(writes=True) as connection:
        (text,) = connection.execute(sa.select(JOBS.c.record)).scalars()
        connection.execute(sa.update(JOBS).values(record=text.replace('{"script"', '{"colour":"blue","script"', 1)))
    ((kept,), _) = database.jobs()
    assert isinstance(kept.job, Finished) and dataclasses.asdict(kept.job) == dataclasses.asdict(job())
