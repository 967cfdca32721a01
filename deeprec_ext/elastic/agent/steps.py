"""What a trainer knows about its own steps: how long they take, and how long one scaling held it up."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from deeprec_ext.elastic.agent.causes import SUM, causes, told
from deeprec_ext.elastic.agent.interval import Interval
from deeprec_ext.proto import deeprec_ext_pb2 as pb

STEPS_AFTER_COMMIT = 20
"""The pause of a scaling is looked for until so many steps after its end."""


@dataclass
class _Window:
    scaling_id: int
    median_before: float
    waits_before: int
    longest: float = 0.0
    longest_at: float = 0.0  # when that gap ended, on the clock
    spent: dict[str, float] = field(default_factory=dict)  # in that gap, by cause
    steps: int = 0
    steps_left: int | None = None  # None while the scaling goes on
    loss: bool = False  # of no scaling: PS were lost


@dataclass(frozen=True)
class Pause:
    """Pause of one scaling, or of the loss of PS, as this trainer saw it, in seconds."""

    scaling_id: int
    pause_seconds: float
    median_step_seconds: float
    gate_waits: int
    steps: int
    seconds_ago: float  # when its gap ended
    cause: str = ""  # what the gap consisted of (`causes.told`)
    loss: bool = False  # PS were lost; no scaling


@dataclass
class StepClock:
    """Fed once a completed step (from the hook), read by the agent's thread."""

    gate_waits: Callable[[], int] = lambda: 0
    clock: Callable[[], float] = time.monotonic
    spent: Callable[[], dict[str, float]] = causes.take
    examples_per_step: float = 0
    steps: int = 0
    global_step: int = 0
    step_epoch: int = 0
    _first_step_at: float = 0.0
    _gaps: deque[float] = field(default_factory=lambda: deque(maxlen=200))
    _last: float | None = None
    _window: _Window | None = None
    _done: list[Pause] = field(default_factory=list)
    _interval: Interval = field(default_factory=Interval)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def completed(self, global_step: int) -> None:
        """A step of this process has ended."""
        now, spent = self.clock(), self.spent()
        with self._lock:
            self.steps += 1
            self.global_step = max(self.global_step, global_step)
            gap, self._last = (now - self._last if self._last is not None else None), now
            self._interval.add(gap, spent.get(SUM, 0.0))
            if gap is None:
                return
            self._gaps.append(gap)
            window = self._window
            if window is not None:
                if gap > window.longest:
                    window.longest, window.longest_at, window.spent = gap, now, spent
                window.steps += 1
                if window.loss:
                    self._finish()
                elif window.steps_left is not None:
                    window.steps_left -= 1
                    if window.steps_left <= 0:
                        self._finish()

    def first_step(self, epoch: int) -> None:
        """The first step of this process in this epoch has just been completed."""
        with self._lock:
            self.step_epoch, self._first_step_at = epoch, self.clock()

    def since_first_step(self) -> float:
        """Seconds since the first completed step in `step_epoch`."""
        return max(0.0, self.clock() - self._first_step_at) if self.step_epoch else 0.0

    def reached(self, global_step: int) -> None:
        """The global step as read after the last step; a step itself reads it before or after its own update."""
        with self._lock:
            self.global_step = max(self.global_step, global_step)

    def begin_session(self) -> None:
        """A new session has been opened: the gap before its first step is no step; it may start from a checkpoint."""
        with self._lock:
            self._last, self.global_step = None, 0
            if self._window is not None and self._window.loss:
                self._window = None

    def begin_scaling(self, scaling_id: int) -> None:
        with self._lock:
            if self._window is not None and self._window.loss:
                return  # it began again with another AIMaster, or before everybody is through: no pause of its own is seen
            if self._window is not None:
                self._finish()
            if self._last is not None:
                self._window = _Window(scaling_id, self._median(), self.gate_waits())

    def lost(self) -> None:
        """PS were lost: the gap that this makes is not the pause of a scaling that it falls into."""
        with self._lock:
            window = self._window
            if window is not None and window.loss:
                return  # another one, before a step was made
            if window is not None and window.steps:
                self._finish()
            self._window = None
            if self._last is not None:
                self._window = _Window(0, self._median(), self.gate_waits(), loss=True)

    @property
    def scaling(self) -> bool:
        """Whether a scaling goes on, or has just ended."""
        return self._window is not None

    @property
    def changing(self) -> bool:
        """Whether a scaling goes on."""
        window = self._window
        return window is not None and window.steps_left is None and not window.loss

    def end_scaling(self, scaling_id: int) -> None:
        """The scaling was committed or rolled back; the window stays open for some more steps."""
        with self._lock:
            if self._window is not None and not self._window.loss and self._window.scaling_id == scaling_id:
                self._window.steps_left = STEPS_AFTER_COMMIT

    def take_pauses(self, flush: bool = False) -> list[Pause]:
        """The pauses measured since the last call. `flush`: also the one whose window is still open."""
        with self._lock:
            if flush and self._window is not None and (self._window.steps or not self._window.loss):
                self._finish()
            done, self._done = self._done, []
            return done

    def take_interval(self) -> pb.StepSample:
        """The steps since the last call."""
        with self._lock:
            interval, self._interval = self._interval, Interval()
        return interval.sample(self.examples_per_step)

    def _finish(self) -> None:
        window, self._window = self._window, None
        assert window is not None
        pause = max(0.0, window.longest - window.median_before)
        waits = self.gate_waits() - window.waits_before
        ago = self.clock() - window.longest_at
        cause = told(window.spent, window.median_before)
        self._done.append(
            Pause(window.scaling_id, pause, window.median_before, waits, window.steps, ago, cause, window.loss)
        )

    def _median(self) -> float:
        return statistics.median(self._gaps) if self._gaps else 0.0

    def median_step_seconds(self) -> float:
        with self._lock:
            return self._median()

    def rates(self) -> tuple[float, float]:
        """(steps per second, examples per second) of this process, over its recent steps."""
        with self._lock:
            if not self._gaps or self._last is None:
                return 0.0, 0.0
            stalled = self.clock() - self._last
            total = sum(self._gaps) + (stalled if stalled > 2 * max(self._gaps) else 0.0)
            steps = len(self._gaps) / total if total > 0 else 0.0
            return steps, steps * self.examples_per_step
