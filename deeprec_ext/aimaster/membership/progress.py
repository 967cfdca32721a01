"""The global step over the last minutes: what a loss of the last seconds has cost."""

from __future__ import annotations

from collections import deque

SPACING_SECONDS, POINTS_MAX = 0.1, 6000
"""Ten minutes of job time; a backup that is older is compared with the oldest point."""


class Progress:
    """Points (monotonic, step), in order of time."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque(maxlen=POINTS_MAX)

    def note(self, now: float, step: int) -> None:
        """A trainer has told that it has seen this step."""
        if not self._points or now - self._points[-1][0] >= SPACING_SECONDS:
            self._points.append((now, step))

    def restored(self) -> None:
        """The model went back to a checkpoint: what was before is of no meaning any more."""
        self._points.clear()

    def since(self, moment: float, step: int) -> int:
        """How many steps there are between what was known at this moment (monotonic) and `step`: a few more than were made,
        for trainers tell theirs now and then. 0 when nothing is known."""
        if not self._points:
            return 0
        before = next((known for time, known in reversed(self._points) if time <= moment), self._points[0][1])
        return max(0, step - before)
