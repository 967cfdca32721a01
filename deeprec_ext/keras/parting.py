"""Iterators of tf.data that end beside the training.

One in seven takes as long to end as it has been read, up to a minute: TensorFlow tells its autotuning thread to end before it
marks it as cancelled, and the thread sleeps on. In plain Keras that is a stall at the end of an evaluation or of `fit`. Here
whoever reads an iterator keeps it in a `Held`, and lets go of it in a thread that nobody waits for.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator
from typing import Any

WAITING_MAX = 16
"""Iterators that wait for their end (they keep what they have read ahead); beyond that they end where they are dropped."""


class Held:
    """An iterator that is read here.

    Args:
      iterator: nobody else should keep it.
    """

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator = iterator

    def __del__(self) -> None:
        _ENDING.put(self.__dict__.pop("iterator", None))


class _Ending:
    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()  # may be put into from within a garbage collection
        self._thread: threading.Thread | None = None

    def put(self, iterator: Any) -> None:
        if (
            iterator is None or self._waiting.qsize() >= WAITING_MAX or sys.is_finalizing()
        ):  # no thread begins any more then
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="deeprec-ending", daemon=True)
            self._thread.start()
        self._waiting.put(iterator)

    def _work(self) -> None:
        while True:
            self._waiting.get()  # and drops it


_ENDING = _Ending()
