"""Work beside training: in a thread of lower priority, so that steps get the processor first.

Only the thread is made nicer, and what TensorFlow starts from it (placing and optimising a graph); kernels run in
TensorFlow's own threads as always. A thread cannot take its niceness back without privileges, hence one thread a task.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

NICENESS = 10
"""About a tenth of the processor time of a step, where both want it."""


def politely(function: Callable[..., T], *arguments: object) -> T:
    """`function(*arguments)` in a nicer thread; its result or its error."""
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        with contextlib.suppress(OSError, AttributeError):  # not Linux: at the usual priority
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        try:
            results.append(function(*arguments))
        except BaseException as error:  # raised again by the caller
            errors.append(error)

    thread = threading.Thread(target=work, name="deeprec-background", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
