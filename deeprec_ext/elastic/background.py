"""Work beside training: in a thread of lower priority, so that steps get the processor first.

Only the thread is made nicer, and what TensorFlow starts from it (placing and optimising a graph); kernels run in
TensorFlow's own threads as always. A thread cannot take its niceness back without privileges, hence one thread a task.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

_collecting = threading.Lock()
_holders = 0
_were_on = True


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """No cyclic garbage collection meanwhile: building a session makes many objects, and a full collection among them
    holds the interpreter for a fifth of a second, in which no step can begin."""
    global _holders, _were_on
    with _collecting:
        if not _holders:
            _were_on = gc.isenabled()
        _holders += 1
        gc.disable()
    try:
        yield
    finally:
        with _collecting:
            _holders -= 1
            if not _holders and _were_on:
                gc.enable()


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
