"""`deeprec-ext jobs` of a file and of a database; a service is asked in tests/unit/history."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.autoscaler.history.history import History
from deeprec_ext.autoscaler.history.use import Brought, Use
from deeprec_ext.cli.console import Console
from deeprec_ext.cli.jobs import _show_table
from deeprec_ext.cli.main import main
from deeprec_ext.history import words
from deeprec_ext.history.database import Database
from deeprec_ext.history.record import Kept
from tests.unit.history.jobs import job


@pytest.fixture
def file(tmp_path: Path) -> Path:
    history = History(tmp_path / "history.db")
    for number in range(5):
        history.add(job(number, script="train" if number % 2 else "rank"))
    history.close()
    return tmp_path / "history.db"


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["jobs", *words]) == 0
    return capsys.readouterr().out


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shown(capsys, "--json", *words))
    return found


def test_jobs_of_a_file_are_listed_with_what_they_wasted_and_what_changes_brought(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    text = shown(capsys, "--history", str(file))
    assert "ctr-4" in text and "62%" in text and "2 changes, saved 15:00 (+150.0% since the first one)" in text
    assert "1 PS, 0 workers → 1 more → 2 PS, 3 workers" in text
    assert "5 jobs, 2.5 core-hours used, 62% of the requested CPU idle; changes of size saved 1:15:00" in text
    assert "mean examples/s" in text and "no room" not in text
    assert "\n1 job, " in shown(capsys, "--history", str(file), "--limit", "1")


def test_on_a_narrow_terminal_the_least_important_columns_go_and_no_word_is_broken(file: Path) -> None:
    with contextlib.closing(History(file, read_only=True)) as history:
        found = [Kept(place, "", one) for place, one in enumerate(history.jobs())]
    stream = io.StringIO()
    _show_table(Console(file=stream, width=60), found)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[0].split()[:2] == ["job", "script"] and "sizes" not in lines[0]
    assert all("succeeded" in line for line in lines[1:6])
    assert lines[6].startswith("no room for ") and "brought: widen the terminal" in " ".join(map(str.strip, lines[6:]))


def test_as_json_it_says_everything_and_comes_in_pages(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    first = listed(capsys, "--history", str(file), "--limit", "3")
    second = listed(capsys, "--history", str(file), "--limit", "3", "--before", first["next"])
    assert [one["name"] for one in [*first["jobs"], *second["jobs"]]] == [f"ctr-{number}" for number in (4, 3, 2, 1, 0)]
    assert second["next"] == "" and second["totals"]["jobs"] == 2
    assert first["jobs"][0]["brought"]["saved_seconds"] == 900.0 and len(first["jobs"][0]["windows"]) == 3
    assert len(listed(capsys, "--history", str(file), "--script", "rank")["jobs"]) == 3


def test_jobs_of_a_database(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/service.db"
    database = Database(url)
    for namespace in ("ads", "search"):
        database.add(namespace, "u", job(name=f"of-{namespace}"))
    database.close()
    assert {one["namespace"] for one in listed(capsys, "--history", url)["jobs"]} == {"ads", "search"}
    assert [one["name"] for one in listed(capsys, "--history", url, "-n", "ads")["jobs"]] == ["of-ads"]


def test_what_is_not_known_is_a_dash(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    history = History(tmp_path / "history.db")
    history.add(job(use=Use(), brought=Brought(1), windows=(), name="old\nline"))
    history.close()
    text = shown(capsys, "--history", str(tmp_path / "history.db"))
    assert "–" in text and "the first size was left before it could be measured" in text


def test_rows_of_before_are_read(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    """Written by a release that knew nothing of use and of what changes brought."""
    import sqlite3

    db = sqlite3.connect(file)
    db.execute("UPDATE jobs SET json = json_remove(json, '$.use', '$.brought', '$.fitted', '$.name', '$.autoscaled')")
    db.commit()
    db.close()
    found = listed(capsys, "--history", str(file))["jobs"]
    assert len(found) == 5 and found[0]["name"] == "" and found[0]["use"]["cpu_core_seconds"] == 0.0


@pytest.mark.parametrize(
    ("words", "match"),
    [(["--limit", "0"], "between 1 and 100"), (["--limit", "101"], "between 1 and 100"),
     (["-n", "ads", "--history", "/none/history.db"], "no namespaces"),
     (["--history", "/none/history.db"], "no such history"), (["--history", "mysql://x/y"], "SQLite|sqlite"),
     (["--history", "https://x"], "HOST:PORT"), (["--history", "https://x:1"], "--history-certs DIR"),
     (["--history", "http://x:1"], "--history http://…: no history of jobs is asked like that"),
     (["--history", ""], "names nothing"), (["--history", "off"], "with --history off no job is kept"),
     (["--history", "https://x:1", "--history-certs", "/none"], "--history-certs /none: there is no such directory"),
     (["--history-certs", "."], "goes with --history https://"),
     (["--before", "x"], "--before")],
)  # fmt: skip
def test_what_cannot_be_asked_is_bad_usage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: Path, words: list[str], match: str
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(file.parent))
    assert main(["jobs", *words]) == 2
    error = capsys.readouterr().err
    assert any(one in error for one in match.split("|")) and error.count("\n") == 1


def test_of_a_record_of_an_earlier_release_no_share_is_told():
    """Its mean over the whole job was shown as one, and could say the opposite of the time that was saved."""
    old = dataclasses.replace(job().brought, gained=None)
    assert words.brought(job(brought=old)) == "2 changes, saved 15:00"
    lost = dataclasses.replace(old, gained=-0.05, saved_seconds=-60.0, by_hand=1)
    assert words.brought(job(brought=lost)) == "2 changes (1 by hand), cost 1:00 (-5.0% since the first one)"
