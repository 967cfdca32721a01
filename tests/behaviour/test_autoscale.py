"""`--autoscale` with real processes in real cgroups: it decides, the job changes, nothing is lost, the record replays."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.behaviour.jobs import HUNGRY, ROOT, RealJob, environment

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("groups_can_be_made")]

OFTEN = ("--autoscale", "--history", "off", "--setting", "decide_seconds=1", "--setting", "window_seconds=2")
MIB = 1 << 20
TABLES = ("--fields", "26", "--hidden", "64", "--state", "600000000", "--batch", "64", "--steps", "500")


def command(job: RealJob, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deeprec_ext.cli.main", *words, str(job.directory)], env=environment(), text=True,
        capture_output=True, timeout=60,
    )  # fmt: skip


def decisions(job: RealJob) -> list[dict[str, Any]]:
    shown = command(job, "decisions", "--json")
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)


@pytest.mark.smoke
def test_a_job_that_starts_small_grows_and_its_decisions_can_be_read_and_made_again(begin: Callable[..., RealJob]):
    job = begin(*OFTEN, "--worker-cpu", "0.3", "--ps-cpu", "0.5", "--max-ps", "1", "--max-workers", "1")
    job.wait_training("chief-0", "worker-0")
    job.until(lambda: len(job.events("scaling_ended")) == 1, "the end of the scaling")
    job.until(lambda: any(one["outcome"] for one in decisions(job)), "what came of it", every=1.0)
    assert job.finish() == 0, job.output
    job.check_counts()
    made = decisions(job)
    assert (made[0]["number"], made[0]["action"], made[0]["size"]["workers"]) == (0, "start", 0)
    grown = [one for one in made if one["action"] == "explore"]  # of one size nobody knows how good the model is
    assert len(grown) == 1 and grown[0]["size"]["workers"] == 1
    assert grown[0]["outcome"]["outcome"] == "committed" and grown[0]["outcome"]["examples_per_second_after"] > 0
    again = command(job, "plan", "--replay")
    assert again.returncode == 0, again.stdout + again.stderr


@pytest.mark.parametrize(
    ("speed", "why"),
    [
        pytest.param(70_000, "worker-0 was killed for lack of memory", id="at once"),
        pytest.param(10, "a minute and is full in", id="slowly", marks=pytest.mark.long),
    ],
)
def test_a_worker_that_needs_more_memory_is_given_it(begin: Callable[..., RealJob], speed: int, why: str):
    """After it was killed where it came without warning, and else before."""
    job = begin(
        *OFTEN, "--max-ps", "1", "--min-workers", "1", "--max-workers", "1", "--worker-memory", "1500MiB",
        "--max-worker-memory", "3GiB", command=HUNGRY,
    )  # fmt: skip
    job.wait_training("chief-0", "worker-0")
    job.put("eat-worker-0", f"1024 {speed}")
    job.until(lambda: job.events("decision_refused", "scaling_ended"), "an answer")
    assert [(one["kind"], one["target"], one["outcome"]) for one in job.events("scaling_ended")] == [
        ("resize", "worker", "committed")
    ]
    job.until(
        lambda: (one := job.role("worker-0")) is not None and one.process.memory_limit_bytes >= 2250 * MIB,
        "its new limit",
    )
    job.wait_training("worker-0", "chief-0")
    assert job.finish() == 0, job.output
    job.check_counts({"worker-0": 1})
    reasons = [one["reason"] for one in decisions(job) if one["action"] == "resize"]
    assert len(reasons) == 1 and why in reasons[0]
    causes = [one["cause"] for one in job.summary()["failures"]]
    assert causes == (["oom: memory limit of 1.6 GB"] if "killed" in why else [])


def test_the_declared_model_says_how_many_ps_there_are_before_it_exists(begin: Callable[..., RealJob]):
    """600 MB of variables and as much of copies of them: of PS of 1.6 GB three are needed, and there before anything is."""
    job = begin(
        "--autoscale", "--history", "off", "--max-ps", "6", "--max-workers", "0", "--max-ps-memory", "1600MB",
        "--setting", "decide_seconds=600", command=("python", str(ROOT / "benchmarks" / "stock" / "train.py"), *TABLES),
    )  # fmt: skip
    assert job.end() == 0, job.output
    (declared,) = job.events("declared")
    (formed,) = job.events("view_formed")
    (live,) = job.events("model_live")
    assert declared["bytes"] > 590e6 and formed["ps"] == 3
    assert declared["sequence"] < formed["sequence"] < live["sequence"]
    assert not job.events("scaling_ended") and not job.summary()["failures"], "it has written its last checkpoint too"
    start = decisions(job)[0]
    assert start["size"]["ps"] == 3 and "its variables need 3 PS" in start["reason"]
    (memory,) = job.summary()["estimator"]["ps_memory"]
    assert memory["low"] < memory["used"] < memory["high"], memory
