"""What is learnt does not depend on whether the job is scaled while it learns."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.behaviour.jobs import SCRIPTS, environment

pytestmark = [pytest.mark.slow, pytest.mark.long]

SCRIPT = str(SCRIPTS / "learn.py")
SEEDS = (1, 2, 3, 4, 5)


@pytest.mark.timeout(600)
def test_the_loss_of_a_scaled_run_is_within_the_spread_of_seeds_of_unscaled_ones(begin, tmp_path):
    from tests.behaviour.scripts.learn import STEPS, loss_of

    job = begin("--ps", "1", "--workers", "1", "--evaluator", command=("python", SCRIPT, "--seeds", "6"))
    job.wait_scalable()
    for request in ({"ps": 3}, {"workers": 2}, {"rebalance": True}, {"ps": 2}, {"workers": 1}):
        assert job.scale(**request).outcome == "committed"
    (job.directory / "scaled").touch()
    assert job.end() == 0, job.output
    summary = job.summary()
    assert summary["steps"] >= STEPS
    assert summary["metrics"]["global_step"] >= STEPS  # the evaluator has seen the last checkpoint
    assert summary["roles"]["evaluator-0"] == {"started": 1, "restarted": 0}
    scaled = loss_of(str(job.directory / "model-6"))

    words = [sys.executable, SCRIPT, "--model-dir", str(tmp_path), "--seeds", *map(str, SEEDS)]
    subprocess.run(words, env=environment(), check=True, capture_output=True, timeout=300)
    unscaled = [loss_of(str(tmp_path / f"model-{seed}")) for seed in SEEDS]
    spread = max(unscaled) - min(unscaled)
    assert min(unscaled) - spread <= scaled <= max(unscaled) + spread, (scaled, unscaled)
    assert max(unscaled) < 0.66  # something was learnt: knowing nothing costs 0.693
