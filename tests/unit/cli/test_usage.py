"""Bad usage: exit code 2, one line on stderr, nothing started."""

from __future__ import annotations

import errno
import importlib
import json
import os
import subprocess
import sys
from functools import partial

import pytest

from deeprec_ext.cli.logs import last_lines
from deeprec_ext.cli.main import COMMANDS, kubectl, main
from deeprec_ext.errors import UnreachableError
from deeprec_ext.rundir import RunDirectory
from tests.unit.cli.usage import check_refused


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('hi')\n")


RUN = ["--", "python", "train.py"]


def chosen(flag: str, given: str, *choices: str) -> str:
    """argparse's own words for a choice that is none."""
    return f"argument {flag}: invalid choice: {given!r} (choose from {', '.join(map(repr, choices))})"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["run", "--ps", "0", *RUN], "--ps 0"),
        (["run", "--ps", "9", "--slots", "8", *RUN], "lower --ps or raise --slots"),
        (["run", "--", "python", "missing.py"], "missing.py: no such script"),
        (["run"], "nothing to run"),
        (["run", "--events", "none.yaml", *RUN], "none.yaml"),
        (["run", "--setting", "x=1", *RUN], "--setting x"),
        (["run", "--resume", *RUN], "--resume"),
        (["run", "--workdir", "train.py/run", *RUN], "cannot be made (Not a directory); choose another"),
        (["run", "--unknown", *RUN], "unrecognized"),
        (["run", "--ps", "two", *RUN], "--ps"),
        (["run", "--backend", "zzz", *RUN], chosen("--backend", "zzz", "local", "slurm")),
        (["run", "--layout", "zzz", *RUN], chosen("--layout", "zzz", "auto", "chief", "workers", "master", "worker0")),
        (["run", "--objective", "best", *RUN], chosen("--objective", "best", "fastest", "cheapest", "deadline")),
        (["run", "--bad-records", "Skip", *RUN], chosen("--bad-records", "Skip", "fail", "skip")),
        (["run", "--autoscale", "--deadline", "-5m", *RUN], "--deadline: '-5m' is no duration; write for example 90s"),
        (["run", "--max-ps-memory", "-1GiB", "--autoscale", *RUN], "--max-ps-memory '-1GiB' is no amount of bytes"),
        (["run", "--deadline", *RUN], "expected one argument"),
        (["estimate", "--max-ps-memory", "-1GiB", *RUN], "--max-ps-memory '-1GiB' is no amount of bytes"),
        (["run", "--max-workers", "-2", *RUN], "--max-workers -2: must be 0"),
        (["run", "--history", "", *RUN], "--history: names nothing; give a file, or https://HOST:PORT"),
        (
            ["run", "--dry-run", "--history", "http://x:1", *RUN],
            "--history http://…: no history of jobs is asked like that",
        ),
        (["run", "--history", "ftp://a/b", *RUN], "`jobs` also reads sqlite:////DIR/history.db or postgresql://"),
        (["run", "--history", "https:/x:1", *RUN], "--history https:/…"),
        (
            ["run", "--history", "postgresql://u:secret@h/d", *RUN],
            "--history postgresql://…: only `jobs` reads a database",
        ),
        (["run", "--history", "sqlite:///h.db", *RUN], "--history sqlite://…: only `jobs` reads a database"),
        (["estimate", "--history", "http://x:1", *RUN], "--history http://…"),
        (["run", "--history", "https://localhost:1", *RUN], "give --history-certs DIR, too"),
        (
            ["run", "--history", "https://localhost:1", "--history-certs", "none", *RUN],
            "--history-certs none: there is no such directory",
        ),
        (["run", "--history", "h.db", "--history-certs", ".", *RUN], "goes with --history https://HOST:PORT"),
        (["run", "--history-certs", ".", *RUN], "goes with --history https://HOST:PORT"),
        (["run", "--history", "train.py/h.db", *RUN], "--history train.py/h.db: cannot be written (Not a directory)"),
        (["run", "--history", "/proc/h.db", *RUN], "--history /proc/h.db: cannot be written"),
        (["run", "--setting", "window_seconds=0", *RUN], "window_seconds=0: must be a number of 1 or more"),
        (["run", "--backup", "tape", *RUN], "--backup tape: write off, peer"),
        (["run", "--backup", "disk=", *RUN], "--backup disk="),
        (["status", "nowhere"], "no such run directory"),
        (["status", "."], "no job.json"),
        (["scale", ".", "--ps", "2", "--workers", "2", "--rebalance"], "give --ps, --workers or both"),
        (["scale", ".", "--rebalance", "--replace", "ps-1"], "not allowed with"),
        (["scale", "."], "give --ps, --workers or both"),
        (["nonsense"], "nonsense"),
        ([], "required"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(words, part, capsys, tmp_path):
    before = sorted(tmp_path.iterdir())
    check_refused(words, part, capsys)
    assert sorted(tmp_path.iterdir()) == before


def test_a_resume_without_the_script_says_what_to_type(tmp_path, capsys):
    directory = RunDirectory(tmp_path / "job 1")
    directory.path.mkdir()
    directory.store.touch()
    began = {"cwd": str(tmp_path), "arguments": ["run", "--ps", "2", *RUN]}
    directory.describe({"job": "x", "aimaster": "", "command": ["python", "train.py"], **began})
    check_refused(
        ["run", "--resume", "--workdir", str(directory.path)],
        f"cd {tmp_path} && deeprec-ext run --workdir '{directory.path}' --resume --ps 2 -- python train.py", capsys,
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ["run"], ["run", "--ps", "two"], ["status", "nowhere"], ["scale", "nowhere", "--ps", "2"],
        ["plan", "--replay", "nowhere"], ["decisions", "nowhere"], ["simulate", "nowhere"], ["report", "nowhere"],
        ["graph", "nowhere"], ["estimate"], ["estimate", "--ps", "3"], ["jobs", "--limit", "0"],
        ["submit", "nowhere.yaml"], ["evaluate"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_with_json_an_error_is_json_as_well(words, capsys):
    try:
        assert main([*words, "--json"]) == 2
    except SystemExit as error:  # argparse
        assert error.code == 2
    told = capsys.readouterr()
    error = json.loads(told.out)["error"]
    assert error and error in told.err and told.err.count("\n") == 1
    if words == ["run", "--ps", "two"]:
        with pytest.raises(SystemExit):
            main([*words, "--", "train.py", "--json"])
        assert capsys.readouterr().out == "", "the flag is the script's own"


LONG = "x" * 300  # a file name has 255 bytes at the most


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--dry-run", "--workdir", LONG, *RUN],
        ["status", LONG],
        ["report", LONG],
        ["scale", LONG, "--ps", "2"],
        ["simulate", LONG],
        ["plan", "--replay", LONG],
    ],
)
def test_a_name_that_is_too_long_is_bad_usage(words, capsys):
    check_refused(words, "File name too long", capsys)


def test_a_directory_that_nobody_may_look_into_is_bad_usage(tmp_path, capsys, monkeypatch):
    """Tests run as root, too, who may: so the operating system is asked, and its answer is another."""
    real = os.stat

    def stat(path, *more, **named):
        if str(path).endswith("of-others/run"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *more, **named)

    monkeypatch.setattr(os, "stat", stat)
    check_refused(["status", str(tmp_path / "of-others" / "run")], "of-others/run: Permission denied", capsys)
    with pytest.raises(IsADirectoryError):  # no word of the user's: an error of ours, with where it was
        monkeypatch.setattr(os, "stat", partial(_raised, IsADirectoryError(errno.EISDIR, "Is a directory", "x")))
        main(["status", str(tmp_path / "of-others" / "run")])


@pytest.mark.parametrize("command", [main, kubectl])
def test_ctrl_c_before_the_command_has_begun_is_one_line(command, capsys, monkeypatch):
    monkeypatch.setattr(importlib, "import_module", partial(_raised, KeyboardInterrupt()))
    assert command(["status", "run"]) == 130
    assert capsys.readouterr().err == "deeprec-ext: stopped before anything was started\n"


def _raised(error, *_, **__):
    raise error


def test_a_dry_run_says_what_would_start_and_starts_nothing(capsys, tmp_path):
    before = sorted(tmp_path.iterdir())
    assert main(["run", "--dry-run", "--json", "--workers", "0", "--evaluator", *RUN]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["roles"] == ["aimaster", "ps-0", "ps-1", "chief-0", "evaluator-0"]
    assert plan["limits"]["slots"] == 8
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("workdir", "part"),
    [
        ("/proc/x", "--workdir /proc/x: cannot be made"),
        ("/proc/sys", "--workdir /proc/sys: cannot be written"),
        ("train.py/run", "cannot be made (Not a directory)"),
        ("taken", "a job is running in it"),
    ],
)
def test_a_dry_run_refuses_the_directory_that_a_run_refuses(workdir, part, capsys, tmp_path):
    (tmp_path / "taken").mkdir()
    with RunDirectory(tmp_path / "taken").lock():
        before = sorted(tmp_path.rglob("*"))
        check_refused(["run", "--dry-run", "--workdir", workdir, *RUN], part, capsys)
        check_refused(["run", "--workdir", workdir, *RUN], part, capsys)
        assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_leaves_nothing_of_the_directories_that_it_tries(capsys, tmp_path):
    assert main(["run", "--dry-run", "--workdir", "a/b/c", *RUN]) == 0
    assert not (tmp_path / "a").exists()
    (tmp_path / "a").mkdir()
    assert main(["run", "--dry-run", "--workdir", "a/b/c", *RUN]) == 0
    assert not list((tmp_path / "a").iterdir())


@pytest.mark.parametrize("words", [["--dry-run"], ["--setting", "colour=red"]])
def test_what_starts_nothing_leaves_no_history_behind(words, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    main(["run", *words, "--autoscale", "--history", "a/b/history.db", *RUN])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]


def test_a_dry_run_of_many_shows_ranges_and_what_has_grown(capsys):
    assert main(["run", "--dry-run", "--ps", "10000", *RUN]) == 0
    told = capsys.readouterr().out
    assert "aimaster, ps-0 to ps-9999 (10,000), chief-0, worker-0\n" in told and len(told) < 1000
    assert "limits: up to 10,000 PS and 20,000 slots instead of 4 and 8: --ps 10000 needs it" in told
    assert main(["run", "--dry-run", *RUN]) == 0
    told = capsys.readouterr().out
    assert "aimaster, ps-0, ps-1, chief-0, worker-0\n" in told and "limits:" not in told


def test_what_events_need_is_told_and_what_they_cannot_have_is_refused(capsys, tmp_path):
    (tmp_path / "grow.yaml").write_text("- {at_step: 5, scale: {ps: 99}}\n- {at_step: 6, scale: {workers: 7}}\n")
    assert main(["run", "--dry-run", "--events", "grow.yaml", *RUN]) == 0
    told = capsys.readouterr().out
    assert "limits: up to 99 PS and 198 slots instead of 4 and 8: the event `scale ps to 99 at step 5` needs it" in told
    assert "limits: up to 7 workers instead of 4: the event `scale workers to 7 at step 6` needs it" in told
    (tmp_path / "kill.yaml").write_text("- {at_step: 5, kill: ps-9}\n")
    for dry in ([], ["--dry-run"]):
        part = "there is never a ps-9; with --max-ps 4 they are ps-0 to ps-3"
        check_refused(["run", *dry, "--events", "kill.yaml", *RUN], part, capsys)
        part = "more PS than the 8 slots; raise --slots"
        check_refused(["run", *dry, "--max-ps", "4", "--events", "grow.yaml", *RUN], part, capsys)


@pytest.mark.parametrize("words", [["status"], ["graph"], ["scale", "--ps", "2"]])
def test_a_job_without_its_certificates_is_one_line(words, capsys, tmp_path):
    directory = RunDirectory(tmp_path)
    directory.describe({"job": "demo", "aimaster": "127.0.0.1:1"})
    with directory.lock():
        check_refused(
            [words[0], str(tmp_path), *words[1:]], f"{tmp_path}/certs/ca.pem: cannot be read (No such", capsys
        )


@pytest.mark.parametrize("name", ["workers", "worker0"])
def test_a_layout_has_each_of_its_names(name, capsys, tmp_path):
    assert main(["run", "--dry-run", "--json", "--layout", name, *RUN]) == 0
    assert json.loads(capsys.readouterr().out)["layout"] == "workers"


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "aimaster"])
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert "usage: deeprec-ext" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "code", "said"), [(["--help"], 0, "--tfjob"), (["--job", "j"], 2, "--listen")])
def test_the_aimaster_gets_its_flags_as_they_are(words, code, said):
    """`deeprec-ext aimaster` becomes `python -m deeprec_ext.aimaster`, so it takes another process to see."""
    command = [sys.executable, "-m", "deeprec_ext.cli.main", "aimaster", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=_environment())
    assert done.returncode == code, done
    assert said in done.stdout + done.stderr and "unrecognized" not in done.stderr


def test_an_ended_job_shows_its_summary(tmp_path, capsys):
    (tmp_path / "job.json").write_text('{"job": "j", "aimaster": "127.0.0.1:1"}')
    (tmp_path / "summary.json").write_text(
        '{"status": "succeeded", "steps": 7, "seconds": 1.5, "metrics": {"auc": 0.9}}'
    )
    assert main(["status", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "metrics: auc 0.9" in out
    assert "succeeded; 7 steps in 1.5 s" in out
    assert main(["scale", str(tmp_path), "--ps", "2"]) == 2
    assert "the job has ended" in capsys.readouterr().err


def test_logs_shows_the_last_lines(tmp_path, capsys):
    (tmp_path / "job.json").write_text('{"job": "j", "aimaster": "127.0.0.1:1"}')
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "ps-0.log").write_text("".join(f"line {number}\n" for number in range(50)))
    assert main(["logs", str(tmp_path), "ps-0", "--lines", "2", "--follow"]) == 0
    assert capsys.readouterr().out == "line 48\nline 49\n"
    assert main(["logs", str(tmp_path), "ps-7"]) == 2
    assert "there are ps-0" in capsys.readouterr().err


def test_logs_takes_the_only_role_of_a_kind(tmp_path, capsys):
    (tmp_path / "job.json").write_text('{"job": "j", "aimaster": "127.0.0.1:1"}')
    (tmp_path / "logs").mkdir()
    for name in ("chief-0", "worker-10", "worker-2", "aimaster"):
        (tmp_path / "logs" / f"{name}.log").write_text(f"of {name}\n")
    for role, said in (("chief", "of chief-0\n"), ("aimaster", "of aimaster\n"), ("worker-2", "of worker-2\n")):
        assert main(["logs", str(tmp_path), role]) == 0
        assert capsys.readouterr().out == said
    check_refused(["logs", str(tmp_path), "worker"], "worker: there are worker-2, worker-10; name one", capsys)
    check_refused(["logs", str(tmp_path), "ps"], "there are aimaster, chief-0, worker-2, worker-10", capsys)


def test_last_lines_of_a_file_longer_than_one_block(tmp_path):
    path = tmp_path / "long"
    path.write_bytes(b"".join(b"%060d\n" % number for number in range(5000)))
    with path.open("rb") as file:
        lines, end = last_lines(file, 3000)
    assert len(lines) == 3000
    assert int(lines[0]) == 2000
    assert end == 61 * 5000


@pytest.mark.parametrize("value", ["-4", "nan", "inf", "-inf"])
def test_a_setting_that_is_no_number_of_zero_or_more_is_refused(value, capsys, tmp_path):
    setting = f"gazer_seconds={value}"
    words = ["run", "--workdir", str(tmp_path), "--setting", setting, "--dry-run", "--", "python", __file__]
    assert main(words) == 2
    assert "must be a number of 0 or more" in capsys.readouterr().err


def test_a_directory_that_cannot_be_made_is_one_line(capsys, tmp_path):
    (tmp_path / "file").touch()
    assert main(["run", "--workdir", str(tmp_path / "file" / "run"), "--", "python", __file__]) == 2
    assert "cannot be made" in capsys.readouterr().err


def test_the_command_line_does_not_import_tensorflow():
    code = "import sys, deeprec_ext.cli.main as m; m.build_parser(); sys.exit('tensorflow' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], cwd=sys.path[0] or None, check=False, env=_environment()
        ).returncode
        == 0
    )


def _environment():
    import os
    from pathlib import Path

    import deeprec_ext

    return {**os.environ, "PYTHONPATH": str(Path(deeprec_ext.__file__).parent.parent)}


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("off", {"peer_backup": "off", "disk_backup": "off"}),
        ("peer", {"peer_backup": "on", "disk_backup": "off"}),
        ("disk=here", {"peer_backup": "off", "disk_backup": "{}/here"}),
        ("peer,disk=gs://bucket/b", {"peer_backup": "on", "disk_backup": "gs://bucket/b"}),
    ],
)
def test_backup_becomes_settings_and_a_relative_directory_is_the_callers(flag, expected, capsys, tmp_path):
    assert main(["run", "--dry-run", "--json", "--backup", flag, *RUN]) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert settings == {name: value.format(tmp_path) for name, value in expected.items()}


def test_where_only_the_launcher_is_left_status_says_who_knows_more(tmp_path, capsys, monkeypatch):
    def gone(directory: RunDirectory) -> None:
        raise UnreachableError("the AIMaster does not answer")

    monkeypatch.setattr("deeprec_ext.cli.status.JobClient.of", gone)
    directory = RunDirectory(tmp_path)
    directory.describe({"aimaster": "127.0.0.1:1", "job": "job"})
    with directory.lock():
        assert main(["status", str(directory.path)]) == 1
    said = "the AIMaster does not answer; its `deeprec-ext run` is still there, and says what it waits for"
    assert said in capsys.readouterr().err
