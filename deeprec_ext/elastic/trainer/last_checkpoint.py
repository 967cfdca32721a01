"""A chief that is asked to end (SIGTERM: Ctrl-C of a run, an eviction) writes a checkpoint first, after the step under way.

Else what was trained since the last one, a minute or ten, would be lost to whoever goes on later. It is written by the hook
that writes all of them, so its listeners, the data ledger's among them, have their part. Where no step is under way, where none
ends in time, or where the script has a handler of its own, the signal does what it did.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from deeprec_ext.elastic import sent_away

log = logging.getLogger("deeprec_ext")

EXIT_CODE = 128 + signal.SIGTERM

TRAINS_SECONDS = 10.0
"""Whoever has made no step for so long does something else: no step would end soon."""

STEP_SECONDS = 8.0
"""How long the step under way may take; then the process ends without a checkpoint."""

SAVE_SECONDS = 60.0
"""And a checkpoint, where the PS die meanwhile. Whoever sent the signal has less patience mostly."""


class LastCheckpoint:
    """Of one process.

    Args:
      tell: what was said of the checkpoint has been sent when this returns.
      end: ends the process; for tests.
    """

    def __init__(self, tell: Callable[[], None], end: Callable[[], None] | None = None) -> None:
        self._pid, self._asked, self._tell = os.getpid(), False, tell
        self._last_step = float("-inf")
        self._end = end or self._end_process
        self._timer: threading.Timer | None = None

    def install(self) -> bool:
        """From now on; whether the signal was nobody's. By the thread in which the script runs."""
        if threading.current_thread() is not threading.main_thread() or not sent_away.is_free():
            return False
        signal.signal(signal.SIGTERM, self._terminated)
        return True

    def after_step(self, save: Callable[[], Any]) -> None:
        """A step of the training has ended, and what is saved for it is saved.

        Args:
          save: writes a checkpoint.
        """
        self._last_step = time.monotonic()
        if not self._asked:
            return
        self._limit(SAVE_SECONDS)
        try:
            save()
            self._tell()
            log.info("a checkpoint is written, and this process ends, as it was asked to (SIGTERM)")
        except Exception as error:  # whatever it is: the process is to end
            log.warning("no checkpoint at the end: %s: %s", type(error).__name__, str(error)[:200])
        self._end()

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        of_a_child = os.getpid() != self._pid  # that the script has forked
        if of_a_child or time.monotonic() - self._last_step > TRAINS_SECONDS:
            self._end()
        elif not self._asked:
            self._asked = True
            self._limit(STEP_SECONDS)

    def _limit(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def _end_process(self) -> None:
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        os._exit(EXIT_CODE)  # a pod's first process is not ended by a signal that it does not handle
