"""Gazer in this process: a thread of its own that measures every few seconds and tells the AIMaster.

Nothing that happens here reaches training. A part that raises is off from then on, with one line in the log and in the next
report; a report that the agent cannot take is not made.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from deeprec_ext.gazer.process import ProcessReader
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")

Part = Callable[[pb.GazerReport], None]
"""Adds what it has measured to a report, in the sampler's thread; `interval_seconds` is set, 0 in the first."""

IDLE_SECONDS = 60.0
"""How often a sampler that is off looks whether it should be on; it is woken anyway."""

SHORTEST_SECONDS, LONGEST_SECONDS = 0.01, 3600.0
"""Whatever the settings say."""

STOP_SECONDS = 2.0


class ProcessPart:
    """What the process and its container use, and what there is on its host."""

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._reader: ProcessReader | None = None

    def __call__(self, report: pb.GazerReport) -> None:
        if self._reader is None:
            self._reader = ProcessReader(self._root)
        report.process.CopyFrom(self._reader.read())
        report.host.CopyFrom(self._reader.read_host())


class Outlet(Protocol):
    """The agent."""

    def send(self, message: pb.AgentMessage) -> None: ...

    @property
    def congested(self) -> bool:
        """Whether messages wait to be sent: nobody hears what is only nice to know."""


class Sampler:
    """Args:
    outlet: where reports go.
    parts: by name, in the order in which they are asked.
    """

    def __init__(self, outlet: Outlet, parts: dict[str, Part], clock: Callable[[], float] = time.monotonic) -> None:
        self._outlet, self._parts, self._clock = outlet, dict(parts), clock
        self.wish: float | None = None
        """Seconds between two reports that the script asked for, instead of the job's."""
        self._seconds = 0.0
        self._reported: float | None = None
        self._troubles: list[str] = []
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def follow(self, seconds: float) -> None:
        """The job's interval, 0: no reports. Starts the thread when it is needed."""
        self._seconds = seconds
        if self._thread is None and self._interval > 0 and not self._stopped:
            thread = threading.Thread(target=self._work, name="deeprec-gazer", daemon=True)
            thread.start()
            self._thread = thread  # `stop`, in another thread, joins one that has begun
        self._wake.set()

    def stop(self) -> None:
        """No report is made any more. Does not wait for long."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS)

    def trouble(self, line: str) -> None:
        """To be told with the next report."""
        self._troubles.append(line)

    @property
    def _interval(self) -> float:
        """Seconds between two reports; 0: none."""
        if not self._seconds > 0:
            return 0.0
        return min(max(self._seconds if self.wish is None else self.wish, SHORTEST_SECONDS), LONGEST_SECONDS)

    def _work(self) -> None:
        while not self._stopped:
            woken = self._wake.wait(self._interval or IDLE_SECONDS)
            self._wake.clear()
            if woken or self._stopped or self._interval <= 0:
                continue
            try:
                if not self._outlet.congested:
                    self._outlet.send(pb.AgentMessage(gazer=self.report()))
            except Exception:
                log.exception("Gazer: this process reports nothing any more")
                return

    def report(self) -> pb.GazerReport:
        """One report, now."""
        now = self._clock()
        report = pb.GazerReport(interval_seconds=now - self._reported if self._reported is not None else 0.0)
        self._reported = now
        for name, part in list(self._parts.items()):
            try:
                part(report)
            except Exception as error:
                del self._parts[name]
                line = f"Gazer: {name} is off in this process: {type(error).__name__}: {error}"[:300]
                log.warning("%s", line)
                self.trouble(line)
        if self._troubles:
            report.trouble = self._troubles.pop(0)
        return report
