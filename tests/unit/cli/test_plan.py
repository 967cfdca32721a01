"""`plan`: replays records, tries policies, estimates a start; never starts or changes anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deeprec_ext.autoscaler.policy import record
from deeprec_ext.autoscaler.policy.thresholds import NAMES
from deeprec_ext.cli.main import main
from tests.unit.autoscaler.policy.jobs import recorded_job
from tests.unit.cli.usage import check_refused


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """No history of the user is read, no file of the caller's directory."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (work / "train.py").write_text("print('hi')\n")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A run directory with a record."""
    path = tmp_path / "run"
    path.mkdir()
    (path / "job.json").write_text('{"job": "j", "aimaster": "127.0.0.1:1"}')
    recorded_job(path)
    return path


def tamper(directory: Path) -> int:
    """Makes a recorded decision another one; returns its number."""
    path = directory / record.NAME
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    line = next(one for one in lines if one["kind"] == "decision" and one["decision"]["action"] == "scale")
    line["decision"]["size"]["workers"] += 1
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return int(line["decision"]["number"])


# ---------------------------------------------------------------------------------------------- replay


def test_a_replay_of_an_honest_record_is_exit_0(directory, capsys):
    assert main(["plan", "--replay", str(directory)]) == 0
    out = capsys.readouterr().out
    count = len(record.read(directory))
    assert out == f"{count} decisions as they were recorded: {count} the same, 0 different\n"


def test_a_tampered_record_is_exit_1_and_shown(directory, capsys):
    number = tamper(directory)
    assert main(["plan", "--replay", str(directory)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"decision {number} at ")
    assert "recorded  scale to" in out and "now       scale to" in out
    assert "the same, 1 different" in out


def test_a_tampered_observation_is_called_changed(directory, capsys):
    path = directory / record.NAME
    lines = path.read_text().splitlines()
    values = json.loads(lines[1])
    values["observation"]["time"] += 1000.0
    path.write_text("\n".join([lines[0], json.dumps(values), *lines[2:], ""]))
    assert main(["plan", "--replay", str(directory), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["different"] == 1
    assert told["differences"][0]["observation_damaged"] is True
    assert main(["plan", "--replay", str(directory)]) == 1
    assert "the record was changed" in capsys.readouterr().out


def test_another_policy_may_decide_otherwise_and_says_so(directory, capsys):
    other = ["--set", "windows_min=50", "--set", "obvious_gain=10"]
    assert main(["plan", "--replay", str(directory), *other]) == 0
    out = capsys.readouterr().out
    assert "decisions by the policy given:" in out
    assert "recorded  scale to" in out and "now       keep" in out
    assert main(["plan", "--replay", str(directory), *other, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["policy"] == "another"
    assert told["decisions"] == len(record.read(directory))
    assert told["different"] == len(told["differences"]) > 0
    assert any("action" in one["fields"] for one in told["differences"])


def test_a_torn_last_line_is_no_difference(directory, capsys):
    path = directory / record.NAME
    path.write_bytes(path.read_bytes() + b'{"version":1,"kind":"decision","at":1.0,"obs')
    assert main(["plan", "--replay", str(directory)]) == 0
    assert "0 different" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------- the policy


def test_the_policy_has_every_setting_with_its_reason(capsys):
    assert main(["plan", "--policy"]) == 0
    out = capsys.readouterr().out
    assert all(f"{name} " in out for name in NAMES)
    assert "(default" not in out
    assert main(["plan", "--policy", "--json", "--set", "gain_min=0.3"]) == 0
    settings = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in settings] == list(NAMES)
    assert all(one["reason"] for one in settings)
    assert [one["name"] for one in settings if one["value"] != one["default"]] == ["gain_min"]


def test_a_changed_setting_is_shown_beside_its_default(capsys):
    assert main(["plan", "--policy", "--set", "gain_min=0.3"]) == 0
    assert "0.3 (default 0." in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------- a job


def test_a_job_that_does_not_run_says_so(directory, capsys):
    assert main(["plan", str(directory)]) == 2
    err = capsys.readouterr().err
    assert "the job has ended" in err
    assert err.count("\n") == 1


def test_another_policy_decides_from_the_newest_observation(directory, capsys):
    assert main(["plan", str(directory), "--set", "cheapest_share=0.2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    newest = record.latest(directory)
    assert told["number"] == newest.decision.number
    assert told["observed"].endswith("ago, as recorded")
    assert main(["plan", str(directory), "--set", "cheapest_share=0.2"]) == 0
    assert capsys.readouterr().out.startswith(f"{told['action']}")


def test_another_policy_without_a_record_says_what_to_do(tmp_path, capsys):
    (tmp_path / "job.json").write_text('{"job": "j", "aimaster": "127.0.0.1:1"}')
    assert main(["plan", str(tmp_path), "--set", "gain_min=0.1"]) == 2
    assert "no decisions were recorded" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------- before the start


def test_a_script_is_told_what_it_would_start_with(tmp_path, capsys):
    before = sorted(tmp_path.rglob("*"))
    assert main(["plan", "--", "python", "train.py", "--ps", "7"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("start with 1 PS, 0 workers")
    assert "confidence" not in out, "nobody has anything to be sure of; else the reason says it"
    assert main(["plan", "--json", "--", "python", "train.py"]) == 0
    start = json.loads(capsys.readouterr().out)
    assert (start["size"]["ps"], start["size"]["workers"]) == (1, 0)
    assert start["reason"] and 0 <= start["confidence"] <= 1
    assert sorted(tmp_path.rglob("*")) == before, "nothing was made"


# ---------------------------------------------------------------------------------------------- bad usage


@pytest.mark.parametrize(
    "words, part",
    [
        ([], "give one of"),
        (["--policy", "--replay", "."], "give one of"),
        (["nowhere"], "no such run directory"),
        (["."], "no job.json"),
        (["--replay", "nowhere"], "no decisions were recorded"),
        (["--policy", "--set", "gain_minn=1"], "did you mean gain_min"),
        (["--policy", "--set", "nothing=1"], "no such policy setting"),
        (["--policy", "--set", "gain_min"], "write name=value"),
        (["--policy", "--set", "gain_min=much"], "give a number"),
        (["--policy", "--set", "gain_min=-1"], "must be between"),
        (["--policy", "--set", "gain_min=0.1", "--set", "gain_min=0.2"], "is given twice"),
        (["--set", "gain_min=0.1", "--", "python", "train.py"], "--set"),
        (["--", "python", "missing.py"], "missing.py: no such script"),
        (["--unknown"], "unrecognized"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(words, part, capsys):
    check_refused(["plan", *words], part, capsys)


def test_a_damaged_record_is_one_line_and_exit_2(directory, capsys):
    path = directory / record.NAME
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{", *lines[2:], ""]))
    assert main(["plan", "--replay", str(directory)]) == 2
    err = capsys.readouterr().err
    assert "line 2: is no JSON" in err
    assert err.count("\n") == 1
