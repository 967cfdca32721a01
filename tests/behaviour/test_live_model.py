"""A script that runs its initialisers in every process, once its session is open, throws nothing away that is trained."""

from __future__ import annotations

import re

import pytest

from tests.behaviour.jobs import ROOT, RealJob

SCRIPT = str(ROOT / "tests" / "compat" / "scripts" / "init_everywhere.py")
HELD = "the script initialises the live model once more; that was held back: "


def steps_in(job: RealJob, role: str) -> list[int]:
    """The global step as the role has printed it, in all its lives."""
    return [int(step) for step in re.findall(r"^global_step: (\d+)$", job.log(role), re.MULTILINE)]


def goes_on(job: RealJob, role: str, lives: int) -> None:
    """Until the role trains in its so manieth life."""
    job.until(lambda: job.log(role).count(f"--- deeprec-ext: {role}, start") == lives, f"life {lives} of {role}")
    before = len(steps_in(job, role))
    job.until(lambda: len(steps_in(job, role)) > before, f"steps of {role}")


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.long
def test_a_script_that_initialises_in_every_process_loses_no_step_when_workers_come_and_are_killed(begin, tmp_path):
    slow = tmp_path / "slow"
    slow.touch()
    words = ("--steps", "3000", "--model_dir", str(tmp_path / "model"), "--slow_while", str(slow))
    job = begin("--strict", "--ps", "1", "--workers", "1", command=("python", SCRIPT, *words))
    goes_on(job, "chief-0", 1)
    goes_on(job, "worker-0", 1)
    job.wait_scalable()
    assert job.scale(workers=2).outcome == "committed"
    goes_on(job, "worker-1", 1)
    job.kill("worker-1")
    goes_on(job, "worker-1", 2)
    job.kill("chief-0")
    goes_on(job, "chief-0", 2)
    reached = max(steps_in(job, "worker-0"))
    slow.unlink()
    assert job.end(200) == 0, job.output

    for role in ("chief-0", "worker-0", "worker-1"):
        steps = steps_in(job, role)
        assert steps == sorted(steps), f"the global step of {role} has fallen: {steps}"
    assert max(steps_in(job, "worker-0")) >= reached > 10
    summary = job.summary()
    assert [(one["role"], one["steps_lost"]) for one in summary["failures"]] == [("worker", 0), ("chief", 0)]
    assert len(job.events("model_live")) == 1
    (notice,) = summary["notices"]
    assert notice["code"] == "initialisation-held-back" and notice["mended"]
    assert notice["roles"] == ["chief-0", "worker-0", "worker-1"]
    for role, lives in (("chief-0", 2), ("worker-0", 1), ("worker-1", 2)):
        assert job.log(role).count(HELD) == lives
        assert "only the chief initialises: give init_op to MonitoredTrainingSession's scaffold" in job.log(role)
