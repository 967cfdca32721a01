"""What a training thread spends its time on between two steps, so that a long gap can be told by its cause.

Kept by thread: whoever runs sessions says what it does (`during`), nested as it comes, and the inner counts alone. What is
left is spent outside of sessions: by the script itself where its thread has worked, waiting where it has not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

GATE = "held at the gate"
LOST = "waiting for a PS that was lost"
SESSION = "building a session"
COMPILING = "compiling a run"
INPUT = "waiting for input"
SAVING = "writing a checkpoint"
STEP = "in TensorFlow's steps"
SUM = "in a sum with the others"
SCRIPT = "the script's own code, hooks among it"
OUTSIDE = "waiting outside of TensorFlow, for the interpreter, the disk or the processor"


class Causes(threading.local):
    """One for the process; every thread sees its own figures.

    Args:
      clock, worked: wall time, and the processor time of the calling thread; seconds.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, worked: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock, self._worked = clock, worked
        self._doing: list[str] = []
        self._since = clock()
        self._worked_then = worked()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """The calling thread does that meanwhile."""
        self._note()
        self._doing.append(what)
        try:
            yield
        finally:
            self._note()
            self._doing.pop()

    def take(self) -> dict[str, float]:
        """cause → seconds, since the last call in this thread."""
        self._note()
        taken, self._seconds = self._seconds, {}
        return taken

    def _note(self) -> None:
        """What has been done since the last look, in wall time."""
        now = self._clock()
        took, self._since = now - self._since, now
        if self._doing:
            self._add(self._doing[-1], took)
            if len(self._doing) == 1:
                self._worked_then = self._worked()
            return
        then, self._worked_then = self._worked_then, self._worked()
        worked = min(took, self._worked_then - then)
        self._add(SCRIPT, worked)
        self._add(OUTSIDE, took - worked)

    def _add(self, what: str, seconds: float) -> None:
        if seconds > 0:
            self._seconds[what] = self._seconds.get(what, 0.0) + seconds


causes = Causes()
"""Of this process."""


def told(seconds: dict[str, float], usual_seconds: float = 0.0) -> str:
    """`compiling a run 0.81 s, held at the gate 0.10 s`: what a gap consists of, the longest first; empty for no gap.

    usual_seconds: of the steps before, which TensorFlow would have taken anyway. What is less than a tenth is left out.
    """
    left = dict(seconds)
    left[STEP] = max(0.0, left.get(STEP, 0.0) - usual_seconds)
    total = sum(left.values())
    parts = sorted(((took, what) for what, took in left.items() if took > 0 and took >= 0.1 * total), reverse=True)
    return ", ".join(f"{what} {took:.2f} s" for took, what in parts)
