"""What trains beside the PS is told while it does, and after the end; with `--strict` it ends the job."""

from __future__ import annotations

import re
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
    assert [one["code"] for one in job.events("unused_ps")] == ["no-variable-on-ps"]
    assert line in shown(job) and line in (job.directory / "report.html").read_text() and line in job.log("chief-0")
    assert "replica_device_setter(cluster=cluster)" in job.output
    assert strict.end() == 1, strict.output
    summary = strict.summary()
    assert summary["status"] == "failed" and summary["reason"].startswith(line)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("way", "remedy"),
    [
        ("ignores TF_CONFIG", "MonitoredTrainingSession(master=server.target"), ("no master", "TF_CONFIG"),
        ("keras", "model_to_estimator"),
    ],
)  # fmt: skip
def test_a_script_that_trains_on_this_machine_alone_is_told_while_it_does(begin, tmp_path, way, remedy):
    job = begun(begin, tmp_path, way, workers=1)
    job.until(lambda: told(job) == ["local-training"], "the notice")
    assert remedy in shown(job) and job.step() == 0
    strict = begun(begin, tmp_path, way, "--strict")
    (tmp_path / "goes on").unlink()
    assert job.end() == 0, job.output
    [notice] = job.summary()["notices"]
    assert notice["code"] == "local-training" and remedy in notice["remedy"] and job.summary()["status"] == "succeeded"
    assert strict.end() == 1, strict.output
    assert remedy in strict.summary()["reason"]


@pytest.mark.timeout(300)
def test_a_loop_with_a_gradient_tape_is_refused_while_it_goes_on(begin, tmp_path):
    job = begun(begin, tmp_path, "eager", workers=1)
    assert job.end() == 2, job.output
    assert (tmp_path / "goes on").exists(), "the script would have gone on"
    summary = job.summary()
    assert "a loop of its own" in summary["reason"] and "train_step" in summary["reason"]
    assert summary["status"] == "failed" and [one["code"] for one in summary["notices"]] == ["local-training"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_part_of_the_model_is_told_and_a_look_into_the_data_is_not(begin, tmp_path):
    job = begun(begin, tmp_path, "part")
    job.until(lambda: told(job) == ["variables-beside-ps"], "the notice")
    assert "(more)" in shown(job)
    (tmp_path / "goes on").unlink()
    assert job.end() == 0, job.output
    looks = begun(begin, tmp_path, "looks first", "--strict")
    looks.until(lambda: looks.step() > 100, "steps")
    (tmp_path / "goes on too").unlink()
    assert looks.end() == 0, looks.output
    assert looks.summary()["notices"] == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_raw_session_is_refused_by_name(begin, tmp_path):
    job = begun(begin, tmp_path, "raw session", workers=1)
    assert job.end() == 2, job.output
    reason = job.summary()["reason"]
    assert "tf.compat.v1.Session(server.target)" in reason and "MonitoredTrainingSession" in reason


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_reason_of_a_failure_is_the_error(begin, tmp_path):
    job = begun(begin, tmp_path, "wrong shapes")
    job.until(lambda: job.events("exited"), "the error")
    [exited] = job.events("exited")[:1]
    assert exited["last_line"] == "InvalidArgumentError: Incompatible shapes: [2] vs. [3]"
    assert job.end() == 1, job.output
    assert job.summary()["reason"].endswith("InvalidArgumentError: Incompatible shapes: [2] vs. [3]")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_estimator_without_a_directory_shares_one_with_its_evaluator(begin, tmp_path):
    command = ("python", str(BESIDE), "estimator")
    job = begin("--strict", "--ps", "1", "--workers", "1", "--evaluator", command=command)
    assert job.end(300) == 0, job.output
    [notice] = job.summary()["notices"]
    assert notice["code"] == "model-dir" and notice["mended"] and str(job.directory / "model") in notice["text"]
    assert set(notice["roles"]) == {"chief-0", "worker-0", "evaluator-0"}
    assert (job.directory / "model" / "checkpoint").exists()
    assert re.search(r"global step of the last checkpoint: 1\d\d", job.log("evaluator-0"))
    assert list((job.directory / "model" / "eval").glob("events.*")), "it has evaluated"
    own = begin("--strict", "--ps", "1", "--workers", "0", command=(*command[:2], "estimator of its own"))
    assert own.end() == 1, own.output
    assert "temporary directory" in own.summary()["reason"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_fit_that_runs_eagerly_is_refused_before_it_trains(begin, tmp_path):
    job = begun(begin, tmp_path, "fit")
    assert job.end() == 2, job.output
    assert "run_eagerly=True runs each op by itself" in job.summary()[
        "reason"
    ] and "the script has ended" not in job.log("chief-0")
