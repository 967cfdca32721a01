"""A real job and the files of a pool, which the test writes: what the arbiter takes and gives back, and what the job bids."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deeprec_ext.arbiter.observed import Bid, Count
from deeprec_ext.decoding import built
from deeprec_ext.wholefiles import write_json
from tests.behaviour.jobs import RealJob
from tests.behaviour.scripts import shards
from tests.behaviour.test_data_ledger import SCRIPT, check, data, finish, trained, until_trained

pytestmark = pytest.mark.slow
WHY = "a job of higher priority came"
RECORDS, PACE = 40_000, ("--sleep", "0.25")
"""Until `finish`: a minute of four trainers, in which processes come on a busy machine as well."""


@pytest.mark.timeout(300)
def test_workers_are_given_back_in_seconds_and_come_again_and_no_record_is_lost(
    begin: Callable[..., RealJob], tmp_path: Path
) -> None:
    shards.write(str(tmp_path / "data"), RECORDS, 3)
    bids, allowed = tmp_path / "bid.json", tmp_path / "allowance.json"
    allowed.write_text('{"runs": true, "ps"')  # half of one: as good as none

    def allow(ps: int, workers: int, why: str) -> None:
        write_json(allowed, {"job": "a", "runs": True, "ps": ps, "workers": workers, "since": time.time(), "why": why})

    def bid() -> Bid | None:
        return built(Bid, json.loads(bids.read_text())) if bids.exists() else None

    def tells(size: Count) -> Bid | None:
        return told if (told := bid()) is not None and told.size == size and told.training else None

    job = begin(
        "--ps", "1", "--workers", "3", "--backup", "off", "--setting", f"bid_file={bids}", "--setting",
        f"allowance_file={allowed}", "--setting", "window_seconds=2",
        command=(*SCRIPT, "--data", str(tmp_path / "data"), "--records", str(RECORDS), "--epochs", "1", *PACE),
    )  # fmt: skip
    until_trained(job, 200)
    told = job.until(lambda: tells(Count(1, 3)), "its bid")
    assert told.wanted == Count(1, 3) and len(job.events("allowance_ignored")) == 1
    job.until(lambda: (told := bid()) is not None and told.worth, "what sizes are worth")
    job.until(lambda: len(job.roles_of("worker")) == 3, "three workers")

    allow(1, 1, WHY)
    [ended] = job.until(lambda: job.events("scaling_ended"), "what is given back")
    assert (ended["outcome"], ended["to_count"], ended["requested_by"], ended["reason"]) == (
        "committed",
        1,
        "arbiter",
        WHY,
    )
    [told_at] = [event["time"] for event in job.events("allowance")]
    committed = [event["time"] for event in job.events("scaling_state") if event["state"] == "RELEASE"]
    assert committed[0] - told_at < 10.0, "within seconds, on a machine that is busy as well"
    assert job.roles_of("worker") == ["worker-0"]
    status = job.until(job.status, "the AIMaster's answer")
    assert status.allowance == f"the arbiter allows 1 PS, 1 worker at present ({WHY})"
    told = job.until(lambda: tells(Count(1, 1)), "its bid with one worker")
    assert told.wanted == Count(1, 3)
    until_trained(job, trained(job) + 200)

    allow(9, 9, "there is room again")
    job.until(lambda: len(job.roles_of("worker")) == 3, "three workers again")
    finish(job)
    times = check(job, RECORDS, 1)
    assert data(job)["repeated"] == 0 and times.max() == 1
    made = [(one["from"], one["to"], one["outcome"], one["requested_by"]) for one in job.summary()["scaling"]]
    assert made == [(3, 1, "committed", "arbiter"), (1, 3, "committed", "arbiter")]
