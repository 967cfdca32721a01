"""Reports of real runs: one that is running, one that crashed, and what a hot table and a slowed worker look like."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.gazer.report import as_json
from deeprec_ext.launch.records.story import read_story
from deeprec_ext.rundir import RunDirectory
from tests.behaviour.jobs import SCRIPTS, RealJob, environment

pytestmark = pytest.mark.slow


def report(directory: Path, *flags: str) -> str:
    """What `deeprec-ext report` prints."""
    words = [sys.executable, "-m", "deeprec_ext.cli.main", "report", str(directory), *flags]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def values(directory: Path) -> dict[str, Any]:
    return json.loads(report(directory, "--json"))


@pytest.mark.timeout(300)
@pytest.mark.long
def test_a_running_job_and_one_that_crashed_half_way_have_reports_that_say_so(begin):
    job = begin("--ps", "2", "--workers", "1")
    job.wait_scalable()
    job.wait_training("chief-0", "worker-0")
    page = Path(report(job.directory).strip())
    assert page == job.directory / "report.html"
    assert "still running" in page.read_text()
    assert values(job.directory)["state"] == "running"
    assert job.scale(workers=2).outcome == "committed"  # nobody was disturbed

    job.process.send_signal(signal.SIGKILL)  # the launcher: everything it started dies with it
    job.process.wait(30)
    directory = RunDirectory(job.directory)
    assert job.happens(lambda: not directory.in_use(), 30)
    assert not directory.summary.exists()
    found = values(job.directory)
    assert found["state"] == "crashed"
    assert found["findings"][0]["rule"] == "crashed"
    assert found["scalings"][0]["outcome"] == "committed"
    assert "left no summary" in report(job.directory, "--markdown")
    assert "left no summary" in Path(report(job.directory).strip()).read_text()


@pytest.mark.timeout(300)
def test_a_run_leaves_a_report_of_its_scaling_and_its_failure(begin):
    job = begin("--ps", "1", "--workers", "1")
    job.wait_scalable()
    assert job.scale(ps=2).outcome == "committed"
    job.kill("worker-0")
    job.until(lambda: job.events("recovered"), "recovery")
    assert job.finish() == 0, job.output
    page = (job.directory / "report.html").read_text()
    assert "scale-up ps 1 → 2" in page
    assert "worker-0 failed once: killed by signal 9" in page
    assert "The job succeeded" in page
    assert "no report" not in job.output


def test_a_report_that_cannot_be_written_is_a_line_in_the_log_and_not_a_failed_job(tmp_path):
    """The fake AIMaster of the launcher's tests leaves an empty database."""
    fakes = SCRIPTS.parent.parent / "unit" / "launch"
    words = [sys.executable, str(fakes / "fake_run.py"), "run", "--quiet", "--workdir", str(tmp_path / "run"), "--workers", "0",
             "--", "python", str(fakes / "fake_trainer.py"), "5", "0.02"]  # fmt: skip
    done = subprocess.run(words, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "no report was written" in done.stderr and "is empty" in done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "succeeded"
    assert not (tmp_path / "run" / "report.html").exists()


# ------------------------------------------------------------------------------------------- a hot table, a slowed worker

SIZES = ("--rows-per-table", "50000", "--dim", "8", "--batch", "256", "--steps", "1000000")
DEEPFM = ("python", str(SCRIPTS / "deepfm.py"), *SIZES)
CALM = ("ps_heartbeat_limit_seconds=30", "peer_backup=off", "standby_sessions_max=0")
"""On a busy machine: no PS is taken for hung, and no session is compiled that this test does not need."""
CALM_SECONDS = 75.0
"""Of training: findings take 20 s, and the machine may be busy with something else for some of it."""


class Bursts:
    """Stops a process for half of the time, a third of a second at a time."""

    def __init__(self, pid: int) -> None:
        self._pid, self._over = pid, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            while not self._over.is_set():
                os.kill(self._pid, signal.SIGSTOP)
                self._over.wait(0.35)
                os.kill(self._pid, signal.SIGCONT)
                self._over.wait(0.35)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGCONT)


@contextlib.contextmanager
def slowed(job: RealJob, role: str) -> Iterator[None]:
    with Bursts(job.pid(role)):
        yield


def enough(job: RealJob) -> bool:
    """Whether there is what findings are made from."""
    found = as_json.values(read_story(RunDirectory(job.directory)))
    load = found["load"]
    return found["calm_seconds"] > CALM_SECONDS and load is not None and load["traced_steps"] > 5


def train(begin, *options: str, slow: str = "") -> dict[str, Any]:
    """Trains DeepFM with two PS, a chief and a worker; the report's values.

    Nine slots, because variables go round them and every other one is an embedding: with eight all would be on one PS.
    """
    flags = ("gazer_seconds=1", "trace_seconds=2", "trace_budget=0.05", *CALM)
    job = begin(
        "--ps", "2", "--workers", "1", "--slots", "9", *(word for flag in flags for word in ("--setting", flag)),
        command=(*DEEPFM, *options),
    )  # fmt: skip
    job.wait_scalable()
    with slowed(job, slow) if slow else contextlib.nullcontext():
        job.until(lambda: enough(job), "calm time with traced steps", 300.0, every=5.0)
    job.process.send_signal(signal.SIGINT)
    job.end()
    found = values(job.directory)
    assert found["status"] == "stopped"
    page = (job.directory / "report.html").read_text()
    for finding in found["findings"]:
        assert finding["subject"] in page
    return found


def by_rule(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {finding["rule"]: finding for finding in found["findings"]}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_hot_table_and_a_slowed_worker_are_named(begin):
    found = train(begin, "--hot", "500", slow="worker-0")
    findings = by_rule(found)
    assert findings["straggler"]["subject"] == "worker-0", found["findings"]
    assert "C1/embedding" in findings["hot-slot"]["text"], (found["findings"], found["load"])
    assert found["load"]["slots"][0]["owner"] in findings["hot-slot"]["text"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_without_them_neither_is_named(begin):
    found = train(begin)
    assert not {"hot-slot", "hot-ps", "straggler"} & by_rule(found).keys(), (found["findings"], found["load"])
    assert "thin-evidence" not in by_rule(found)
