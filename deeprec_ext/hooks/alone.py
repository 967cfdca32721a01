"""A loop of eager TensorFlow 2 that trains in each process of a job without PS alone: seen, told, and refused where it goes on.

What an optimizer applies is counted, in functions too (its `iterations`), as long as nothing of this process sums. What trains
a little of its own first, and then calls `fit`, may do so.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from deeprec_ext import env
from deeprec_ext.elastic.member import joined
from deeprec_ext.tf_private import keras_classes

LOOK_SECONDS = 5.0
STEPS = 3
PATIENCE_SECONDS = 10.0
"""From when a loop was seen until it is told; as long again, and it is refused if it goes on."""

REASON = (
    "the script trains in eager TensorFlow 2, in a loop of its own: each process would train a model of its own; put what the "
    "loop does with its GradientTape into `train_step` of a keras.Model and call `fit`, or sum its gradients with "
    "`deeprec_ext.allreduce`"
)

log = logging.getLogger("deeprec_ext")


class Watch:
    """Of one process.

    Args:
      sums: whether it has joined the sums; refused: is told why it ends; clock: seconds.
    """

    def __init__(
        self, sums: Callable[[], bool], refused: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:  # fmt: skip
        self._sums, self._refused, self._clock = sums, refused, clock
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._since: float | None = None  # a loop was seen
        self._told = -1  # steps, when it was told
        self.over = False

    def applies(self, optimizer: Any) -> None:
        """It applies gradients that nobody has summed."""
        if self.over or not env.is_elastic_process() or self._sums():
            return
        if not (hasattr(type(optimizer), "iterations") or "iterations" in vars(optimizer)):
            return
        with self._lock:
            self._optimizers.add(optimizer)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="deeprec-alone", daemon=True)
                self._thread.start()

    def look(self) -> None:
        """What there is to tell by now."""
        if self._sums() or not env.is_elastic_process():
            self.over = True
        steps, now = self._steps(), self._clock()
        if self.over or steps < STEPS:
            return
        if self._since is None:
            self._since = now
        elif self._told < 0 and now - self._since > PATIENCE_SECONDS:
            self._told = steps
            log.warning("%s. It is refused if it goes on", REASON)
        elif self._told >= 0 and now - self._since > 2 * PATIENCE_SECONDS and steps > self._told:
            self.over = True
            self._refused(REASON)

    def _steps(self) -> int:
        with self._lock:
            there = list(self._optimizers)
        found = 0
        for one in there:
            counter = one.iterations
            value = counter if hasattr(counter, "numpy") else keras_classes.value(counter)
            found += int(value.numpy()) if value is not None else 0
        return found

    def _run(self) -> None:
        while not self.over:
            time.sleep(LOOK_SECONDS)
            try:
                self.look()
            except Exception as error:  # an optimizer of a kind that nobody knows
                log.info("optimizers are not watched any more: %s", error)
                return


WATCH = Watch(lambda: joined.member() is not None, joined.give_up)
