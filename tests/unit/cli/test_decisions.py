"""`decisions`: what was decided, why, and what came of it."""

from __future__ import annotations

import json
import re

import pytest

from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.autoscaler.policy import record
from deeprec_ext.autoscaler.policy.decision import Decision, Prediction
from deeprec_ext.autoscaler.policy.record import Entry, Outcome, Record
from deeprec_ext.cli import decisions as module
from deeprec_ext.cli.decisions import came_of, predicted, what
from deeprec_ext.cli.main import main
from tests.unit.autoscaler.policy.jobs import POLICY, recorded_job, seen

SIZE = Size(2, 3)


def test_the_table_has_every_decision_with_its_reason_and_outcome(tmp_path, capsys):
    recorded_job(tmp_path)
    entries = record.read(tmp_path)
    assert main(["decisions", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    brought = next(place for place, line in enumerate(lines) if line.startswith("What the decisions brought"))
    told = [found.groups() for line in lines[1:brought] if (found := re.match(r" {1,9}(\d+)(?:–(\d+))? {2,}\d", line))]
    numbers = [number for first, last in told for number in range(int(first), int(last or first) + 1)]
    assert numbers == [entry.decision.number for entry in entries]
    assert "came of it" in lines[0] and "examples/s" in " ".join(lines[brought:])
    row = next(line for line in lines if "scale to" in line)
    assert "→" in row and "committed" in row


def test_on_a_narrow_terminal_a_reason_has_all_of_it(tmp_path, capsys, monkeypatch):
    recorded_job(tmp_path)
    monkeypatch.setattr(module, "WIDTH", 60)
    assert main(["decisions", str(tmp_path)]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    first = record.read(tmp_path)[0].decision
    place = next(place for place, line in enumerate(lines) if "scale to" in line)
    assert lines[place + 1].startswith("    ") and max(map(len, lines[: place + 3])) <= 60
    assert " ".join(line.strip() for line in lines).startswith(f"{first.number}")
    assert any(line.startswith("    predicted ") for line in lines) and any("committed" in line for line in lines)


def test_columns_that_are_empty_are_not_there(tmp_path, capsys):
    Record(tmp_path, POLICY).add(seen(SIZE), Decision(0, 0.0, "keep", SIZE, "it is well"))
    assert main(["decisions", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["#", "at", "decision", "why"]


def test_decisions_to_keep_that_follow_on_each_other_are_one_line(tmp_path, capsys):
    writer = Record(tmp_path, POLICY)
    for number in range(4):
        writer.add(seen(SIZE), Decision(number, 60.0 * number, "keep", SIZE, f"reason {number}"))
    writer.add(seen(SIZE), Decision(4, 240.0, "scale", Size(2, 4), "it grows"))
    writer.add(seen(SIZE), Decision(5, 300.0, "keep", SIZE, "reason 5"))
    assert main(["decisions", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    rows = [line.split()[0] for line in out.splitlines()[1:] if line[:4].strip()]
    assert rows[:3] == ["0–3", "4", "5"] and "reason 3" in out and "reason 0" not in out


def test_each_kind_of_reason_to_keep_the_size_is_a_line(tmp_path, capsys):
    writer = Record(tmp_path, POLICY)
    for number, reason in enumerate((
        "no throughput was measured yet at 2 PS, 3 workers, which the job has had for 13.1 s",
        "2 PS, 4 workers is predicted to train +43%; to try it may cost 17.0 s",
        "2 PS, 4 workers is predicted to train +40%; to try it may cost 450 ms",
        "3 PS, 3 workers is predicted to train +40%; to try it may cost 17.0 s",
    )):  # fmt: skip
        writer.add(seen(SIZE), Decision(number, 60.0 * number, "keep", SIZE, reason))
    assert main(["decisions", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    rows = [line.split()[0] for line in out.splitlines()[1:] if line[:4].strip()]
    assert rows[:3] == ["0", "1–2", "3"] and "450 ms" in " ".join(out.split())


def test_json_has_all_but_the_observations(tmp_path, capsys):
    recorded_job(tmp_path)
    assert main(["decisions", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["number"] for one in told] == [entry.decision.number for entry in record.read(tmp_path)]
    assert all("observation" not in one and one["reason"] for one in told)
    assert {one["outcome"]["outcome"] for one in told if one["outcome"]} == {"committed"}
    assert all(one["outcome"] is None for one in told if one["action"] == "keep")


def test_changes_leaves_out_what_keeps_the_size(tmp_path, capsys):
    job = recorded_job(tmp_path)
    assert main(["decisions", str(tmp_path), "--changes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["number"] for one in told] == [decision.number for decision in job.decisions]
    assert main(["decisions", str(tmp_path), "--changes"]) == 0
    assert "keep" not in capsys.readouterr().out


def test_before_the_first_decision(tmp_path, capsys):
    (tmp_path / record.NAME).touch()
    assert main(["decisions", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "nothing was decided yet\n"
    assert main(["decisions", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_words_in_brackets_are_shown_as_they_are(tmp_path, capsys):
    writer = Record(tmp_path, POLICY)
    writer.add(seen(SIZE), Decision(3, 160.0, "scale", Size(2, 4), "because [of] it"))
    writer.outcome(3, "refused", "no [red] pod", 0.0)
    assert main(["decisions", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "because [of] it" in out and "refused: no [red] pod" in out


@pytest.mark.parametrize("words, part", [(["nowhere"], "no such run directory"), (["."], "no decisions were recorded")])
def test_a_directory_without_a_record_is_one_line_and_exit_2(words, part, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["decisions", *words]) == 2
    captured = capsys.readouterr()
    assert part in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


# ---------------------------------------------------------------------------------------------- its words


@pytest.mark.parametrize(
    "action, replace, text",
    [
        ("start", "", "start at 2 PS, 3 workers"),
        ("scale", "", "scale to 2 PS, 3 workers"),
        ("resize", "", "resize to 2 PS, 3 workers"),
        ("replace", "worker-1", "replace worker-1"),
        ("rebalance", "", "rebalance"),
        ("keep", "", "keep"),
    ],
)
def test_what(action, replace, text):
    assert what(Decision(1, 0.0, action, SIZE, "", replace)) == text


def decision(action: str = "scale", error: float | None = 0.08) -> Decision:
    return Decision(1, 0.0, action, SIZE, "", prediction=Prediction(1900.0, 1200.0, error))


def test_predicted():
    large = Prediction(25_900.0, 12_469.4, None)
    assert predicted(Decision(1, 0.0, "scale", SIZE, "", prediction=large)) == "12,469 → 25,900 examples/s"
    assert predicted(decision()) == "1,200 → 1,900 examples/s ± 8%"
    assert predicted(decision(error=None)) == "1,200 → 1,900 examples/s"
    assert predicted(decision("keep")) == ""
    assert predicted(Decision(1, 0.0, "scale", SIZE, "")) == ""


@pytest.mark.parametrize(
    "outcome, text",
    [
        (None, "not known yet"),
        (Outcome(1, "rolled_back", "no room"), "rolled back: no room"),
        (Outcome(1, "committed", "", 1843.0), "committed: 1,843 examples/s, 3% less than predicted"),
        (Outcome(1, "committed", "", 2090.0), "committed: 2,090 examples/s, 10% more than predicted"),
        (Outcome(1, "rolled_back", "", 1200.0), "rolled back: 1,200 examples/s"),
        (Outcome(1, "committed"), "committed"),
    ],
)
def test_what_came_of_it(outcome, text):
    assert came_of(Entry(0.0, seen(SIZE), POLICY, decision(), "", outcome)) == text


def test_of_a_decision_that_keeps_nothing_is_awaited():
    assert came_of(Entry(0.0, seen(SIZE), POLICY, decision("keep"), "")) == ""
