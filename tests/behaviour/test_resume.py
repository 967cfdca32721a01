"""A run that was stopped goes on later, as it was: its size, its model, its data."""

from __future__ import annotations

import re
import signal

import numpy as np
import pytest

from tests.behaviour.jobs import RealJob
from tests.behaviour.scripts import shards
from tests.behaviour.test_data_ledger import PACE, SCRIPT, check, data, finish, until_trained

pytestmark = pytest.mark.slow

RECORDS, EPOCHS = 40_000, 2


@pytest.mark.smoke
@pytest.mark.timeout(500)
def test_a_stopped_run_goes_on_from_its_store_and_its_last_checkpoint(begin, tmp_path):
    import tensorflow as tf

    shards.write(str(tmp_path / "data"), RECORDS, 5)
    command = (*SCRIPT, "--data", str(tmp_path / "data"), "--records", str(RECORDS), "--epochs", str(EPOCHS),
               *PACE, "--checkpoint-steps", "150")  # fmt: skip
    first = begin("--ps", "1", "--workers", "0", command=command)
    first.wait_scalable()
    assert first.scale(ps=2).outcome == "committed"
    saved = first.log("chief-0").count("Saving checkpoints for")
    first.until(lambda: first.log("chief-0").count("Saving checkpoints for") > saved + 1, "a checkpoint of two PS")
    until_trained(first, 10_000)
    first.until(lambda: 20 < first.step() % 150 < 80, "a step between two checkpoints")
    before = max(int(step) for step in re.findall(r"Saving checkpoints for (\d+)", first.log("chief-0")))
    first.process.send_signal(signal.SIGINT)
    assert first.end() == 130, first.output
    told = [line for line in first.output.splitlines() if "--resume begins at step" in line]
    assert len(told) == 2 and "stopping, with a checkpoint" in told[0] and told[1].startswith("stopped: Ctrl-C; "), told
    stopped = first.summary()
    assert stopped["status"] == "stopped"
    kept = tf.train.load_checkpoint(str(first.directory / "model"))
    step, sum_kept = kept.get_tensor("global_step"), kept.get_tensor(shards.TABLE)[:, 0].sum()
    assert step > before, "it has written one when it was stopped"
    for at, line in ((before, told[0]), (step, told[1])):
        assert f"--resume begins at step {at:,}, of the checkpoint of " in line, (at, told)
    assert 0 < sum_kept < RECORDS * EPOCHS

    second = RealJob(first.directory, ("--resume", "--ps", "1", "--workers", "0"), command)
    try:
        second.wait_scalable()  # the AIMaster knows a step from before the stop, so steps alone say nothing
        assert len(second.roles_of("ps")) == 2, "the size that it had when it was stopped"
        finish(second)
    finally:
        second.close()
    assert f"model.ckpt-{step}" in second.log("chief-0").rpartition("--- deeprec-ext: chief-0, start")[2]
    assert f"(resumed at step {step:,} from the checkpoint, " in second.output.splitlines()[-2], second.output
    assert second.summary()["resumed"]["steps_lost"] == max(0, stopped["steps"] - step)
    times = check(second, RECORDS, EPOCHS)
    assert np.all(times <= EPOCHS + 1) and data(second)["lost"] == 0


@pytest.mark.timeout(500)
def test_a_change_that_was_under_way_holds_up_no_resumed_run(begin, tmp_path):
    """New PS wait for a model to prepare for, and a chief restores none while PS are being changed."""
    shards.write(str(tmp_path / "data"), RECORDS, 5)
    command = (*SCRIPT, "--data", str(tmp_path / "data"), "--records", str(RECORDS), "--epochs", "1", *PACE,
               "--checkpoint-steps", "50")  # fmt: skip
    first = begin("--ps", "1", "--workers", "0", command=command)
    first.wait_scalable()
    first.until(lambda: "Saving checkpoints for" in first.log("chief-0"), "a checkpoint")
    number = first.ask(ps=2).scaling_id
    first.wait_state(number, "ACQUIRE")
    first.process.kill()
    first.process.wait(10)
    second = RealJob(first.directory, ("--resume", "--ps", "1", "--workers", "0"), command)
    try:
        second.wait_scalable()
        [ended] = second.events("scaling_ended")
        assert (ended["outcome"], ended["reason"]) == ("rolled_back", "the job was stopped in ACQUIRE")
        assert "PREPARE" not in second.states(number) and second.roles_of("ps") == ["ps-0"]
        assert second.scale(ps=2).outcome == "committed"
        finish(second)
    finally:
        second.close()
    check(second, RECORDS, 1)
    assert second.events("restored")[-1]["steps_lost"] == second.summary()["resumed"]["steps_lost"]
