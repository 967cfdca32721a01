"""The record of decisions: what is written is read, a killed writer harms nothing, and a replay decides the same again."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from deeprec_ext.autoscaler.observe.observed import Change, Loss, Observed, Size
from deeprec_ext.autoscaler.outcomes.brought import brought
from deeprec_ext.autoscaler.policy import record
from deeprec_ext.autoscaler.policy.decide import decide
from deeprec_ext.autoscaler.policy.decision import Decision
from deeprec_ext.autoscaler.policy.evidence import newest
from deeprec_ext.autoscaler.policy.record import Outcome, Record, bounded, digest, latest, read
from deeprec_ext.autoscaler.policy.replay import replay
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.errors import UsageError
from tests.unit.autoscaler.facts import fact
from tests.unit.autoscaler.policy.jobs import POLICY, Job, recorded_job, saturating, seen, windows

SIZE = Size(1, 1)


def decided(number: int, rate: float = 1000.0) -> tuple[Observed, Decision]:
    observed = seen(SIZE, rate, number=number)
    return observed, decide(observed, POLICY)


def filled(directory: Path, count: int) -> Record:
    writer = Record(directory, POLICY, lambda: 1000.0)
    for number in range(count):
        writer.add(*decided(number))
    return writer


def lines(directory: Path, name: str = record.NAME) -> list[dict]:
    return [json.loads(line) for line in (directory / name).read_text().splitlines()]


# ---------------------------------------------------------------------------------------------- written and read


def test_what_is_written_is_read(tmp_path):
    writer = Record(tmp_path, POLICY, lambda: 1234.5678)
    observed, decision = decided(0)
    writer.add(observed, decision)
    [entry] = read(tmp_path)
    assert entry.at == 1234.568
    assert entry.observed == observed
    assert entry.policy == POLICY
    assert entry.decision == dataclasses.replace(decision, inputs=digest(json.loads(observed.to_json())))
    assert entry.outcome is None
    assert latest(tmp_path) == entry


def test_what_decisions_brought_is_read_without_what_is_said_again_and_again(tmp_path, monkeypatch):
    recorded_job(tmp_path)
    whole, [*entries] = record.brought_by(read(tmp_path)), lines(tmp_path)
    kinds: list[str] = []

    def counted(observed, disturbance):
        for one in observed:
            kinds.extend(["window"] * len(one.windows) + ["role"] * len(one.roles))
        return brought(observed, disturbance)

    monkeypatch.setattr(record, "brought", counted)
    assert record.brought_in(tmp_path) == whole is not None
    told = {window["start"] for one in entries if one["kind"] == "decision" for window in one["observation"]["windows"]}
    assert kinds == ["window"] * len(told)
    with (tmp_path / record.NAME).open("a") as file:
        entries[0]["observation"]["windows"] = [{"start": 1.0}]
        file.write(json.dumps(entries[0]) + "\n")
    with pytest.raises(UsageError, match="damaged"):
        record.brought_in(tmp_path)


def test_an_outcome_is_joined_to_its_decision(tmp_path):
    writer = filled(tmp_path, 3)
    writer.outcome(1, "rolled_back", "no room " + 2000 * "x", math.nan)
    writer.outcome(2, "committed", "", 812.5)
    outcomes = [entry.outcome for entry in read(tmp_path)]
    assert outcomes[0] is None
    assert (outcomes[1].number, outcomes[1].outcome, outcomes[1].examples_per_second_after) == (1, "rolled_back", 0.0)
    assert len(outcomes[1].reason) == 1000
    assert outcomes[2] == Outcome(2, "committed", "", 812.5)


def test_what_the_policy_does_not_look_at_is_not_recorded(tmp_path):
    many = windows(SIZE, 1000.0, 0.0, count=200) + windows(Size(2, 1), math.nan, 2000.0)
    changes = tuple(fact(Change, float(n), "scale-up", "worker", 1, 2, "committed") for n in range(300))
    losses = tuple(fact(Loss, float(n), "worker-0", "killed") for n in range(300))
    observed = seen(SIZE, windows=tuple(many), time=5000.0, changes=changes, losses=losses)
    writer = Record(tmp_path, POLICY)
    writer.add(observed, decide(observed, POLICY))
    [entry] = read(tmp_path)
    assert len(entry.observed.windows) == POLICY.windows_of_noise  # all of one size, which is the present one
    assert entry.observed.windows == tuple(many[200 - POLICY.windows_of_noise : 200])
    assert entry.observed.changes == changes[-record.EVENTS_MAX :]
    assert entry.observed.losses == losses[-record.EVENTS_MAX :]


def test_tell_gives_the_decisions_after_one_and_nothing_before_the_first(tmp_path):
    assert Record(tmp_path, POLICY).tell(-1, 10) == []
    writer = filled(tmp_path, 5)
    writer.outcome(3, "committed", "", 900.0)
    told = [json.loads(text) for text in writer.tell(1, 2)]
    assert [one["decision"]["number"] for one in told] == [2, 3]
    assert told[0]["outcome"] is None
    assert told[1]["outcome"]["examples_per_second_after"] == 900.0
    assert len(writer.tell(-1, 100)) == 5


def test_what_is_told_is_read_once_when_the_writer_begins(tmp_path):
    filled(tmp_path, 3).outcome(1, "committed", "", 900.0)
    writer = Record(tmp_path, POLICY)
    for path in tmp_path.iterdir():
        path.unlink()
    writer.outcome(2, "rolled_back", "no room", 0.0)
    writer.add(*decided(3))
    told = [json.loads(text) for text in writer.tell(0, 10)]
    assert [one["decision"]["number"] for one in told] == [1, 2, 3]
    assert [one["outcome"] and one["outcome"]["outcome"] for one in told] == ["committed", "rolled_back", None]


def test_what_is_told_after_a_restart_is_what_was_told_before(tmp_path):
    writer = filled(tmp_path, 3)
    writer.outcome(1, "committed", "", 900.0)
    assert Record(tmp_path, POLICY).tell(-1, 10) == writer.tell(-1, 10)


def test_what_is_kept_to_be_told_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "TOLD_MAX", 3)
    for writer in (filled(tmp_path, 5), Record(tmp_path, POLICY)):
        assert [json.loads(text)["decision"]["number"] for text in writer.tell(-1, 10)] == [2, 3, 4]


def test_a_damaged_line_keeps_the_others_from_nobody(tmp_path):
    filled(tmp_path, 3)
    change(tmp_path, 1, {"decision": {"number": 1}})
    assert [json.loads(text)["decision"]["number"] for text in Record(tmp_path, POLICY).tell(-1, 10)] == [0, 2]


def test_numbers_go_on_after_a_restart(tmp_path):
    assert Record(tmp_path, POLICY).next_number == 0
    assert filled(tmp_path, 4).next_number == 4
    again = Record(tmp_path, POLICY)
    assert again.next_number == 4
    again.outcome(3, "committed", "", 1.0)
    assert Record(tmp_path, POLICY).next_number == 4


# ---------------------------------------------------------------------------------------------- torn and damaged


@pytest.mark.parametrize("keep", [1, 0.5, -1])
def test_a_torn_last_line_is_left_out_and_cut_before_the_next(tmp_path, keep):
    filled(tmp_path, 3)
    path = tmp_path / record.NAME
    whole = path.read_bytes()
    start = whole[:-1].rfind(b"\n") + 1
    last = whole[start:]
    torn = last[: keep if isinstance(keep, int) else int(keep * len(last))]
    path.write_bytes(whole[:start] + torn)
    assert [entry.decision.number for entry in read(tmp_path)] == [0, 1]
    writer = Record(tmp_path, POLICY)
    assert path.read_bytes() == whole[:start]
    assert writer.next_number == 2
    writer.add(*decided(2))
    assert [entry.decision.number for entry in read(tmp_path)] == [0, 1, 2]


def test_a_file_of_one_torn_line_is_begun_anew(tmp_path):
    (tmp_path / record.NAME).write_bytes(b'{"version":1,"kind":"deci')
    assert read(tmp_path) == []
    assert filled(tmp_path, 1).next_number == 1
    assert len(read(tmp_path)) == 1


def test_a_full_disk_leaves_no_torn_line_and_the_decision_is_written_later(tmp_path):
    import resource

    writer = filled(tmp_path, 2)
    path = tmp_path / record.NAME
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))
    try:
        writer.add(*decided(2))
        writer.outcome(2, "committed", "", 812.5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    writer.add(*decided(3))
    entries = read(tmp_path)
    assert [entry.decision.number for entry in entries] == [0, 1, 2, 3] and entries[2].outcome.outcome == "committed"


def change(directory: Path, index: int, values: dict) -> None:
    found = lines(directory)
    found[index].update(values)
    (directory / record.NAME).write_text("".join(json.dumps(line) + "\n" for line in found))


@pytest.mark.parametrize(
    "values, why",
    [
        ({"version": 2}, "has version 2, known is 1"),
        ({"kind": "guess"}, "no record of a decision"),
        ({"at": "noon"}, "damaged"),
        ({"at": None}, "damaged"),
        ({"observation": {}}, "no recorded observation"),
        ({"observation": {"version": 7}}, "version 7"),
        ({"observation": {"version": 1, "number": 1}}, "damaged"),
        ({"observation": {"version": 1, "windows": [3]}}, "damaged"),
        ({"policy": {"gain_min": 0.1}}, "policy is of another version"),
        ({"decision": [1]}, "damaged"),
        ({"decision": "keep"}, "damaged"),
        ({"decision": {"number": "two"}}, "damaged"),
        ({"decision": {"number": 1}}, "damaged"),
        ({"kind": "outcome", "number": [], "outcome": "", "reason": "", "examples_per_second_after": 1}, "damaged"),
        ({"kind": "outcome", "number": 1, "outcome": "", "reason": "", "examples_per_second_after": "?"}, "damaged"),
        ({"kind": "outcome", "number": 1}, "damaged"),
        (
            {"kind": "outcome", "number": math.inf, "outcome": "", "reason": "", "examples_per_second_after": 1},
            "damaged",
        ),
    ],
)
def test_a_damaged_line_in_the_middle_is_named(tmp_path, values, why):
    filled(tmp_path, 3)
    change(tmp_path, 1, values)
    with pytest.raises(UsageError, match=f"{record.NAME}, line 2.*{why}"):
        read(tmp_path)


@pytest.mark.parametrize(
    "part, name, value",
    [
        ("decision", "reason", None),
        ("decision", "time", "noon"),
        ("decision", "time", math.inf),
        ("decision", "slot_weights", ["much"]),
        ("decision", "prediction", {"coefficients": [], "before": "much"}),
        ("decision", "size", {"ps": 1, "workers": "two"}),
        ("observation", "hold", "no"),
        ("observation", "reclaimed", "ps-0"),
        ("observation", "limits", {"max_ps": []}),
        ("observation", "losses", [{"time": 1.0, "name": 3, "cause": "oom"}]),
    ],
)
def test_a_value_of_another_type_is_named(tmp_path, part, name, value):
    filled(tmp_path, 3)
    change(tmp_path, 1, {part: {**lines(tmp_path)[1][part], name: value}})
    with pytest.raises(UsageError, match=rf"line 2: is damaged.*{part}\.{name}"):
        read(tmp_path)


@pytest.mark.parametrize("text", ["{", "\xff\xfe", "[" * 100_000, "7", "{}", ""])
def test_a_line_that_is_none_is_named(tmp_path, text):
    filled(tmp_path, 3)
    path = tmp_path / record.NAME
    whole = path.read_text().splitlines()
    path.write_bytes("\n".join([whole[0], text, *whole[2:], ""]).encode("latin-1"))
    with pytest.raises(UsageError, match=f"{record.NAME}, line 2"):
        read(tmp_path)


def test_a_damaged_line_keeps_nobody_from_writing_the_next(tmp_path):
    filled(tmp_path, 3)
    change(tmp_path, 2, {"version": 9})
    assert Record(tmp_path, POLICY).next_number == 2


@pytest.mark.parametrize(
    "text", ["{", "[" * 100_000, "7", "", '{"version":1,"kind":"decision","decision":{"number":3}}']
)
def test_a_damaged_line_takes_nothing_from_what_the_others_have_foretold(tmp_path, text):
    recorded_job(tmp_path)
    path = tmp_path / record.NAME
    whole, foretold = path.read_text().splitlines(), Record(tmp_path, POLICY).foretold()
    assert len(foretold) >= 4 and min(foretold.values()) > 0
    path.write_text("\n".join([whole[0], text, *whole[1:], ""]))
    assert Record(tmp_path, POLICY).foretold() == foretold


def test_a_writer_that_begins_anew_knows_the_windows_of_the_last_decision(tmp_path):
    assert Record(tmp_path, POLICY).last() == ((), None)
    filled(tmp_path, 2)
    written = lines(tmp_path)
    assert Record(tmp_path, POLICY).last() == (decided(1)[0].windows, None)
    written[1]["observation"]["windows"] = [3]
    (tmp_path / record.NAME).write_text("".join(json.dumps(line) + "\n" for line in written))
    assert Record(tmp_path, POLICY).last() == ((), None)


def test_nothing_recorded_says_what_to_do(tmp_path):
    with pytest.raises(UsageError, match=r"no decisions were recorded.*--autoscale"):
        read(tmp_path)
    (tmp_path / record.NAME).touch()
    assert read(tmp_path) == []
    with pytest.raises(UsageError, match="no decision was recorded yet"):
        latest(tmp_path)


# ---------------------------------------------------------------------------------------------- bounds


def test_the_file_is_bounded_and_its_former_half_is_read_too(tmp_path, monkeypatch):
    filled(tmp_path, 1)
    line = (tmp_path / record.NAME).stat().st_size
    monkeypatch.setattr(record, "BYTES_MAX", int(3.5 * line))
    writer = Record(tmp_path, POLICY)
    for number in range(1, 8):
        writer.add(*decided(number))
    writer.outcome(4, "committed", "", 5.0)
    assert [one["decision"]["number"] for one in lines(tmp_path, record.FORMER)] == [3, 4, 5]
    entries = read(tmp_path)
    assert [entry.decision.number for entry in entries] == [3, 4, 5, 6, 7]
    assert entries[1].outcome is not None, "it stands in the other file"
    (tmp_path / record.NAME).unlink()
    assert Record(tmp_path, POLICY).next_number == 6
    assert len(read(tmp_path)) == 3


def test_a_line_that_is_too_long_is_not_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "LINE_BYTES_MAX", 1000)
    writer = filled(tmp_path, 1)
    assert writer.next_number == 1
    assert not (tmp_path / record.NAME).exists()
    assert writer.tell(-1, 10) == []


def test_a_line_longer_than_any_is_not_read_at_once(tmp_path, monkeypatch):
    (tmp_path / record.NAME).write_bytes(5000 * b"x" + b"\n")
    monkeypatch.setattr(record, "LINE_BYTES_MAX", 1000)
    with pytest.raises(UsageError, match="line 1: is longer than 1000 bytes"):
        read(tmp_path)


# ---------------------------------------------------------------------------------------------- replay


def test_a_replay_makes_every_decision_again_bit_for_bit(tmp_path):
    job = recorded_job(tmp_path)
    entries = read(tmp_path)
    acted = [entry.decision for entry in entries if entry.decision.action != "keep"]
    assert len(acted) == len(job.decisions) >= 4, "the job gives it something to decide"
    assert len(entries) > len(acted)
    results = replay(entries)
    assert all(one.same for one in results)
    assert [one.decision.to_json() for one in results] == [entry.decision.to_json() for entry in entries]
    assert all(one.differences == {} for one in results)


def test_the_recorded_part_of_an_observation_gives_the_same_decision(tmp_path):
    job = Job(SIZE, saturating(4000.0, 6.0))
    for _ in range(30):
        job.run(10.0)
        observed = job.observed()
        assert decide(bounded(observed, POLICY), POLICY) == decide(observed, POLICY)


def test_a_changed_observation_is_called_damaged(tmp_path):
    recorded_job(tmp_path)
    written = lines(tmp_path)
    (second,) = (one for one in written if one["kind"] == "decision" and one["decision"]["number"] == 2)
    second["observation"]["time"] += 1
    (tmp_path / record.NAME).write_text("".join(json.dumps(one) + "\n" for one in written))
    results = replay(read(tmp_path)[:3])
    assert [one.damaged for one in results] == [False, True, False]
    assert [one.same for one in results] == [True, False, True]
    assert "inputs" in results[1].differences


def test_what_an_older_release_has_recorded_is_read_replayed_and_not_called_damaged(tmp_path):
    """It wrote what is gone, and not what has come since."""
    recorded_job(tmp_path)
    written = lines(tmp_path)
    for line in written:
        if line["kind"] == "decision":
            older(line["observation"])
            line["decision"]["inputs"] = digest(line["observation"])
    (tmp_path / record.NAME).write_text("".join(json.dumps(one) + "\n" for one in written))
    results = replay(read(tmp_path))
    assert len(results) > 5 and all(one.same for one in results)


def older(observation: dict) -> None:
    """As version 1 had it."""
    observation["version"] = 1
    for window in observation["windows"]:
        window["disturbed"] = False
    for use in observation["roles"]:
        use["oom_kills"] = 0
        del use["stepless_seconds"]


def test_a_changed_decision_is_another_but_not_damaged(tmp_path):
    recorded_job(tmp_path)
    entry = next(entry for entry in read(tmp_path) if entry.decision.action == "scale")
    size = dataclasses.replace(entry.decision.size, workers=entry.decision.size.workers + 1)
    [result] = replay([dataclasses.replace(entry, decision=dataclasses.replace(entry.decision, size=size))])
    assert not result.same and not result.damaged
    assert list(result.differences) == ["size"]


def test_another_policy_may_decide_otherwise(tmp_path):
    recorded_job(tmp_path)
    results = replay(read(tmp_path), Policy(windows_min=50, obvious_gain=10.0))
    assert not any(one.damaged for one in results)
    assert any(one.differences for one in results)


def test_each_decision_is_replayed_with_the_policy_it_was_made_with(tmp_path):
    recorded_job(tmp_path, Policy(windows_min=5, obvious_gain=10.0))
    results = replay(read(tmp_path))
    assert all(one.same for one in results)
    assert not all(one.same for one in replay(read(tmp_path), POLICY))


def test_windows_in_which_sessions_were_prepared_count_where_a_size_has_no_others():
    known = [
        *windows(Size(1, 0), 100.0, 0.0), *windows(Size(1, 0), 60.0, 50.0, preparing=True),
        *windows(Size(2, 1), 150.0, 100.0, preparing=True),
    ]  # fmt: skip
    kept = newest(known, 12, 12)
    assert {(one.size.ps, one.preparing) for one in kept} == {(1, False), (2, True)}
    assert newest(kept, 12, 12) == kept  # what is recorded is what was looked at
