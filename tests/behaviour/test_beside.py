"""What trains beside the PS is told while it does, and after the end; with `--strict` it ends the job."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.behaviour.jobs import ROOT, SCRIPTS, RealJob, environment

pytestmark = pytest.mark.slow

BESIDE = SCRIPTS / "beside.py"
MINUTE = 60.0


def begun(begin, tmp_path, way: str, *flags: str, workers: int = 0) -> RealJob:
    """It trains until the file `goes on`, or with flags `goes on too`, is gone."""
    file = tmp_path / ("goes on too" if flags else "goes on")
    file.touch()
    command = ("python", str(BESIDE), way, "--while", str(file))
    return begin("--ps", "1", "--workers", str(workers), *flags, command=command)


def told(job: RealJob) -> list[str]:
    """Codes of the notices, as `status` has them."""
    status = job.status()
    return [one.notice.code for one in status.notices] if status is not None else []


def shown(job: RealJob) -> str:
    """`deeprec-ext status`."""
    command = [sys.executable, "-m", "deeprec_ext.cli.main", "status", str(job.directory)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=MINUTE, env=environment(), cwd=ROOT, check=True
    )
    return done.stdout


def test_a_model_without_a_device_setter_is_told_and_strict_ends_it(begin, tmp_path):
    job = begun(begin, tmp_path, "no setter")
    job.until(lambda: told(job) == ["no-variable-on-ps"], "the notice")
    (tmp_path / "goes on").unlink()
    strict = begun(begin, tmp_path, "no setter", "--strict")
    line = "no variable that is trained is on a PS"
    assert job.end() == 0, job.output
    assert [one["code"] for one in job.summary()["notices"]] == ["no-variable-on-ps"]
    assert line in shown(job) and line in (job.directory / "report.html").read_text() and line in job.log("chief-0")
    assert "replica_device_setter(cluster=cluster)" in job.output
    assert strict.end() == 1, strict.output
    summary = strict.summary()
    assert summary["status"] == "failed" and summary["reason"].startswith(line)
