"""Run directory, logs, events and summary as files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deeprec_ext.errors import UsageError
from deeprec_ext.launch.ending import Outcome
from deeprec_ext.launch.events import ScriptedEvent
from deeprec_ext.launch.ports import check_free
from deeprec_ext.launch.records.eventlog import EventTail, format_event
from deeprec_ext.launch.records.logs import ends, place, shown_end, tail, why
from deeprec_ext.launch.records.summary import merge_summary
from deeprec_ext.launch.roles.guard import Guard
from deeprec_ext.launch.roles.printing import Printing
from deeprec_ext.launch.roles.process import start
from deeprec_ext.launch.roles.runner import Command, marker
from deeprec_ext.launch.roles.supervisor import Pod
from deeprec_ext.launch.script import Progress
from deeprec_ext.launch.workdir import check_directory, default_directory
from deeprec_ext.options import Settings, rows, split_setting, values_given
from deeprec_ext.printable import shortened
from deeprec_ext.rundir import RunDirectory, files_private


@contextlib.contextmanager
def directory_made(directory: RunDirectory) -> Iterator[None]:
    """As `run` does it."""
    directory.path.mkdir(parents=True, exist_ok=True)
    with directory.lock():
        directory.make()
        yield


def test_a_directory_with_a_job_needs_resume_and_resume_needs_a_job(tmp_path):
    with pytest.raises(UsageError, match=r"no aimaster\.db"):
        check_directory(tmp_path, resume=True)
    check_directory(tmp_path, resume=False)
    (tmp_path / "aimaster.db").touch()
    with pytest.raises(UsageError, match="add --resume"):
        check_directory(tmp_path, resume=False)
    check_directory(tmp_path, resume=True)


def test_certificates_are_for_their_owner_only(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.make()
    assert directory.certificates.stat().st_mode & 0o777 == 0o700


def others_can_read(path: Path) -> list[str]:
    """Names of what anybody but the owner can read or write, links left out."""
    found = [path, *path.rglob("*")]
    return [str(one.relative_to(path)) for one in found if not one.is_symlink() and one.stat().st_mode & 0o077]


def test_a_new_run_directory_is_for_its_owner_only(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    with files_private() as before, directory_made(directory):
        assert os.umask(before) == 0o077
        os.umask(0o077)
        directory.describe({"job": "x", "aimaster": "y"})
        directory.log("ps-0").write_text("secret\n")
    assert others_can_read(directory.path) == []


def test_a_directory_from_before_is_shut_and_what_is_not_ours_in_it_stays(tmp_path):
    for name in ("job.json", "events.jsonl", "aimaster.db", "aimaster.db-wal", "summary.json", "mine.txt"):
        (tmp_path / name).write_text("{}")
        (tmp_path / name).chmod(0o644)
    (tmp_path / "logs").mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    with files_private(), directory_made(RunDirectory(tmp_path)):
        pass
    assert sorted(others_can_read(tmp_path)) == [".", "mine.txt"], "it may be a home: the directory is not ours"


def test_an_empty_directory_from_before_is_shut(tmp_path):
    tmp_path.chmod(0o755)
    with files_private(), directory_made(RunDirectory(tmp_path)):
        pass
    assert others_can_read(tmp_path) == []


def test_a_role_gets_back_the_umask_that_the_user_had(tmp_path):
    async def scenario() -> int:
        guard = Guard()
        command = Command(("sh", "-c", f"umask; : > {tmp_path}/model"), dict(os.environ), umask=0o022)
        with files_private():
            printing = Printing(tmp_path / "logs" / "chief-0.log")
            process = await start("chief-0", 1, command, guard, printing)
            code = await process.wait()
            printing.close()
        guard.close()
        return code

    assert asyncio.run(scenario()) == 0
    assert (tmp_path / "logs" / "chief-0.log").read_text().splitlines()[-1] == "0022"
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "logs" / "chief-0.log").stat().st_mode & 0o777 == 0o600


def test_only_one_launcher_at_a_time(tmp_path):
    directory = RunDirectory(tmp_path)
    assert not directory.in_use()
    with directory.lock():
        assert directory.in_use()
        with pytest.raises(UsageError, match="a job is running in it"):
            directory.lock()
    assert not directory.in_use()


def test_a_default_directory_never_exists_yet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = default_directory("train", now=0)
    first.mkdir(parents=True)
    assert default_directory("train", now=0).name == f"{first.name}-2"


def test_the_tail_is_the_last_starts_traceback(tmp_path):
    log = tmp_path / "chief-0.log"
    lines = [marker("chief-0", 1), "Traceback (most recent call last)", "old", marker("chief-0", 2), "hello",
             "Traceback (most recent call last):", "  File x", "ImportError: no"]  # fmt: skip
    log.write_text("\n".join(lines) + "\n")
    assert tail(log) == lines[-3:]
    assert why(log) == "ImportError: no"
    assert tail(tmp_path / "none.log") == []
    assert shown_end(log) == (f"the end of {log}:", *lines[-3:])
    assert shown_end(tmp_path / "none.log") == ()


def test_the_tail_is_of_the_main_thread_however_much_others_print_after_it(tmp_path):
    log = tmp_path / "chief-0.log"
    mine = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "ValueError: mine", ""]
    other = ["Exception in thread T:", mine[0], '  File "t.py", line 1, in f', "OSError: late"]
    log.write_text("\n".join([marker("chief-0", 1), *other, *mine, *(50 * other)]) + "\n")
    assert tail(log)[: len(mine)] == mine and "OSError: late" not in tail(log)
    assert why(log) == "ValueError: mine"
    assert place(log).startswith("ValueError at ")
    with log.open("a") as file:
        file.write("--- deeprec-ext: started again\n")
    assert place(log) == "", "the process that was started last has said nothing"


def test_events_are_read_as_they_grow_and_only_whole_lines(tmp_path):
    path = tmp_path / "events.jsonl"
    events = EventTail(path)
    assert events.poll() == []
    path.write_text('{"type": "a"}\n{"type": ')
    assert [event["type"] for event in events.poll()] == ["a"]
    with path.open("a") as file:
        file.write('"b"}\nbroken\n')
    assert [event["type"] for event in events.poll()] == ["b"]


def test_an_event_is_one_line_whether_its_fields_are_nested_or_not():
    nested = format_event({"time": 0, "type": "registered", "role": "ps-1", "epoch": 3, "json": '{"pid": 7}'})
    assert nested.endswith("registered ps-1 (view 3) pid=7")
    assert nested == format_event({"time": 0, "type": "registered", "role": "ps-1", "epoch": 3, "pid": 7})


def test_a_reason_is_told_whole_and_what_is_very_long_is_cut_between_words():
    reason = "went from 3 workers to 1: gave way to waiting pod serving-1 of priority 100 in the namespace of others, for now"
    assert format_event({"time": 0, "type": "allowance", "reason": reason}).endswith(f"reason={reason}")
    words = " ".join(f"word{number}" for number in range(200))
    for field in ("reason", "text", "other"):
        told = format_event({"time": 0, "type": "x", field: words}).partition(f"{field}=")[2]
        assert told.endswith("…") and len(told) <= 300 and set(told[:-1].split()) <= set(words.split()), field
    assert shortened("a" * 100, 10) == "aaaaaaaaa…" and shortened("abc", 3) == "abc" and shortened("ab, cd", 4) == "ab…"


def test_a_summary_has_all_keys_of_the_contract_and_the_launchers_counts(tmp_path):
    pod = Pod("ps-0", "ps", 0, tmp_path / "ps-0.log", Printing(tmp_path / "ps-0.log"), starts=3, restarts=2)
    script = [Progress(ScriptedEvent("rebalance", at_step=1), fired=True, outcome="committed"),
              Progress(ScriptedEvent("kill", "ps-0", at_step=9))]  # fmt: skip
    stored = {"steps": 10, "roles": {"ps-1": {"started": 1, "restarted": 0}}, "status": "training"}
    summary = merge_summary(stored, Outcome("failed", "why"), [pod], script, 2.5)
    assert {
        "status",
        "steps",
        "examples",
        "seconds",
        "roles",
        "scaling",
        "failures",
        "data",
        "metrics",
        "estimator",
    } <= set(summary)
    assert (summary["status"], summary["reason"], summary["steps"]) == ("failed", "why", 10)
    assert summary["roles"] == {"ps-0": {"started": 3, "restarted": 2}, "ps-1": {"started": 1, "restarted": 0}}
    assert summary["events_left"] == 1
    json.dumps(summary)


def test_settings_are_typed_and_named():
    settings = Settings(**values_given(map(split_setting, ["heartbeat_seconds=2", "verify-copies=true"])))
    assert (settings.heartbeat_seconds, settings.verify_copies) == (2.0, True)
    with pytest.raises(UsageError, match="no such setting; did you mean heartbeat_seconds"):
        values_given([("heartbeat", "1")])
    with pytest.raises(UsageError, match="must be a whole number"):
        values_given([("restarts_max", "many")])
    assert values_given([("bad_records", "skip")]) == {"bad_records": "skip"}
    with pytest.raises(UsageError, match="bad_records=ignore: must be one of fail, skip"):
        values_given([("bad_records", "ignore")])
    for text in ("window_seconds=0", "heartbeat_seconds=0.01", "disk_backup_keep=0", "copy_chunk_bytes=1"):
        with pytest.raises(UsageError, match=f"{text}: must be a number of .* or more"):
            values_given([split_setting(text)])
    assert values_given([("gazer_seconds", "0"), ("restarts_max", "0")]) == {"gazer_seconds": 0.0, "restarts_max": 0}
    with pytest.raises(UsageError, match="cut=maybe: must be one of auto, on, off"):
        values_given([("cut", "maybe")])
    with pytest.raises(UsageError, match="ps_failover=promise: must be one of promote, replace"):
        values_given([("ps_failover", "promise")])
    with pytest.raises(UsageError, match="write name=value"):
        split_setting("verify_copies")


@pytest.mark.parametrize("name", [row.name for row in rows(Settings) if row.words])
def test_what_is_a_setting_by_default_may_be_said(name: str):
    usual = getattr(Settings(), name)
    assert values_given([(name, usual)]) == {name: usual}


def test_a_port_in_use_is_one_clear_line():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(UsageError, match="already in use"):
        check_free(server.getsockname()[1], "--port")
    with pytest.raises(UsageError, match="from 1 to 65535"):
        check_free(70000, "--port")


def test_what_a_script_says_is_shown_and_not_obeyed(tmp_path):
    log = tmp_path / "chief-0.log"
    evil = "ValueError: \x1b]0;pwned\x07 \x1b[2J"
    log.write_text(f'{marker("chief-0", 1)}\nTraceback (most recent call last):\n  File "x", line 1\n{evil}\n')
    shown = "ValueError: ␛]0;pwned␇ ␛[2J"
    assert tail(log)[-1] == shown and why(log) == shown and ends(log)[-1] == shown
    event = {"time": 0, "type": "warning\x1b[2J", "role": "ps-0\n", "text": "a\nb\x9b31m"}
    assert format_event(event).endswith("warning␛[2J ps-0␤ text=a␤b�31m")
