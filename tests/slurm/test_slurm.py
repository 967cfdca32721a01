"""A whole job whose roles are jobs of a real Slurm."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from deeprec_ext.aimaster.failover.causes import GONE
from tests.behaviour.jobs import RealJob
from tests.behaviour.losses import Losses

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def jobs(states: str = "RUNNING,PENDING") -> dict[str, str]:
    """Name of the role → Slurm's number."""
    command = ["squeue", "--me", "--noheader", f"--states={states}", "--format=%i %j"]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()
    return {name.rpartition(".")[2]: number for number, name in map(str.split, lines)}


def test_a_job_grows_loses_a_ps_and_a_worker_and_ends_with_nothing_left(begin: Callable[..., RealJob]) -> None:
    job = begin("--ps", "2", "--workers", "1", "--setting", "peer_backup_seconds=0.5")
    losses = Losses(job, 3)
    job.wait_scalable()
    assert set(jobs()) == {"ps-0", "ps-1", "chief-0", "worker-0"}
    grown = job.scale(ps=3)
    assert grown is not None and grown.outcome == "committed"
    before = jobs()
    assert set(before) == {"ps-0", "ps-1", "ps-2", "chief-0", "worker-0"}
    losses.wait_protected()
    losses.remember_catalogue()

    losses.strike("ps-1")
    losses.wait_protected()
    subprocess.run(["scancel", before["worker-0"]], timeout=20, check=True)  # somebody else does
    job.until(lambda: jobs().get("worker-0", before["worker-0"]) != before["worker-0"], "another worker-0")
    job.wait_training("chief-0", "worker-0")
    after = jobs()
    assert {name for name in after if after[name] == before.get(name)} == {"ps-0", "ps-2", "chief-0"}

    assert job.finish() == 0, job.output
    assert jobs() == {}
    losses.check(slack=1)
    failures = {f"{one['role']}-{one['id']}": one["cause"] for one in job.summary()["failures"]}
    assert failures.pop("ps-1") in ("killed by signal 9", GONE), (
        "Slurm tells it once a second or more seldom: who misses it may be first"
    )
    assert failures == {"worker-0": "deleted: not by the launcher"}
