"""Making the iterator of an elastic dataset anew, where it stands, without a wait for the end of the one before.

TensorFlow puts the new iterator into the place of the old one, ends that one, which may take a minute
(`benchmarks/iterators.py`), and only then says that it is done. So:

1. What the old one has prefetched is read and thrown away: all of it is given again.
2. The new one is made in a thread, and waited for a moment only.
3. A run that comes before it is in place finds the end of the old one, which is not the end of the data: the source knows
   that its new iterator has not begun, and the run is made again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from deeprec_ext.elastic.inputs import Source
from deeprec_ext.elastic.placed import Placed, Signature

log = logging.getLogger("deeprec_ext")

EMPTY_SECONDS = 5.0
"""Reading what an old iterator has prefetched may take so long; then its end is waited for."""

MOMENT_SECONDS = 0.1
"""So long the new one is waited for: most often it takes less, and a run that comes too early is made in vain."""


class Restart:
    """One iterator that is being made anew; begins at once.

    Args:
      source: the dataset; of an era that has not begun.
      placed: the session, which is kept (`Placed.pinned`).
      make, values: the run that makes it.
      get: an op that reads it, to empty the one before; without, that cannot be done.
    """

    def __init__(self, source: Source, placed: Placed, make: Signature, values: Sequence[Any], get: str) -> None:
        self._placed, self._make, self._values = placed, make, values
        self._done = threading.Event()
        self._error: BaseException | None = None
        if get and _emptied(source, placed, get):
            threading.Thread(target=self._work, name="deeprec-iterator", daemon=True).start()
            if not self._done.wait(MOMENT_SECONDS):
                log.debug("an iterator is being ended beside the training")
        else:
            self._work()

    def _work(self) -> None:
        try:
            self._placed.run(self._make, self._values)
        except BaseException as error:
            self._error = error
        self._done.set()

    def check(self) -> None:
        """Raises why it could not be made, as far as that is known."""
        if self._error is not None:
            raise self._error


def _emptied(source: Source, placed: Placed, get: str) -> bool:
    """Whether an iterator of an era that is over has nothing left."""
    until = time.monotonic() + EMPTY_SECONDS
    source.emptying(True)
    try:
        while time.monotonic() < until:
            try:
                placed.run(Signature((), (), (get,)), ())
            except tf.errors.OutOfRangeError:
                return True
            except tf.errors.OpError as error:  # a record that cannot be used: others come after it
                log.debug("emptying an iterator: %s", error)
        return False
    finally:
        source.emptying(False)
