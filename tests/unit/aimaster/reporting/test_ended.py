"""The summary of a job whose last scalings had not ended, and of what its autoscaler had predicted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deeprec_ext.aimaster.core.records import Failure, Scaling
from deeprec_ext.aimaster.reporting.ended import cut_short, outcome_of, seconds_of
from deeprec_ext.aimaster.reporting.summary import summarize, summarize_directory
from deeprec_ext.aimaster.scaling.machine import STOPPED, State
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.autoscaler.history.estimates import NAMES
from deeprec_ext.autoscaler.policy.record import NAME, VERSION


@pytest.mark.parametrize(
    "state, outcome",
    [
        (State.STEADY, "not_begun"), (State.ACQUIRE, "rolled_back"), (State.PREPARE, "rolled_back"),
        (State.PAUSE, "rolled_back"), (State.FINAL_COPY, "rolled_back"), (State.COMMIT, "committed"),
        (State.RELEASE, "committed"),
    ],
)  # fmt: skip
def test_what_had_not_ended_is_told_as_what_it_was(state: State, outcome: str) -> None:
    scaling = Scaling(1, "scale-up", "ps", want=3, state=state.value)
    assert outcome_of(scaling)[0] == outcome and "the job ended" in outcome_of(scaling)[1]
    assert outcome_of(Scaling(1, "scale-up", "ps", state="STEADY", outcome="refused", reason="no")) == ("refused", "no")


def test_what_the_end_of_its_job_has_cut_short_went_on_until_then_and_is_not_to_be_asked_for_again() -> None:
    acquiring = Scaling(1, "scale-up", "ps", want=3, state="ACQUIRE", started=100.0)
    assert seconds_of(acquiring, 250.0) == 150.0 and cut_short(acquiring)
    stopped = Scaling(2, "scale-up", "ps", outcome="rolled_back", reason=STOPPED, started=100.0, seconds=7.0)
    assert seconds_of(stopped, 250.0) == 7.0 and cut_short(stopped)
    failed = Scaling(3, "scale-up", "ps", outcome="rolled_back", reason="disk on fire", started=100.0, seconds=7.0)
    assert not cut_short(failed)
    assert seconds_of(Scaling(4, "scale-up", "ps"), 250.0) == 0.0, "its turn never came"


def test_the_summary_has_a_queued_one_without_counts_that_nobody_knows(tmp_path: Path) -> None:
    store = Store(tmp_path / "aimaster.db")
    store.save_scaling(Scaling(1, "scale-up", "worker", want=3, from_count=1, to_count=3, state="RELEASE"))
    store.save_scaling(Scaling(2, "scale-up", "ps", want=4, from_count=2, to_count=4))
    store.save_scaling(Scaling(3, "replace", "ps", added=("ps-1",)))
    store.save_failure(Failure(0, "ps-1", "killed by signal 9", 5.0, 0.1, pause_seconds=(1.5, 0.5)))
    summary = summarize(store, status="succeeded", seconds=1.0, roles={})
    told = [(one["outcome"], one["from"], one["to"]) for one in summary["scaling"]]
    assert told == [("committed", 1, 3), ("not_begun", 2, 4), ("not_begun", None, None)]
    assert summary["failures"][0]["pause_seconds"] == 1.5
    nothing = {name: [] for name in NAMES}
    assert summary["estimator"] == {"mape_holdout": None, "changes": 0, "brought": None, **nothing}


def decided(number: int, action: str, predicted: float) -> dict[str, object]:
    return {
        "version": VERSION, "kind": "decision", "at": 1.0, "observation": {}, "policy": {},
        "decision": {"number": number, "action": action, "prediction": {"examples_per_second": predicted}},
    }  # fmt: skip


def came(number: int, outcome: str, rate: float) -> dict[str, object]:
    return {
        "version": VERSION, "kind": "outcome", "number": number, "outcome": outcome, "reason": "",
        "examples_per_second_after": rate,
    }  # fmt: skip


def test_the_error_of_predictions_is_that_of_changes_which_were_made_and_measured(tmp_path: Path) -> None:
    Store(tmp_path / "aimaster.db").close()
    lines = [
        decided(0, "start", 900.0), came(0, "committed", 100.0), decided(1, "scale", 120.0), came(1, "committed", 100.0),
        decided(2, "scale", 100.0), came(2, "rolled_back", 50.0), decided(3, "keep", 70.0), decided(4, "scale", 90.0),
        came(4, "committed", 100.0), decided(5, "scale", 90.0), came(5, "committed", 0.0), decided(6, "scale", 1.0),
    ]  # fmt: skip
    (tmp_path / NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = summarize_directory(tmp_path, status="", seconds=0.0, roles={})["estimator"]
    assert found["changes"] == 2 and found["mape_holdout"] == pytest.approx(0.15)
    (tmp_path / NAME).write_text("no JSON\n")
    assert summarize_directory(tmp_path, status="", seconds=0.0, roles={})["estimator"]["mape_holdout"] is None
