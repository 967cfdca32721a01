"""A learning rate by the number of the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from deeprec_ext.data import streams


class LearningRateScheduler(tf.keras.callbacks.Callback):
    """Sets the learning rate before each step of this process.

    Args:
      schedule: step -> learning rate. The step is the global one, of all workers together.

    Raises ValueError when `schedule` gives no number.
    """

    def __init__(self, schedule: Callable[[int], Any]) -> None:
        super().__init__()
        self._schedule = schedule
        self._rate: float | None = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        rate = self._schedule(self._step(batch))
        try:
            rate = float(rate)
        except (TypeError, ValueError):
            raise ValueError(f"the schedule of the learning rate gave {rate!r}, which is no number") from None
        if rate != self._rate:  # a step costs nothing for a rate that stays
            self._rate = rate
            optimizer = self.model.optimizer
            if hasattr(optimizer.learning_rate, "assign"):
                optimizer.learning_rate.assign(rate)
            else:
                optimizer.learning_rate = rate

    def _step(self, batch: int) -> int:
        home = streams.trainer()
        return int(home.clock.global_step if home is not None else self.model.optimizer.iterations)
