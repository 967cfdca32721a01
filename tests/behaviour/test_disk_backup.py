"""Disk backups of real jobs: written by the PS while training goes on, verified, exported, restored, and survived."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.behaviour.jobs import COUNT, ROOT, RealJob, check_counts, environment
from tests.behaviour.scripts import count

pytestmark = pytest.mark.slow


def backup(*words: object, code: int = 0) -> dict:
    """`deeprec-ext backup …` as JSON."""
    command = [sys.executable, "-m", "deeprec_ext.cli.main", "backup", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def cuts(job: RealJob) -> list[dict]:
    return job.events("disk_backup")


STUCK = {"chief-0": 1, "worker-0": 1}
"""A step that waits for its input has done already what needs none: dense variables, the global step."""


def check_all(directory: Path) -> int:
    """The checkpoint in `directory`/model holds what the counts in `directory`/count say, the tables exactly."""
    import numpy as np
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(directory / "model"))
    for block, role in enumerate(STUCK):
        told = np.load(directory / "count" / f"{role}.npy")[: count.BLOCK]
        for name in count.SGD:
            table = reader.get_tensor(name)[block * count.BLOCK : (block + 1) * count.BLOCK]
            np.testing.assert_array_equal(table, np.repeat(told[:, None], count.DIM, 1).astype("f4"), err_msg=name)
    return check_counts(directory, STUCK)


def stand_still(job: RealJob) -> int:
    """Training waits for its input, and a cut was begun since; its number."""
    for role in ("chief-0", "worker-0"):
        job.stick(role)

    def steps():
        return [job.steps_of(role) for role in ("chief-0", "worker-0")]

    before = [None, None]

    def still() -> bool:
        before[:] = before[1], steps()
        return before[0] == before[1]

    job.until(still, "the end of the last step", every=0.5)
    newest = len(cuts(job))
    job.until(lambda: len(cuts(job)) >= newest + 2, "a cut that was begun after that")
    return cuts(job)[-1]["cut"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("v1", [(), pytest.param(("--v1",), marks=pytest.mark.long)], ids=["resource", "reference"])
def test_what_was_trained_comes_back_from_the_disk(begin, tmp_path, v1):
    place = tmp_path / "backup"
    flags = ("--ps", "2", "--workers", "1", "--backup", f"disk={place}", "--setting", "disk_backup_seconds=1")
    command = (*COUNT, "--paced", "--sleep", "0.02", *v1)
    job = begin(*flags, command=command)
    job.wait_scalable()
    job.until(lambda: {True, False} <= {one["base"] for one in cuts(job)}, "a base and a delta")
    cut = stand_still(job)

    # What is on the disk is what was trained: exactly, and for stock TensorFlow too.
    assert backup("verify", place)["damaged"] == []
    other = tmp_path / "run1"  # of the second job below
    shutil.copytree(job.directory / "count", other / "count")
    restored = backup("restore", place, other / "model")
    assert restored["cut"] >= cut and restored["left_out"] == []
    steps = check_all(other)
    assert steps > 0
    exported = backup("export", place, tmp_path / "out" / "model.ckpt-1")
    assert exported["step"] == restored["step"] >= steps

    # Both PS at once: nobody is left to take over, and nothing that was trained before the cut is lost.
    job.kill("ps-0"), job.kill("ps-1")
    job.until(lambda: job.events("disk_restored"), "the restore from the disk")
    job.unstick("chief-0"), job.unstick("worker-0")
    job.wait_training("chief-0", "worker-0")
    assert "Restoring parameters" not in job.log("chief-0")
    restored_at = job.events("disk_restored")[0]["sequence"]
    [told] = job.events("restored")
    assert (told["source"], told["generation"]) == ("disk backup", 2)

    def later():
        return [one for one in cuts(job) if one["sequence"] > restored_at]

    job.until(lambda: {True, False} <= {one["base"] for one in later()}, "a base and a delta after the restore")
    assert later()[0]["base"]
    assert job.finish() == 0, job.output
    job.check_counts(kills=STUCK)
    assert told["steps_lost"] == max(one["steps_lost"] for one in job.summary()["failures"])

    # A flipped byte is named, and the cut before it is used.
    listed = backup("list", place)["cuts"]
    victim = sorted(place.glob(f"cut-{listed[0]['id']}-slot*"), key=lambda path: path.stat().st_size)[-1]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    verified = backup("verify", place, code=1)
    assert victim.name in verified["damaged"][0] and "flipped" in verified["damaged"][0]
    assert verified["newest"] == listed[1]["cut"]
    assert backup("export", place, tmp_path / "out" / "model.ckpt-2", "--dry-run")["cut"] == listed[1]["cut"]

    if v1:
        return  # a checkpoint does not tell the kinds of variables apart
    # The earlier one goes on in another job, with other slots and PS.
    for role in ("chief-0", "worker-0"):
        for name in (f"stick-{role}", f"done-{role}", "stop"):
            (other / "count" / name).unlink(missing_ok=True)
    second = begin("--ps", "3", "--slots", "12", "--workers", "1", "--backup", "off", command=command)
    second.wait_scalable()
    second.wait_training("chief-0", "worker-0")
    assert "Restoring parameters" in second.log("chief-0")
    assert second.finish() == 0, second.output
    assert second.check_counts(kills=STUCK) > steps


@pytest.mark.timeout(600)
def test_a_directory_that_cannot_be_written_is_one_warning_and_training_goes_on(begin, tmp_path):
    obstacle = tmp_path / "obstacle"
    obstacle.write_text("a file where the directory should be")
    flags = ("--ps", "2", "--workers", "1", "--backup", f"peer,disk={obstacle / 'backup'}")
    job = begin(*flags, "--setting", "disk_backup_seconds=0.5")
    job.wait_scalable()
    job.until(lambda: job.status().backup.error, "the error in the status")
    job.wait_training("chief-0", "worker-0")
    job.until(
        lambda: job.log("ps-0").count("write backup:") + job.log("ps-1").count("write backup:") >= 6, "more tries"
    )
    warnings = [one["text"] for one in job.events("warning") if "disk backup" in one["text"]]
    assert len(warnings) == 1 and "obstacle" in warnings[0] and "training goes on" in warnings[0]
    assert not cuts(job)
    obstacle.unlink()
    job.until(lambda: cuts(job), "a cut after all")
    assert not job.status().backup.error
    assert job.finish() == 0, job.output
    job.check_counts()
    assert backup("verify", obstacle / "backup")["newest"]
