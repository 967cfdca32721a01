"""A pod is sent away, and somebody waits for its room: its process ends soon.

A pod's first process is not ended by a signal that it does not handle, so the kubelet would wait out the grace of half a
minute. Before its AIMaster knows the process it ends at once; then there is a moment in which an arbiter's allowance may have
it leave in order, which costs the others less. Who trains alone what nobody else has stays for as long as it may, and so does
a program of which a child trains.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

EXIT_CODE = 128 + signal.SIGTERM
FIRST = 1  # pid

PATIENCE_SECONDS = 1.5
"""For the AIMaster, which sees the deletion as well."""

_known = False
_may_end: Callable[[], bool] | None = None


def install() -> None:
    """By the main thread, before the script runs; where this is a pod's first process and nobody handles the signal yet."""
    first = os.getpid() == FIRST and threading.current_thread() is threading.main_thread()
    if first and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


def is_known() -> None:
    """The AIMaster knows this process now."""
    global _known
    _known = True


def only_if(may_end: Callable[[], bool]) -> None:
    """Asked once the patience is over; may be asked by any thread."""
    global _may_end
    _may_end = may_end


def is_free() -> bool:
    """Whether nobody but us handles SIGTERM."""
    return signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, _terminated)


def _terminated(number: int, frame: FrameType | None) -> None:
    if os.getpid() == FIRST and not _known and _has_children():  # who trains may be one of them, and has no signal
        return
    if not _known or os.getpid() != FIRST:  # a child that the script has forked ends as ever
        os._exit(EXIT_CODE)
    timer = threading.Timer(PATIENCE_SECONDS, _end)
    timer.daemon = True
    timer.start()


def _has_children() -> bool:
    try:
        return any(path.read_text().strip() for path in Path("/proc/self/task").glob("*/children"))
    except OSError:
        return False


def _end() -> None:
    if _may_end is None or _may_end():
        os._exit(EXIT_CODE)
