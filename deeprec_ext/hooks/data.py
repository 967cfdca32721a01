"""`DataShardHook`: what the data ledger needs to know of the training loop."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf

from deeprec_ext import autoload
from deeprec_ext.elastic.trainer import process

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")


class DataShardHook(v1.train.SessionRunHook):
    """Gives leases back at once when training ends, instead of at the end of the process, so that nobody waits for them.

    Waiting for records and acknowledging them happens in the session, around each run. MonitoredSession gets this hook by
    itself when the process is elastic.
    """

    def __init__(self) -> None:
        autoload.install()
        self._trainer = process.trainer()

    def begin(self) -> None:
        if self._trainer is None:
            log.info("no AIMaster: DataShardHook does nothing; elastic datasets are read by this process alone")

    def end(self, session: Any) -> None:
        """Not called when training ends with an error: then the session may be recovered."""
        if self._trainer is not None:
            self._trainer.inputs.finish()
