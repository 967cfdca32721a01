"""A job that outlives its certificates and their authority: nobody is restarted, newcomers join, an AIMaster may die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.security import lifetimes
from tests.behaviour.jobs import COUNT, LONG, ROOT, PatientJob, environment

pytestmark = pytest.mark.slow


@pytest.fixture
def job(tmp_path: Path) -> Iterator[PatientJob]:
    pytest.importorskip("tensorflow")
    started = PatientJob(
        tmp_path / "run", ("--ps", "2", "--workers", "1"), (*COUNT, "--paced"), module="tests.behaviour.short_lived"
    )
    yield started
    started.close()


def life(job: PatientJob, name: str) -> lifetimes.Life:
    return lifetimes.read((job.directory / "certs" / f"{name}.pem").read_bytes())


def fresh(job: PatientJob) -> pb.StatusReply | None:
    """With the certificates as they are now."""
    job.connect_again()
    return job.status()


@pytest.mark.timeout(900)
def test_streams_go_on_newcomers_join_and_another_aimaster_is_found_after_all_first_certificates_have_ended(job):
    job.until(lambda: (job.directory / "job.json").exists(), "the description")
    first = {name: life(job, name) for name in ("ca", "aimaster", "admin")}
    authority = (job.directory / "certs" / "ca.pem").read_bytes()
    job.wait_scalable()
    before, aimaster = job.running(), job.pid("aimaster")
    registered = len(job.events("registered"))

    ended = max(one.ends for one in first.values())
    job.until(lambda: time.time() > ended + 1, "the end of the first certificates, and of their authority")
    job.wait_training("chief-0", "worker-0")
    assert all(life(job, name).ends > time.time() for name in first)
    assert (job.directory / "certs" / "ca.pem").read_bytes() != authority
    assert job.running() == before and job.pid("aimaster") == aimaster
    assert len(job.events("registered")) == registered, job.last_events()  # no stream has broken

    assert job.scale(workers=2).outcome == "committed"
    job.wait_training("worker-1")

    os.kill(aimaster, signal.SIGKILL)  # all connect again, the launcher too
    job.until(lambda: job.pid("aimaster") not in (0, aimaster), "another AIMaster")
    job.until(lambda: fresh(job), "its answer")
    roles = {*before, "worker-1"}
    job.until(
        lambda: {one["role"] for one in job.events("registered")[registered + 1 :]} >= roles,
        "all to register again",
        LONG,
    )
    job.wait_training("chief-0", "worker-0", "worker-1")
    assert {name: pid for name, pid in job.running().items() if name in before} == before  # nobody was restarted

    told = subprocess.run(
        [sys.executable, "-m", "deeprec_ext.cli.main", "status", str(job.directory), "--json"], env=environment(), cwd=ROOT,
        capture_output=True, text=True, timeout=LONG, check=True,
    )  # fmt: skip
    ends = json.loads(told.stdout)["certificates"]
    assert time.time() < ends["expire"] < time.time() + 60 and ends["renewed_from"] < ends["expire"]
    assert job.finish() == 0, job.output
    restarted = {name: one["restarted"] for name, one in job.summary()["roles"].items() if one["restarted"]}
    assert restarted == {"aimaster": 1}  # by the test: the launcher has found it again
    assert "cannot be renewed" not in job.output
