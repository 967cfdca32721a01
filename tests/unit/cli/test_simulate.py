"""`simulate`: a trace through the command line, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deeprec_ext.cli.main import main
from deeprec_ext.cli.simulate import _load
from deeprec_ext.simulator.traces import shipped
from tests.unit.autoscaler.policy.jobs import recorded_job
from tests.unit.cli.usage import check_refused

TRACE = """
version: 1
cluster: {cores: 100, memory: 500GB}
jobs:
  - {name: one, examples: 3e6, limits: {max_ps: 3, max_workers: 4, resizable: true}}
  - {name: two, arrives: 60, examples: 2e6, objective: cheapest, limits: {max_ps: 3, max_workers: 4, resizable: true}}
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "mine.yaml").write_text(TRACE)
    return "mine.yaml"


def test_json_has_the_three_ways_and_is_the_same_each_time(path, capsys):
    assert main(["simulate", path, "--json", "--quiet", "--seed", "3"]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert captured.err == ""
    assert (told["trace"], told["seed"]) == ("mine", 3)
    assert [told[name]["jobs"] for name in ("policy", "twice", "best")] == [2, 2, 2]
    assert told["decisions"] > 0
    assert main(["simulate", path, "--json", "--quiet", "--seed", "3"]) == 0
    assert json.loads(capsys.readouterr().out) == told
    assert main(["simulate", path, "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["policy"] != told["policy"], "another seed, other hosts and noise"


def test_the_text_has_a_table_and_what_it_comes_to(path, capsys):
    assert main(["simulate", path]) == 0
    out = capsys.readouterr().out
    assert out.split("\n", 1)[0].split() == "mine: 2 jobs policy twice the best static size best static size".split()
    for title in ("completion, p90", "core hours wasted", "GB hours wasted", "deadlines missed, jobs failed"):
        assert title in out
    assert "waste against twice the best size: CPU " in out
    assert " decisions; " in out and " of 2 jobs converged" in out
    assert "started with" not in out


def test_jobs_has_one_line_each(path, capsys):
    assert main(["simulate", path, "--jobs", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    title = next(number for number, line in enumerate(lines) if "started with" in line)
    assert sorted(line.split()[0] for line in lines[title + 1 :]) == ["one", "two"]
    assert "1 PS, 1 worker, 2 cores" in lines[title + 1]


def test_another_policy_decides_otherwise(path, capsys):
    for words in ([], ["--set", "windows_min=50", "--set", "obvious_gain=10"]):
        assert main(["simulate", path, "--json", "--quiet", *words]) == 0
    first, end = json.JSONDecoder().raw_decode(out := capsys.readouterr().out)
    second = json.loads(out[end:])
    assert second["decisions"] < first["decisions"]
    assert second["best"] == first["best"], "static sizes do not change"


def test_a_fit_alone_and_with_a_trace(path, tmp_path, capsys):
    directory = tmp_path / "run"
    directory.mkdir()
    recorded_job(directory)
    assert main(["simulate", "--fit", "run"]) == 0
    assert capsys.readouterr().out.startswith("job model fitted to ")
    assert main(["simulate", "--fit", "run", path, "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["fit"]["mape"] < 0.1
    assert told["policy"]["jobs"] == 2


def test_a_file_of_the_same_name_comes_before_a_shipped_trace(tmp_path):
    assert len(_load("steady").jobs) == 24
    (tmp_path / "steady").write_text(TRACE)
    assert len(_load("steady").jobs) == 2
    assert shipped("steady").exists() and not shipped("steadily").exists()


@pytest.mark.parametrize(
    "words, part",
    [
        ([], "give a trace, or --fit DIR"),
        (["none.yaml"], "no such trace"),
        (["wrong.yaml"], "jobs[0]: unknown field 'speed'"),
        (["text.yaml"], "is no trace of version 1"),
        ([".", "--quiet"], "cannot be read"),
        (["steady", "--set", "nothing=1"], "no such policy setting"),
        (["steady", "--seed", "x"], "--seed"),
        (["--fit", "nowhere"], "no decisions were recorded"),
        (["narrow.yaml", "--quiet"], "job one: no size within its limits"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(words, part, tmp_path, capsys):
    (tmp_path / "wrong.yaml").write_text("version: 1\njobs: [{name: one, speed: 3}]\n")
    (tmp_path / "text.yaml").write_text("hello\n")
    (tmp_path / "narrow.yaml").write_text(
        "version: 1\njobs: [{name: one, objective: cheapest, start: {ps: 1, workers: 1}, "
        "limits: {max_ps: 2, max_workers: 2, max_ps_memory: 1GB, resizable: true}}]\n"
    )
    check_refused(["simulate", *words], part, capsys)
