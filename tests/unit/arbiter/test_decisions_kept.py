"""The record of decisions, and decisions made again from it."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from deeprec_ext.arbiter import record
from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.observed import Cluster, Worth
from deeprec_ext.arbiter.record import Record, former, replay
from deeprec_ext.arbiter.rules import Rules
from deeprec_ext.errors import UsageError
from tests.unit.arbiter.clusters import bid, cluster, given, job, nodes, pod


def changing(rules: Rules = Rules()) -> list[Cluster]:  # noqa: B008
    """Two jobs, a serving pod that comes and goes, and observations between in which nothing changes."""
    seen = cluster([job("a", most=(0, 9)), job("b", power=None, priority=5)], nodes(2), [pod("serving", 9, 2.0)])
    found = [seen]
    for waiting in ((), (pod("serving", 9, 4.0),), (), ()):
        for later in (30.0, 31.0):
            seen = dataclasses.replace(given(seen, decide(seen, rules), later=later), waiting=waiting)
            found.append(seen)
    return found


def written(path: Path, clusters: list[Cluster], rules: Rules = Rules()) -> int:  # noqa: B008
    kept = Record(path, rules)
    return sum(kept.add(seen, decide(seen, rules)) for seen in clusters)


def test_only_what_changed_something_is_written_and_comes_out_the_same_again(tmp_path):
    path = tmp_path / "record.jsonl"
    clusters = changing()
    changed = [seen for seen in clusters if decide(seen).changed]
    assert 2 <= written(path, clusters) == len(changed) < len(clusters)
    found = list(replay(path))
    assert [one.cluster for one in found] == changed
    assert all(one.same and not one.differences for one in found)


def test_other_rules_show_what_they_would_decide(tmp_path):
    path = tmp_path / "record.jsonl"
    written(path, changing(), Rules(priorities="weight"))
    assert all(one.same and one.rules.priorities == "weight" for one in replay(path))
    found = list(replay(path, Rules()))
    assert any(not one.same for one in found)
    names = {name for one in found for name in one.differences}
    assert names <= {"a", "b"} and names


def test_a_line_has_only_the_jobs_that_are_not_as_in_the_line_before(tmp_path):
    path = tmp_path / "record.jsonl"
    jobs = [job(f"still-{at}", most=(0, 1), allowed=(0, 1), on="node-000") for at in range(50)]
    first = cluster([*jobs, job("comes")], nodes(1, 200.0))
    heard = [dataclasses.replace(one, silent_seconds=7.5) for one in jobs]
    second = cluster([*heard, job("comes", allowed=(0, 3), on="node-000")], nodes(1, 200.0))
    assert written(path, [first, second]) == 2
    lines = [len(line) for line in path.read_text().splitlines()]
    assert lines[1] < lines[0] / 4
    assert [one.cluster for one in replay(path)] == [first, second]


def test_another_writer_goes_on_after_a_torn_line(tmp_path):
    path = tmp_path / "record.jsonl"
    clusters = changing()
    count = written(path, clusters)
    with path.open("a") as file:
        file.write('{"version": 1, "ru')
    assert len(list(replay(path))) == count
    assert written(path, clusters) == count
    assert all(one.same for one in replay(path)) and len(list(replay(path))) == 2 * count


def test_the_file_is_bounded_and_the_one_before_it_is_read_too(tmp_path, monkeypatch):
    path = tmp_path / "record.jsonl"
    monkeypatch.setattr(record, "BYTES_MAX", 12_000)
    kept = Record(path)
    seen = changing()[0]
    for _ in range(60):
        assert kept.add(seen, decide(seen))
    assert path.stat().st_size <= 12_000 and former(path).stat().st_size <= 12_000
    found = list(replay(path))
    assert 2 <= len(found) < 60 and all(one.same for one in found)


def test_what_cannot_be_written_stops_nobody(tmp_path, caplog):
    kept = Record(tmp_path / "gone" / "record.jsonl")
    seen = changing()[0]
    assert not kept.add(seen, decide(seen)) and not kept.add(seen, decide(seen))
    assert [one.message for one in caplog.records if "the arbiter goes on without its record" in one.message] != []
    assert len(caplog.records) == 1


def test_lies_are_recorded_as_they_were_said(tmp_path):
    path = tmp_path / "record.jsonl"
    liar = job("liar", bid=bid((0, 1), (0, 7), (Worth(0, 1, math.nan), Worth(0, 2, math.inf)), left=-math.inf))
    assert written(path, [cluster([liar], nodes(1))]) == 1
    assert [one.same for one in replay(path)] == [True]


@pytest.mark.parametrize(("damage", "says"), [
    (lambda line: "{", "is no JSON"), (lambda line: "[]", "is no record"),
    (lambda line: json.dumps({**json.loads(line), "version": 9}), "has version 9, known is 1"),
    (lambda line: json.dumps({**json.loads(line), "cluster": {}}), "is damaged"),
    (lambda line: line.replace('"weight":1.0', '"weight":"much"'), "is damaged"),
])  # fmt: skip
def test_a_damaged_record_is_said_with_its_line(tmp_path, damage, says):
    path = tmp_path / "record.jsonl"
    written(path, changing())
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([first, damage(first), *rest]) + "\n")
    with pytest.raises(UsageError, match=f"line 2: {says}"):
        list(replay(path))


def test_a_record_that_is_not_there_is_said(tmp_path):
    with pytest.raises(UsageError, match="no decisions of an arbiter"):
        list(replay(tmp_path / "record.jsonl"))
