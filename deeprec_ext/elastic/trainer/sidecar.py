"""The sidecar of a checkpoint: the data ledger's position, so that restoring one restores both.

`model.ckpt-<step>.ledger` is written before TensorFlow reads the first row of the checkpoint, hence before the `checkpoint`
file names it: the position is never ahead of what the checkpoint holds. Records trained in between are trained again after
a restore, none is left out.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from deeprec_ext.elastic.agent.inputs import Inputs

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

SUFFIX = ".ledger"


class LedgerListener(v1.train.CheckpointSaverListener):
    """Added to every CheckpointSaverHook of the chief.

    Args:
      prefix: the hook's save path without the step; asked at each save.
      saved: told the step of each checkpoint, when it is written.
    """

    def __init__(
        self, inputs: Inputs, prefix: Callable[[], str], saved: Callable[[int], None] = lambda step: None
    ) -> None:
        self._inputs, self._prefix, self._saved = inputs, prefix, saved

    def before_save(self, session: Any, global_step_value: int) -> None:
        if not self._inputs.has_training_data:
            return
        position = self._inputs.position()
        if position:
            write(f"{self._prefix()}-{global_step_value}", position)
        remove_old(self._prefix())

    def after_save(self, session: Any, global_step_value: int) -> None:
        self._saved(int(global_step_value))


def write(checkpoint: str, position: bytes) -> None:
    """Atomically, where the file system can rename."""
    path, draft = checkpoint + SUFFIX, checkpoint + SUFFIX + ".tmp"
    with tf.io.gfile.GFile(draft, "wb") as file:
        file.write(position)
    tf.io.gfile.rename(draft, path, overwrite=True)


def read(checkpoint: str) -> bytes:
    """Empty: the checkpoint has none."""
    try:
        with tf.io.gfile.GFile(checkpoint + SUFFIX, "rb") as file:
            return bytes(file.read())
    except tf.errors.NotFoundError:
        return b""


def remove_old(prefix: str) -> None:
    """Sidecars whose checkpoint TensorFlow has deleted; those of the newest step may be waiting for theirs."""
    paths = tf.io.gfile.glob(f"{prefix}-*{SUFFIX}")
    steps = {path: path[len(prefix) + 1 : -len(SUFFIX)] for path in paths}
    known = sorted((int(step), path) for path, step in steps.items() if step.isdigit())
    for step, path in known[:-1]:
        if not tf.io.gfile.exists(f"{prefix}-{step}.index"):
            with contextlib.suppress(tf.errors.OpError):
                tf.io.gfile.remove(path)


def note_restored(inputs: Inputs, checkpoint: str | None) -> None:
    """The chief has restored this checkpoint, or found none and initialised the model."""
    position = read(checkpoint) if checkpoint else b""
    if checkpoint and not position and inputs.has_training_data:
        log.warning(
            "%s has no data ledger beside it: records trained after it was written are not given again", checkpoint
        )
    inputs.note_restored(position, fresh=not checkpoint)
