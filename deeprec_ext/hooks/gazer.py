"""`GazerHook`: what a script wants to have measured."""

from __future__ import annotations

import logging

import tensorflow as tf

from deeprec_ext import autoload
from deeprec_ext.elastic.trainer import process
from deeprec_ext.errors import UsageError

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")


class GazerHook(v1.train.SessionRunHook):
    """Only options: an elastic process is measured with or without it. It adds nothing to a step.

    Args:
      trace_seconds: least time between two traced steps of this trainer; 0: none, None: as the job has it (30 s).
      tensorboard: let the chief write its figures into `<model directory>/gazer`.
      sample_seconds: how often this process reports; None: as the job has it (2 s).

    Raises UsageError for times that make no sense.
    """

    def __init__(
        self, trace_seconds: float | None = None, tensorboard: bool = True, sample_seconds: float | None = None
    ) -> None:
        if trace_seconds is not None and not trace_seconds >= 0:
            raise UsageError(f"GazerHook(trace_seconds={trace_seconds}): give seconds, or 0 for no traces")
        if sample_seconds is not None and not sample_seconds > 0:
            raise UsageError(f"GazerHook(sample_seconds={sample_seconds}): give a positive number, or leave it out")
        autoload.install()
        trainer = process.trainer()
        if trainer is not None:
            trainer.gazer.wish(trace_seconds, sample_seconds, tensorboard)
        self._elastic = trainer is not None

    def begin(self) -> None:
        if not self._elastic:
            log.info("no AIMaster: GazerHook does nothing, this is stock training")
