"""A pod is sent away before its process has joined the job: it ends at once.

Its first process is not ended by a signal that it does not handle, so the kubelet would wait out the grace of half a minute,
and so would whoever needs its room. The AIMaster can ask those to leave that it knows; from then on SIGTERM does nothing, as
before.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

EXIT_CODE = 128 + signal.SIGTERM
FIRST = 1  # pid

_known = False


def install() -> None:
    """By the main thread, before the script runs; where this is a pod's first process and nobody handles the signal yet."""
    first = os.getpid() == FIRST and threading.current_thread() is threading.main_thread()
    if first and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


def is_known() -> None:
    """The AIMaster knows this process now."""
    global _known
    _known = True


def is_free() -> bool:
    """Whether nobody but us handles SIGTERM."""
    return signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, _terminated)


def _terminated(number: int, frame: FrameType | None) -> None:
    if not _known or os.getpid() != FIRST:  # a child that the script has forked ends as ever
        os._exit(EXIT_CODE)
