"""Two real jobs that share the cores of one pool."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from deeprec_ext.launch.pool.places import PoolDirectory
from deeprec_ext.launch.pool.seen import look
from tests.behaviour.jobs import RealJob
from tests.behaviour.test_data_ledger import SCRIPT, check, data, finish, until_trained

pytestmark = pytest.mark.slow

POOL = ("--pool", "ads", "--pool-cores", "4", "--ps", "1", "--backup", "off")
WAIT_SECONDS = 40.0
"""For a change of the size, where other tests run as well; alone it takes a few."""


def cores(pool: PoolDirectory) -> dict[str, int]:
    """That the processes of each job count for, by the name of its run directory."""
    return {Path(one.job).name: one.chief + one.ps + one.workers for one in look(pool, time.time()).entries}


@pytest.mark.timeout(300)
def test_a_job_gives_way_to_another_and_takes_back_what_it_gave(begin, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    pool = PoolDirectory(tmp_path / "state" / "deeprec-ext" / "pools" / "ads")
    low: RealJob = begin(
        *POOL, "--workers", "2", command=(*SCRIPT, "--records", "40000", "--epochs", "2", "--sleep", "0.05")
    )
    until_trained(low, 1000)
    low.until(lambda: cores(pool) == {"run0": 4}, "all four cores")
    high: RealJob = begin(
        *POOL, "--workers", "0", "--priority", "10", command=(*SCRIPT, "--records", "4000", "--sleep", "0.02")
    )
    high.until(lambda: "run1" in cores(pool), "the second job", every=0.01)
    high.until(lambda: cores(pool).get("run1"), "room for the second job", WAIT_SECONDS)
    assert cores(pool) == {"run0": 2, "run1": 2}, "PS and chief of each"
    assert "waits for room in the pool ads: " in high.output
    assert high.end() == 0, high.tails()
    low.until(lambda: cores(pool) == {"run0": 4}, "its workers again", WAIT_SECONDS)
    low.until(lambda: len(low.roles_of("worker")) == 2, "its workers")
    finish(low)
    for job, records, epochs in ((high, 4000, 1), (low, 40_000, 2)):
        times = check(job, records, epochs)
        assert times.max() == epochs and data(job)["repeated"] == 0
    scalings = [(one["kind"], one["to_count"], one["outcome"]) for one in low.events("scaling_ended")]
    assert scalings[0] == ("scale-down", 0, "committed") and scalings[-1] == ("scale-up", 2, "committed"), scalings
    assert look(pool, time.time()).entries == ()
