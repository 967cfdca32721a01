from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path

import pytest

from deeprec_ext.autoscaler.history import history
from deeprec_ext.autoscaler.history.history import Finished, History, HistoryError, default_path
from deeprec_ext.autoscaler.observe.observed import Model, Size, Window
from deeprec_ext.history.places import jobs_of
from tests.unit.autoscaler.facts import fact


def job(number: int = 0, windows: int = 2) -> Finished:
    return Finished(
        "train", 1000.0 + number, "succeeded", 60.0, fact(Model, table_bytes=5 * number, batch_size=64.0),
        tuple(fact(Window, 10.0 * k, 10.0 + k, Size(1 + k, 2), 100.0 * k + 1, 64.0, ps_cpu_cores=0.5) for k in range(windows)),
        1 << 30, 2 << 30, 10_000,
    )  # fmt: skip


def sql(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def test_what_is_added_comes_back_newest_first(tmp_path):
    path = tmp_path / "deep" / "history.db"
    for number in (1, 3, 2):
        one = History(path)
        one.add(job(number))
        one.close()
    again = History(path, read_only=True)
    assert [found.finished for found in again.jobs()] == [1003.0, 1002.0, 1001.0]
    first = again.jobs()[0]
    assert set(first.windows) == set(job(3).windows)
    assert first.model == job(3).model
    again.close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_not_there_is_an_empty_history_and_is_not_made_by_reading(tmp_path):
    path = tmp_path / "history.db"
    assert History(path, read_only=True).jobs() == []
    assert not path.exists()


def test_the_oldest_jobs_and_the_shortest_windows_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "JOBS_MAX", 3)
    monkeypatch.setattr(history, "WINDOWS_MAX", 4)
    one = History(tmp_path / "history.db")
    for number in (5, 1, 4, 2, 3):
        one.add(job(number, windows=9))
    assert [found.finished for found in one.jobs()] == [1005.0, 1004.0, 1003.0]
    assert sorted(window.seconds for window in one.jobs()[0].windows) == [15.0, 16.0, 17.0, 18.0]
    one.close()
    db = sqlite3.connect(tmp_path / "history.db")
    assert db.execute("SELECT count(*) FROM windows").fetchone() == (12,)  # those of forgotten jobs are gone too
    db.close()


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_version_is_refused_by_name(tmp_path, version):
    path = tmp_path / "history.db"
    History(path).close()
    sql(path, f"PRAGMA user_version={version}")
    for read_only in (True, False):
        with pytest.raises(HistoryError, match=rf"version {version} .*--history"):
            History(path, read_only=read_only)


def test_another_programs_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "other.db"
    sql(path, "CREATE TABLE t (x)", "PRAGMA user_version=1")
    before = path.read_bytes()
    with pytest.raises(HistoryError, match="another program"):
        History(path)
    assert path.read_bytes() == before


def test_what_is_no_database_is_refused(tmp_path):
    path = tmp_path / "text"
    path.write_text("this is no database\n" * 100)
    with pytest.raises(HistoryError, match="--history"):
        History(path)
    with pytest.raises(HistoryError, match="--history"):
        History(tmp_path)  # a directory
    large = tmp_path / "large"
    large.touch()
    with large.open("r+b") as file:
        file.truncate(history.FILE_BYTES_MAX + 1)
    with pytest.raises(HistoryError, match="no history"):
        History(large)


def test_a_place_that_cannot_be_written_is_refused_with_the_flag(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match="--history"):
        History(tmp_path / "file" / "history.db")


def test_rows_that_cannot_be_read_are_left_out(tmp_path):
    path = tmp_path / "history.db"
    one = History(path)
    one.add(job(1))
    one.close()
    sql(
        path, "INSERT INTO jobs VALUES (NULL, 9000, 'x', 'no json')", "INSERT INTO jobs VALUES (NULL, 9001, 'x', '{}')",
        f"INSERT INTO jobs VALUES (NULL, 9002, 'x', '{json.dumps({'model': [], 'a': 1})}')",
    )  # fmt: skip
    again = History(path, read_only=True)
    assert [found.finished for found in again.jobs()] == [1001.0] and again.left_out == 3
    again.close()


@pytest.mark.parametrize(
    "window",
    [
        {"size": {"ps": 0, "workers": 2}}, {"host_cores": -5.0}, {"examples_per_step": 1e308},
        {"examples_per_second": float("inf")},
    ],
    ids=["no PS", "cores", "a batch", "no end"],
)  # fmt: skip
def test_jobs_that_cannot_have_been_are_left_out_and_told(tmp_path, window, caplog):
    path = tmp_path / "history.db"
    one = History(path)
    one.add(job(1))
    one.add(job(2))
    one.close()
    db = sqlite3.connect(path)
    number, text = db.execute("SELECT rowid, json FROM windows ORDER BY rowid LIMIT 1").fetchone()
    values = json.loads(text)
    values.update({**window, "size": {**values["size"], **window.get("size", {})}})
    db.execute("UPDATE windows SET json = ? WHERE rowid = ?", (json.dumps(values), number))
    db.commit()
    db.close()
    assert [found.finished for found in jobs_of(path, "train")] == [1002.0]
    assert "1 job of" in caplog.text and "left out" in caplog.text
    sql(path, "DELETE FROM jobs WHERE finished > 1001.5")
    with pytest.raises(HistoryError, match="cannot be read"):
        jobs_of(path, "train")


def test_two_jobs_may_end_at_once(tmp_path):
    path = tmp_path / "history.db"
    errors: list[Exception] = []

    def add(number: int) -> None:
        try:
            one = History(path)
            for count in range(5):
                one.add(job(10 * number + count))
            one.close()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    again = History(path, read_only=True)
    assert len(again.jobs()) == 20
    again.close()


def test_the_default_lies_in_the_users_data_directory(tmp_path):
    assert default_path({"XDG_DATA_HOME": str(tmp_path)}) == tmp_path / "deeprec-ext" / "history.db"
    fallback = default_path({"XDG_DATA_HOME": "relative"})
    assert fallback == Path.home() / ".local" / "share" / "deeprec-ext" / "history.db"
