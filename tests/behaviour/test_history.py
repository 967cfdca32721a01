"""The history service with real jobs: what one has shown, the next one begins with."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.jobs import COUNT, RealJob, environment
from tests.unit.history.serving import Serving, serving

pytestmark = [pytest.mark.slow, pytest.mark.long]

SLEEPING = (*COUNT, "--sleep", "0.15")
"""Trainers that wait most of the time: each more brings as much as the first, also on a machine that is full."""

MEASURED_SECONDS = 26.0
"""Of a size: ten to settle, ten at least to be measured, and the samples of a busy machine come late."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Serving]:
    with serving(f"sqlite:///{tmp_path}/history.db", tmp_path) as found:
        yield found


def jobs(*flags: str) -> dict[str, Any]:
    shown = subprocess.run(
        [sys.executable, "-m", "deeprec_ext.cli.main", "jobs", "--json", *flags], env=environment(), text=True,
        capture_output=True, timeout=60,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def trained(job: RealJob, *roles: str) -> None:
    """For as long as a size has to be had to be measured."""
    job.wait_training(*roles)
    since = time.monotonic()
    job.until(lambda: time.monotonic() - since > MEASURED_SECONDS, f"{MEASURED_SECONDS:g} s of training", every=0.5)


def test_a_job_begins_with_the_size_that_another_one_has_shown(
    begin: Callable[..., RealJob], service: Serving, tmp_path: Path
) -> None:
    place = ("--history", str(service.writer("team", tmp_path / "certs")), "--history-certs", str(tmp_path / "certs"))
    first = begin("--ps", "1", "--workers", "0", *place, command=SLEEPING)
    trained(first, "chief-0")
    assert first.scale(workers=2)
    trained(first, "chief-0", "worker-0", "worker-1")
    assert first.finish() == 0, first.output
    found = jobs("--history", str(service.admin), "--history-certs", str(service.certificates))
    (kept,) = found["jobs"]
    assert (kept["namespace"], kept["script"], kept["status"]) == ("team", "scripts/count.py", "succeeded")
    assert sorted(one["size"]["workers"] for one in kept["windows"]) == [0, 2]
    assert kept["brought"]["changes"] == 1 and kept["brought"]["saved_seconds"] > 0
    second = begin("--autoscale", "--max-ps", "1", "--max-workers", "2", *place, command=SLEEPING)
    second.wait_training("chief-0", "worker-0")
    (decided,) = [event for event in second.events("decision") if event["number"] == 0]
    assert "1 job like it" in decided["reason"], decided
    assert not second.events("scaling_ended"), "it began so, it was not scaled"
    assert second.finish() == 0, second.output
