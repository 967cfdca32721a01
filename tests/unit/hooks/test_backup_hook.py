"""`BackupHook` outside a job, and what it refuses."""

from __future__ import annotations

import pytest
import tensorflow as tf

from deeprec_ext.errors import UsageError
from deeprec_ext.hooks import BackupHook


def test_without_an_aimaster_it_does_nothing() -> None:
    with tf.Graph().as_default():
        tf.compat.v1.train.get_or_create_global_step()
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=[BackupHook(disk="x", peer=False)]) as session:
            session.run(tf.compat.v1.train.get_global_step())


@pytest.mark.parametrize("wrong", [{"peer_seconds": 0}, {"peer_steps": -1}, {"disk_seconds": -0.5}])
def test_times_that_cannot_be_are_refused_by_name(wrong: dict) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        BackupHook(**wrong)
