"""What a job leaves behind where its pods are gone: small, and the summary whatever becomes of the rest."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from deeprec_ext.aimaster.kubernetes import keeping, leaving
from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.autoscaler.policy.decision import Decision
from deeprec_ext.autoscaler.policy.record import Record
from tests.unit.autoscaler.policy.jobs import POLICY, seen


def recorded(directory: Path, count: int, reason: str = "faster") -> None:
    record, size = Record(directory, POLICY), Size(2, 1)
    for number in range(count):
        action = "keep" if number % 2 else "scale"
        record.add(seen(size, number=number), Decision(number, float(number), action, size, reason))
    record.outcome(0, "committed", "", 12.5)


def test_decisions_that_changed_something_are_kept_with_their_outcome(tmp_path: Path) -> None:
    assert leaving.decisions(tmp_path) == ""
    recorded(tmp_path, 4)
    found = json.loads(leaving.decisions(tmp_path))
    assert [one["decision"]["number"] for one in found] == [0, 2]
    assert found[0]["outcome"]["examples_per_second_after"] == 12.5 and found[1]["outcome"] is None


def test_of_too_many_decisions_the_newest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "DECISIONS_BYTES_MAX", 5000)
    recorded(tmp_path, 60, "x" * 500)
    text = leaving.decisions(tmp_path)
    numbers = [one["decision"]["number"] for one in json.loads(text)]
    assert len(text) <= 5000 and numbers[-1] == 58 and len(numbers) > 1


def test_a_damaged_record_does_not_take_the_summary_along(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "decisions.jsonl").write_text("no json\n")
    assert asyncio.run(leaving.gather(tmp_path)) == {"summary.json": "{}"}
    assert asyncio.run(leaving.report(tmp_path)) == {}  # this is no run directory


def test_a_report_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "REPORT_SECONDS", 0.0)
    assert asyncio.run(leaving.report(tmp_path)) == {}


def test_what_does_not_fit_is_left_out_the_summary_last() -> None:
    files = {"summary.json": "s" * 10, "decisions.json": "ä" * 10, "report.md": "r" * 5}
    assert list(keeping._fitting(files, 100)) == ["summary.json", "decisions.json", "report.md"]
    assert list(keeping._fitting(files, 20)) == ["summary.json", "report.md"]  # letters of two bytes
    assert list(keeping._fitting(files, 12)) == ["summary.json"]
    assert list(keeping._fitting({"summary.json": "ä", "report.html.gz": b"1234", "report.json.gz": b"12"}, 5)) == [
        "summary.json", "report.json.gz",
    ]  # fmt: skip


def test_each_form_of_a_report_has_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = {"markdown": "# ä\n", "html": "<p>" * 1000, "json": "{}"}
    found = leaving.fitting(forms)
    assert list(found) == ["report.md", "report.html.gz", "report.json.gz"], "the most important first"
    assert gzip.decompress(found["report.html.gz"]).decode() == forms["html"]  # type: ignore[arg-type]
    assert found["report.md"] == forms["markdown"] and len(found["report.html.gz"]) < 100
    monkeypatch.setattr(leaving, "PACKED_BYTES_MAX", len(found["report.json.gz"]))
    assert list(leaving.fitting(forms)) == ["report.md", "report.json.gz"]
    monkeypatch.setattr(leaving, "REPORT_BYTES_MAX", 4)
    assert list(leaving.fitting(forms)) == ["report.json.gz"], "bytes are counted, not letters"


def test_letters_that_no_file_has_do_not_cost_the_report() -> None:
    found = leaving.fitting({"markdown": "a\ud800", "html": "\ud800", "json": "{}"})
    assert found["report.md"] == "a?"
