"""A run directory becomes a story, whatever became of the run; what is none is refused in one line."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sqlite3
import time
from pathlib import Path

import pytest

from deeprec_ext.aimaster.core import records
from deeprec_ext.aimaster.store.store import SCHEMA_VERSION, Store
from deeprec_ext.cli import report as command
from deeprec_ext.cli.main import main
from deeprec_ext.errors import UsageError
from deeprec_ext.gazer.report.story import CRASHED, ENDED, RUNNING
from deeprec_ext.gazer.series import Series
from deeprec_ext.launch.records.story import read_story, write_report
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.rundir import RunDirectory

BEGAN = float(int(time.time()) - 600)


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """Of a run of two minutes: the AIMaster's store as it left it, job.json and summary.json."""
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    run.make()
    describe(run)
    fill(run.store)
    starts = [f"--- deeprec-ext: ps-1, start {number}, pid {number}, … ---" for number in (1, 2)]
    log = [starts[0], "Instructions for updating:", "serving", starts[1], "serving again"]
    run.log("ps-1").write_text("\n".join(log) + "\n")
    run.summary.write_text(json.dumps({"status": "succeeded", "seconds": 120.0, "steps": 900, "roles": {
        "ps-1": {"started": 2, "restarted": 1}}}))  # fmt: skip
    return run


def describe(run: RunDirectory, **more: object) -> None:
    run.describe({
        "job": "demo", "aimaster": "127.0.0.1:1", "started": BEGAN, "command": ["python", "train.py"],
        "limits": {"ps": 2}, "settings": {"peer_backup_seconds": "2", "lease_seconds": "30.0"},
        "versions": {"python": "3.11", "tensorflow": None}, "requests": {"ps": {"cpu": 2.0, "memory_bytes": 1 << 30}}, **more,
    })  # fmt: skip


def fill(path: Path) -> None:
    store = Store(path)
    with store.transaction():
        store.put(started=BEGAN, step=880, metrics={"auc": 0.77})
        store.save_scaling(records.Scaling(1, "scale-up", "ps", from_count=1, to_count=2, outcome="committed",
                                           started=BEGAN + 30, seconds=4.0, pause_seconds=(0.2, 0.3)))  # fmt: skip
        store.save_failure(records.Failure(0, "ps-1", "killed by signal 9", BEGAN + 60, 0.1, 0.4))
        store.save_totals([("a", 4000)])
        store.add_event(BEGAN + 20, "warning", "ps-0", 1, {"text": "careful"})
        store.add_event(BEGAN + 22, "suspect", "worker-0", 1, {"what": "a lie", "offences": 1})
        store.add_event(BEGAN + 21, "registered", "ps-0", 1, {"pid": 1})
        store.add_event(BEGAN + 50, "decision", "", 1, {"number": 3, "action": "scale", "reason": "the PS are busy"})
        for epoch, owners in enumerate([(0, 0), (0, 1), (0, 1), (0, 2)], 1):
            ps = [pb.PsMember(task=task, name=f"ps-{min(task, 1)}") for task in sorted(set(owners))]
            view = pb.View(epoch=epoch, ps=ps, slot_map=owners)
            store.save_view(epoch, BEGAN + 10 * epoch, view.SerializeToString())
        catalogue = pb.Catalogue(warnings=["careful: dense"])
        catalogue.variables.add(name="small", slot=0, bytes=40, shape=[10], update=pb.Variable.DENSE)
        catalogue.variables.add(name="large", slot=0, bytes=8000, shape=[100, 20], update=pb.Variable.ROWS)
        store.put_blob("catalogue", catalogue.SerializeToString())
        series = Series(store)
        for second in range(-4, 60, 2):
            series.add(BEGAN + second, {"chief-0": {"steps_per_second": 10.0}})
        series.add_trace(BEGAN + 40, "chief-0", pb.Trace(step=400, seconds=0.1).SerializeToString())
    store.close()


def test_everything_that_is_known_of_an_ended_run(directory):
    story = read_story(directory)
    assert (story.job, story.state, story.status, story.seconds, story.steps) == (
        "demo",
        ENDED,
        "succeeded",
        120.0,
        900,
    )
    assert (story.examples, story.metrics, story.command) == (4000, {"auc": 0.77}, ("python", "train.py"))
    assert story.settings == (
        ("peer_backup_seconds", "2", "5.0"),
    )  # what was given as it is by default does not differ
    assert story.versions == {"python": "3.11"}
    assert {kind: one.cores for kind, one in story.requests.items()} == {"ps": 2.0}
    assert [(one.title, one.pause_seconds) for one in story.scalings] == [("scale-up ps 1 → 2", (0.2, 0.3))]
    assert [(one.role, one.recovered_seconds) for one in story.failures] == [("ps-1", 0.4)]
    assert [(event.type, event.text) for event in story.events] == [
        ("warning", "careful"),
        ("suspect", ""),
        ("decision", "the PS are busy"),
    ]
    assert [(one.role, one.time, one.what) for one in story.suspects] == [("worker-0", BEGAN + 22, "a lie")]
    assert [(one.number, one.action, one.reason) for one in story.decisions] == [(3, "scale", "the PS are busy")]
    assert [(one.time - BEGAN, one.owners) for one in story.placements] == [
        (10, ("ps-0", "ps-0")),
        (20, ("ps-0", "ps-1")),
    ]
    assert [(table.name, table.rows, table.by_rows) for table in story.tables[0]] == [
        ("large", 100, True),
        ("small", 0, False),
    ]
    assert story.warnings == ("careful: dense",)
    assert [(line.subject, line.metric) for line in story.lines] == [("chief-0", "steps_per_second")]
    assert min(story.lines[0].times) >= BEGAN  # what is older is of another start of the launcher
    assert [(one.role, one.trace.step) for one in story.traces] == [("chief-0", 400)]
    assert story.peer_backup
    assert [(log.role, log.lines[1], log.lines[3]) for log in story.logs] == [("ps-1", "serving", "serving again")]


def test_a_run_without_summary_crashed_and_its_last_sign_of_life_ends_it(directory):
    directory.summary.unlink()
    story = read_story(directory)
    assert (story.state, story.status, story.ended, story.steps) == (CRASHED, "", BEGAN + 58, 880)


def test_a_summary_that_was_written_after_the_clock_was_set_back_is_that_of_this_run(directory):
    values = json.loads(directory.summary.read_text())
    day_before = BEGAN - 86_400
    for started, state in ((BEGAN, ENDED), (BEGAN - 5, CRASHED)):
        directory.summary.write_text(json.dumps({**values, "started": started}))
        os.utime(directory.summary, (day_before, day_before))
        assert read_story(directory, running=False).state == state


def test_the_summary_of_the_run_before_a_resume_does_not_count(directory):
    long_ago = BEGAN - 5000
    os.utime(directory.summary, (long_ago, long_ago))
    describe(directory, resumed=True)
    story = read_story(directory)
    assert (story.state, story.resumed) == (CRASHED, True)


def test_a_running_job(directory):
    directory.summary.unlink()
    with directory.lock():
        story = read_story(directory)
        assert story.state == RUNNING
        assert story.ended == pytest.approx(time.time(), abs=60)
        assert read_story(directory, running=False).state == CRASHED


def test_reading_changes_nothing(directory):
    before = {path.name: path.read_bytes() for path in directory.path.iterdir() if path.is_file()}
    read_story(directory)
    assert {path.name: path.read_bytes() for path in directory.path.iterdir() if path.is_file()} == before


def test_a_job_whose_aimaster_never_started_has_a_report_of_what_there_is(directory):
    directory.store.unlink()
    directory.summary.write_text(json.dumps({"status": "failed", "reason": "no certificates", "seconds": 1.0}))
    story = read_story(directory)
    assert (story.status, story.reason, story.lines) == ("failed", "no certificates", ())
    assert "never started" in story.missing[0]
    assert "no certificates" in write_report(directory).read_text()


def test_settings_and_hook_say_which_backups_were_wanted(directory):
    store = Store(directory.store)
    store.put_blob("backup_wish", pb.BackupWish(peer=False, disk_path="b", disk_seconds=9.0).SerializeToString())
    store.close()
    story = read_story(directory)
    assert (story.peer_backup, story.disk_backup, story.disk_backup_seconds) == (False, "b", 9.0)
    describe(directory, settings={"peer_backup": "on", "disk_backup": "off"})
    assert (read_story(directory).peer_backup, read_story(directory).disk_backup) == (True, "")


# -------------------------------------------------------------------------------------------------------- what is no run


def older(directory: RunDirectory) -> None:
    with contextlib.closing(sqlite3.connect(directory.store)) as db:
        for table in ("gazer_subjects", "gazer_samples", "gazer_minutes", "gazer_tens", "gazer_traces"):
            db.execute(f"DROP TABLE {table}")
        db.execute("PRAGMA user_version=2")


def test_a_store_of_before_gazer_has_a_report_without_curves(directory):
    older(directory)
    story = read_story(directory)
    assert (story.steps, story.lines, story.traces) == (900, (), ())


def newer(directory: RunDirectory) -> None:
    with contextlib.closing(sqlite3.connect(directory.store)) as db:
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")


def torn(directory: RunDirectory) -> None:
    data = directory.store.read_bytes()
    assert len(data) > 16_384
    directory.store.write_bytes(data[:8192])


def garbled(directory: RunDirectory) -> None:
    with contextlib.closing(sqlite3.connect(directory.store)) as db:
        db.execute("UPDATE scalings SET json='{}'")
        db.commit()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda run: run.description.unlink(), "no job.json"),
        (lambda run: describe(run, requests={"ps": {"cpu": "many"}}), "is damaged"),
        (newer, "use a newer deeprec-ext"),
        (torn, "torn or no database"),
        (garbled, "cannot be read"),
        (
            lambda run: run.store.write_text("this is no database, but a long enough text\n" * 400),
            "torn or no database",
        ),
        (lambda run: run.store.write_bytes(b""), "is empty: the AIMaster never came so far"),
        (lambda run: (run.store.unlink(), run.summary.unlink()), "the job ended before it began"),
    ],
)
def test_what_cannot_be_told_is_one_line_of_usage(spoil, said, directory, capsys):
    spoil(directory)
    with pytest.raises(UsageError, match=said):
        read_story(directory)
    assert main(["report", str(directory.path)]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1 and captured.out == ""
    assert not (directory.path / "report.html").exists()


# ----------------------------------------------------------------------------------------------------------- the command


def test_the_command_writes_report_html_and_prints_its_path(directory, capsys):
    assert main(["report", str(directory.path)]) == 0
    assert capsys.readouterr().out == f"{directory.path / 'report.html'}\n"
    assert (directory.path / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_the_command_prints_markdown_and_json(directory, capsys):
    assert main(["report", str(directory.path), "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("# demo (succeeded)\n")
    assert main(["report", str(directory.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scalings"][0]["outcome"] == "committed"
    assert not (directory.path / "report.html").exists()


def test_the_command_writes_where_it_is_told(directory, tmp_path, capsys):
    assert main(["report", str(directory.path), "--json", "--output", str(tmp_path / "r.json")]) == 0
    assert json.loads((tmp_path / "r.json").read_text())["job"] == "demo"
    assert main(["report", str(directory.path), "--output", str(tmp_path / "no" / "r.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_markdown_and_json_exclude_each_other(directory):
    with pytest.raises(SystemExit):
        main(["report", str(directory.path), "--json", "--markdown"])


def test_a_report_is_written_whole_or_not_at_all(directory, monkeypatch):
    write_report(directory)
    before = (directory.path / "report.html").read_text()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    arguments = argparse.Namespace(job=directory.path, markdown=False, json=False, output=None)
    with pytest.raises(UsageError, match="No space left"):
        command.run(arguments)
    assert (directory.path / "report.html").read_text() == before
    assert [path.name for path in directory.path.glob(".report*")] == []
