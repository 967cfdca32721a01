"""An Estimator with one large table, as people write it: no PS has it alone, and what is saved is the whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.behaviour.jobs import ROOT, RealJob, environment
from tests.behaviour.losses import Losses

pytestmark = [pytest.mark.slow, pytest.mark.long]

MEGABYTES = 24
ROWS = MEGABYTES * 1_000_000 // 64
CANNED = ROOT / "tests" / "behaviour" / "scripts" / "canned.py"
READ = """
import sys
import numpy as np
import tensorflow as tf
reader = tf.train.load_checkpoint(sys.argv[1])
shapes = reader.get_variable_to_shape_map()
tables = {name: shape for name, shape in shapes.items() if "embedding_weights" in name}
assert len(tables) == 2 and all(shape == [int(sys.argv[2]), 16] for shape in tables.values()), tables
assert not any("part_" in name for name in shapes), sorted(shapes)
values = [reader.get_tensor(name) for name in tables]
assert all(np.isfinite(one).all() for one in values)
assert min(len(np.unique(one[len(one) * part // 8 : len(one) * (part + 1) // 8])) for one in values for part in range(8)) > 1
print("global step", reader.get_tensor("global_step"))
"""
"""Stock TensorFlow: the table and its slot are there under their own names, whole, and every eighth of each was trained."""


def share(job: RealJob) -> float:
    """Of the fullest PS, 0 to 1."""
    status = job.until(job.status, "status")
    sizes = [role.bytes for role in status.roles if role.role == pb.PS and role.state == "running" and role.slots]
    return max(sizes) / sum(sizes)


@pytest.mark.timeout(400)
def test_a_large_table_is_spread_moves_and_survives_a_ps_and_is_saved_whole(begin, tmp_path):
    words = ("--model", "dnn", "--megabytes", str(MEGABYTES), "--directory", str(tmp_path))
    flags = ("--max-ps", "4", "--setting", "peer_backup_seconds=0.5", "--setting", "ps_heartbeat_limit_seconds=30")
    job = begin("--ps", "2", "--workers", "1", *flags, command=("python", str(CANNED), *words))
    job.wait_scalable()
    losses = Losses(job, 2)
    losses.wait_protected()
    parts = {one.name: one for one in job.catalogue().variables if "/part_" in one.name}
    assert len(parts) == 16 and all(one.bitmap for one in parts.values()), sorted(parts)
    assert share(job) <= 0.6

    job.kill("ps-1")
    losses.wait_event("promoted", 1)
    losses.wait_protected()
    assert job.scale(ps=3).outcome == "committed"
    assert share(job) <= 0.5  # eight parts on three
    assert job.scale(ps=2).outcome == "committed"
    assert share(job) <= 0.6

    (tmp_path / "model" / "stop").touch()
    assert job.end(120) == 0, job.output
    assert [one["recovered_by"] for one in job.summary()["failures"]] == ["promotion"]
    read = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "model"), str(ROWS)], env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False,
    )  # fmt: skip
    assert read.returncode == 0, read.stdout[-3000:]


@pytest.mark.timeout(300)
def test_it_goes_on_from_a_checkpoint_of_stock_tensorflow_and_stock_from_its(begin, tmp_path):
    words = ["--model", "dnn", "--megabytes", str(MEGABYTES), "--directory", str(tmp_path)]

    def stock(steps: int) -> None:
        done = subprocess.run(
            [sys.executable, str(CANNED), *words, "--steps", str(steps)], env=environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:]

    stock(20)
    job = begin("--ps", "2", "--workers", "0", command=("python", str(CANNED), *words, "--steps", "300"))
    assert job.end(200) == 0, job.output
    steps = (tmp_path / "model" / "times-chief-0.txt").read_text().split()
    assert len(steps) == 280, "it has not begun at the checkpoint's step"
    stock(320)
    assert (tmp_path / "model" / "model.ckpt-300.index").exists()
    assert (tmp_path / "model" / "model.ckpt-320.index").exists()
