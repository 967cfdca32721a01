"""The verdict on a hard day: a good story passes, and whatever is missing in it is named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.day.reader import LIVE, PAGES, Missed, Reader
from benchmarks.day.strikes import Told
from benchmarks.day.verdict import BACK, story

TOLD = Told(
    failures=[("ps-0", "killed"), ("ps-1", "hung")],
    scalings=[(1, "scale-up", "ps", 2, 3, "rolled_back"), (2, "scale-up", "worker", 1, 2, "committed")],
    outages=[(10.0, 20.0)],
)
SUMMARY = {"roles": {"aimaster": {"started": 2, "restarted": 1}}}


def scaling(kind: str, role: str, before: int, after: int, outcome: str, reason: str = "") -> dict[str, Any]:
    return {"kind": kind, "role": role, "from_count": before, "to_count": after, "outcome": outcome, "reason": reason}


def failure(role: str, cause: str) -> dict[str, Any]:
    return {"role": role, "cause": cause, "recovered_seconds": 1.0, "recovered_by": "promotion"}


GOOD: dict[str, Any] = {
    "failures": [failure("ps-0", "killed by signal 9"), failure("ps-1", "hung: silent for 8 s")],
    "scalings": [
        scaling("scale-up", "ps", 2, 3, "rolled_back", "the AIMaster was restarted in FINAL_COPY"),
        scaling("replace", "ps", 1, 2, "committed", f"ps-0 {BACK}"),
        scaling("scale-up", "worker", 1, 2, "committed"),
        scaling("rebalance", "ps", 2, 2, "committed"),
    ],
    "decisions": [{"action": "start"}, {"action": "rebalance"}],
    "starts": {"aimaster": {"started": 2, "restarted": 1}},
    "warnings": ["no disk backup could be written to /somewhere: full; training goes on, and it is tried again"],
    "findings": [
        {"rule": "hot-slot", "subject": "slot-4", "text": "Slot 4 (table C1/embedding, on ps-0) alone has …"},
        {"rule": "backup-gap", "level": "problem", "text": "No disk backup was completed for 1:03"},
        {"rule": "straggler", "subject": "worker-0", "text": "worker-0 is a straggler"},
    ],
}


def broken(change: Callable[[dict[str, Any]], object]) -> list[str]:
    changed = copy.deepcopy(GOOD)
    change(changed)
    return story(TOLD, SUMMARY, "C1/embedding", "worker-0", changed)


def test_a_report_that_tells_everything_is_good():
    assert broken(lambda report: None) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda report: report["failures"].pop(), "report: failures [('ps-0', 'killed')] instead of"),
        (lambda report: report["failures"].append(failure("ps-0", "oom")), "report: failures"),
        (lambda report: report["failures"].reverse(), "report: failures"),
        (lambda report: report["failures"][0].update(cause="hung"), "report: failures"),
        (lambda report: report["failures"][0].update(recovered_seconds=None), "ps-0 never recovered"),
        (lambda report: report["failures"][0].update(recovered_by=""), "ps-0 recovered by nothing"),
        (lambda report: report["scalings"].pop(0), "no rolled_back scale-up ps 2 → 3"),
        (lambda report: report["scalings"][0].update(outcome="committed"), "no rolled_back scale-up ps 2 → 3"),
        (lambda report: report["scalings"][0].update(reason=""), "rolled back without a reason"),
        (lambda report: report["scalings"].pop(1), "no lost PS ever came back"),
        (lambda report: report["decisions"].pop(), "1 scalings that nobody asked for, 0 decided"),
        (lambda report: report["starts"].clear(), "report: the AIMaster's restarts are None, not 1"),
        (lambda report: report["warnings"].clear(), "0 warnings of the full disk"),
        (lambda report: report["warnings"].extend(report["warnings"]), "2 warnings of the full disk"),
        (lambda report: report["findings"].pop(0), "no finding names the hot table C1/embedding"),
        (lambda report: report["findings"][1].update(level="note"), "the minute without disk backups is no problem"),
        (lambda report: report["findings"][2].update(subject="chief-0"), "no finding names the slow worker-0"),
    ],
)  # fmt: skip
def test_what_a_report_does_not_tell_is_named(change: Callable[[dict[str, Any]], object], said: str):
    assert any(said in line for line in broken(change)), broken(change)


def test_a_restart_that_the_summary_does_not_know_is_named():
    said = story(TOLD, {"roles": {"aimaster": {"restarted": 0}}}, "C1/embedding", "worker-0", GOOD)
    assert len(said) == 1 and "the AIMaster was restarted" in said[0]


def test_the_dashboard_may_be_silent_only_while_the_aimaster_is_dead_and_after_the_end():
    reader = Reader.__new__(Reader)
    reader.answers, reader._last = dict.fromkeys([*PAGES, LIVE], 1), 90.0
    reader.missed = [Missed(15.0, "/", "refused"), Missed(95.0, LIVE, "ended")]
    assert reader.complaints([(14.0, 16.0)], 96.0) == []
    assert len(reader.complaints([], 96.0)) == 1
    assert len(reader.complaints([(14.0, 16.0)], 200.0)) == 1
    reader.answers.pop("/metrics")
    assert reader.complaints([(14.0, 16.0)], 96.0) == ["dashboard: /metrics was never answered"]
