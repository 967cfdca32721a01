"""A real job whose PS, or chief, lies on its own stream beside its work (`scripts/lying`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.behaviour import jobs
from tests.behaviour.jobs import COUNT

pytestmark = [pytest.mark.slow, pytest.mark.long]

LYING = Path(__file__).resolve().parent / "scripts" / "lying"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("liar", "lies"), [("ps-1", 150), ("chief-0", 150)])
def test_who_lies_beside_its_work_costs_nobody_anything(begin, monkeypatch: pytest.MonkeyPatch, liar: str, lies: int):
    """Of the chief's lies each that is refused costs it a connection."""
    honest = {"LYING": liar, "LIES": str(lies), **jobs.environment()}
    monkeypatch.setattr(jobs, "environment", lambda: {**honest, "PYTHONPATH": f"{LYING}:{jobs.ROOT}"})
    job = begin("--ps", "2", "--workers", "1", command=COUNT)
    job.wait_training("chief-0", "worker-0")
    job.wait_scalable()
    before = job.running()
    (job.directory / "lie").touch()
    job.until(lambda: (job.directory / f"lied-{liar}").exists(), "all lies to be told", 200)
    job.until(lambda: job.role(liar).suspect, "the liar to be named")
    status = job.status()
    assert status.state == "training" and not [one.name for one in status.roles if one.suspect and one.name != liar]
    assert 0 < status.step < 10**6 and status.backup.bytes_sent < 1 << 40
    step, after = job.step(), job.running()
    job.until(lambda: job.step() > step + 20, "training to go on")
    assert {name: after[name] for name in before} == before, "nobody was started anew"
    assert job.finish() == 0
    summary = job.summary()
    assert summary["status"] == "succeeded" and not summary["failures"] and list(summary["suspects"]) == [liar], summary
    assert summary["roles"]["aimaster"] == {"started": 1, "restarted": 0} and 0 < summary["steps"] < 10**6
    job.check_counts()
