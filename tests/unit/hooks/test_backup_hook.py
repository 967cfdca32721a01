"""`BackupHook` outside a job, and what it refuses."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import tensorflow as tf

from deeprec_ext.elastic.trainer import process
from deeprec_ext.errors import UsageError
from deeprec_ext.hooks import BackupHook


def test_without_an_aimaster_it_does_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = BackupHook(disk=str(tmp_path / "x"), peer=False)
    with tf.Graph().as_default(), caplog.at_level(logging.INFO, "deeprec_ext"):
        step = tf.compat.v1.train.get_or_create_global_step()
        more = tf.compat.v1.assign_add(step, 1)
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            assert [session.run(more) for _ in range(3)] == [1, 2, 3]
    assert [record.getMessage() for record in caplog.records if "BackupHook" in record.getMessage()] == [
        "no AIMaster: BackupHook does nothing, this is stock training"
    ]
    assert process.trainer() is None and not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [{"peer_seconds": 0}, {"peer_steps": -1}, {"disk_seconds": -0.5}])
def test_times_that_cannot_be_are_refused_by_name(wrong: dict) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        BackupHook(**wrong)
