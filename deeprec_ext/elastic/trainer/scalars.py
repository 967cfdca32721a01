"""Figures of the job for TensorBoard, written by the chief into `<model directory>/gazer`.

A directory of its own: TensorBoard stops reading an event file once there is a newer one beside it, and the script's own
summaries are in the model directory.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping

import tensorflow as tf
from tensorflow.core.util import event_pb2

FOLDER = "gazer"
PREFIX = "deeprec/"

WRITE_SECONDS = 10.0
"""Least time between two points: a day is about 5 MB."""


class Scalars:
    """One event file, made with the first point. Methods raise tf.errors.OpError or OSError where it cannot be written.

    Args:
      directory: the model directory; anything that tf.io.gfile knows.
    """

    def __init__(self, directory: str, clock: Callable[[], float] = time.time) -> None:
        self._directory, self._clock = os.path.join(directory, FOLDER), clock
        self._writer: tf.io.TFRecordWriter | None = None

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """One point of each value, at this global step; on disk when this returns."""
        now = self._clock()
        if self._writer is None:
            tf.io.gfile.makedirs(self._directory)
            name = f"events.out.tfevents.{int(now)}.{socket.gethostname()}.{os.getpid()}"
            self._writer = tf.io.TFRecordWriter(os.path.join(self._directory, name))
            self._writer.write(event_pb2.Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
        event = event_pb2.Event(wall_time=now, step=step)
        for name, value in values.items():
            event.summary.value.add(tag=PREFIX + name, simple_value=value)
        self._writer.write(event.SerializeToString())
        self._writer.flush()
