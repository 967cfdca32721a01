"""A graph of the size of public ones goes through the changes and a loss of PS, with its summaries and checkpoints.

It took 200 s where some thirty processes wanted two cores.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.behaviour.jobs import ROOT, PatientJob, environment
from tests.behaviour.losses import Losses

pytestmark = [pytest.mark.slow, pytest.mark.long]

RANKING = ROOT / "benchmarks" / "real_graphs" / "ranking.py"
SUMMARY_STEPS, CHECKPOINT_STEPS = 20, 50
TRAINERS = ("chief-0", "worker-0")

READ = """
import sys
import tensorflow as tf
model = sys.argv[1]
reader = tf.train.load_checkpoint(model)
names = reader.get_variable_to_shape_map()
assert any(name.endswith("Adagrad") for name in names) and len(names) > 20, sorted(names)
steps = set()
for path in tf.io.gfile.glob(model + "/events.out.tfevents*"):
    for event in tf.compat.v1.train.summary_iterator(path):
        steps |= {event.step for value in event.summary.value if value.tag == "gradient_norm"}
kept = tf.train.get_checkpoint_state(model).all_model_checkpoint_paths
print("read", int(reader.get_tensor("global_step")), len(kept), *steps)
"""
"""Stock TensorFlow: global step of the last checkpoint, how many there are, steps of the model's own summaries."""


@pytest.fixture
def job(tmp_path) -> Iterator[PatientJob]:
    pytest.importorskip("tensorflow")
    flags = (
        "--strict", "--ps", "1", "--workers", "1", "--max-ps", "2", "--backup", "peer",
        "--setting", "peer_backup_seconds=1", "--setting", "ps_heartbeat_limit_seconds=30",
    )  # fmt: skip
    sizes = ("--summary-steps", SUMMARY_STEPS, "--checkpoint-steps", CHECKPOINT_STEPS)
    made = PatientJob(tmp_path / "run", flags, ("python", str(RANKING), *map(str, sizes)))
    yield made
    made.close()


def wait_steps(job: PatientJob, count: int) -> int:
    """Until every trainer has made a step beyond so many more of all together; the highest."""
    before = job.step()

    def on() -> bool:
        roles = [job.role(name) for name in TRAINERS]
        return all(role is not None and role.heartbeat.step > before + count for role in roles)

    job.until(on, f"{count} steps after {before} of every trainer")
    return job.step()


@pytest.mark.timeout(1500)
def test_a_graph_of_real_size_is_scaled_and_outlives_a_ps_and_ends_with_its_script(job):
    losses = Losses(job, 2)
    job.wait_scalable()
    wait_steps(job, 2 * SUMMARY_STEPS)
    before = job.running()
    assert job.scale(ps=2).outcome == "committed"
    wait_steps(job, 2 * SUMMARY_STEPS)
    losses.wait_protected()
    killed = job.kill("ps-0")
    losses.wait_event("promoted", 1)
    wait_steps(job, SUMMARY_STEPS)
    losses.wait_protected()
    assert job.scale(ps=1).outcome == "committed"
    last = wait_steps(job, 2 * SUMMARY_STEPS)

    after = job.running()
    assert {name: after[name] for name in TRAINERS} == {name: before[name] for name in TRAINERS}
    assert killed == before["ps-0"] and killed not in after.values()
    for name in TRAINERS:  # the script's own way to end
        os.kill(job.pid(name), signal.SIGUSR1)
    assert job.end(300) == 0, job.output

    summary = job.summary()
    assert [(one["recovered_by"], one["steps_lost"]) for one in summary["failures"]] == [("promotion", 0)], summary
    assert {one["outcome"] for one in summary["scaling"]} == {"committed"}, summary["scaling"]
    print(summary["scaling"], summary["failures"])
    read = subprocess.run(
        [sys.executable, "-c", READ, str(job.directory / "model")], env=environment(), text=True,
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert read.returncode == 0, read.stderr[-3000:]
    reached, checkpoints, *summaries = map(int, read.stdout.split("read")[1].split())
    assert reached >= last and checkpoints > 1
    assert max(summaries) > last - 2 * SUMMARY_STEPS, "they go on after the last change"
    assert len(summaries) >= 0.8 * reached / (SUMMARY_STEPS * len(TRAINERS)), summaries
