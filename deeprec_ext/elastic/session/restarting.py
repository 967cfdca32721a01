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

from deeprec_ext.elastic.agent.inputs import Source
from deeprec_ext.elastic.session.placed import PlacedSession, Signature

log = logging.getLogger("deeprec_ext")

EMPTY_SECONDS = 5.0
"""Reading what an old iterator has prefetched may take so long; then its end is waited for."""

MOMENT_SECONDS = 0.1
"""So long the new one is waited for: most often it takes less, and a run that comes too early is made in vain."""

WAIT_SECONDS = 90.0
"""Longer than TensorFlow's autotuning sleeps."""


class Restart:
    """One iterator that is being made anew; begins at once.

    Args:
      source: the dataset; of an era that has not begun.
      placed: the session, which is kept (`PlacedSession.pinned`).
      make, values: the run that makes it.
      get: an op that reads it, to empty the one before; without, that cannot be done.
    """

    def __init__(self, source: Source, placed: PlacedSession, make: Signature, values: Sequence[Any], get: str) -> None:
        self._source, self._placed, self._make, self._values = source, placed, make, values
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._began = began = time.monotonic()
        emptied = bool(get) and _emptied(source, placed, get)
        middle = time.monotonic()
        if emptied:
            threading.Thread(target=self._work, name="deeprec-iterator", daemon=True).start()
            self._done.wait(MOMENT_SECONDS)
        else:
            self._work()
        log.info(
            "dataset %s: its iterator %s, after %.2f s to empty the one before and %.2f s to make it", source.name,
            "is made anew" if self.over else "is being made anew", middle - began, time.monotonic() - middle,
        )  # fmt: skip

    def _work(self) -> None:
        try:
            self._placed.run(self._make, self._values)
        except BaseException as error:
            self._error = error
        self._done.set()

    def wait(self) -> None:
        """Until it is done: two that are made at once would give batches twice."""
        if not self._done.wait(WAIT_SECONDS):
            log.warning("TensorFlow has not ended an iterator for %.0f s; another is made nevertheless", WAIT_SECONDS)

    @property
    def over(self) -> bool:
        """Whether the run that makes it has ended: another may be made."""
        return self._done.is_set()

    def check(self) -> None:
        """Raises why it could not be made, as far as that is known; DeadlineExceededError if it should be there by now."""
        if self._error is not None:
            raise self._error
        if not self.over and not self._source.begun and time.monotonic() - self._began > WAIT_SECONDS:
            raise tf.errors.DeadlineExceededError(
                None,
                None,
                f"dataset {self._source.name!r}: its iterator has not come into place for {WAIT_SECONDS:g} s",
            )


def _emptied(source: Source, placed: PlacedSession, get: str) -> bool:
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
