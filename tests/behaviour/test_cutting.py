"""An Estimator with one large table, as people write it: no PS has it alone, and what is saved is the whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.behaviour.jobs import COUNT, ROOT, RealJob, environment
from tests.behaviour.losses import Losses
from tests.behaviour.scripts import count

pytestmark = [pytest.mark.slow, pytest.mark.long]

MEGABYTES = 24
ROWS = MEGABYTES * 1_000_000 // 64
WIDE = 16_384
"""Floats in a row of `wide`: 335 MB."""
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


def memory(pid: int, line: str) -> int:
    """Bytes, of /proc; 0: it has ended."""
    try:
        words = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(one.split()[1]) << 10 for one in words.splitlines() if one.startswith(line)), 0)


@pytest.mark.timeout(400)
def test_a_ps_needs_room_for_its_own_parts_to_write_a_checkpoint_and_not_for_the_whole(begin):
    job = begin("--ps", "3", "--workers", "0", command=(*COUNT, "--wide", str(WIDE)))
    job.wait_scalable()
    Losses(job, 3).wait_protected()
    job.wait_training("chief-0")  # rows of all parts have been updated: from now on a read is a copy
    status = job.until(job.status, "status")
    servers = {role.pid: role.bytes for role in status.roles if role.role == pb.PS and role.state == "running"}
    whole = count.ROWS * WIDE * 4
    assert len(servers) == 3 and max(servers.values()) < 0.4 * whole
    before = {pid: memory(pid, "VmRSS") for pid in servers}
    highest = dict.fromkeys(servers, 0)
    for pid in servers:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the highest is from now on
    job.put("stop", json.dumps(["chief-0"]))

    def ended() -> bool:
        for pid in servers:
            highest[pid] = max(highest[pid], memory(pid, "VmHWM"))
        return job.process.poll() is not None

    assert job.happens(ended, 200), job.last_events()
    assert job.end() == 0, job.output
    for pid, own in servers.items():
        assert highest[pid] - before[pid] < 1.2 * own + 40e6, (highest, before, servers)
    assert max(highest[pid] - before[pid] for pid in servers) > 0.2 * whole, "it was looked at while they wrote"
    job.check_counts()
    reader = tf.train.load_checkpoint(str(job.directory / "model"))
    wide, narrow = reader.get_tensor("wide"), reader.get_tensor("sgd0")
    np.testing.assert_array_equal(wide.min(1), narrow[:, 0])
    np.testing.assert_array_equal(wide.max(1), narrow[:, 0])


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
