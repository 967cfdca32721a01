"""What `run` shows while it runs: a live table on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import IO, TYPE_CHECKING, Any

from deeprec_ext.launch.interrupts import unless_terminal_gone
from deeprec_ext.launch.job import Display, Scene
from deeprec_ext.launch.plan import RunPlan
from deeprec_ext.launch.records.eventlog import format_event
from deeprec_ext.printable import printable

if TYPE_CHECKING:
    from rich.live import Live

PLAIN_SECONDS = 5.0
EVENTS_SHOWN = 6


def make_display(plan: RunPlan, *, quiet: bool, json_on_stdout: bool) -> Display:
    """Args: json_on_stdout: stdout belongs to the JSON, everything else goes to stderr."""
    if quiet:
        return Quiet()
    stream = sys.stderr if json_on_stdout else sys.stdout
    return LiveTable(stream) if stream.isatty() else Plain(stream)


class Quiet:
    def update(self, scene: Scene) -> None: ...
    def event(self, event: dict[str, Any]) -> None: ...
    def say(self, line: str) -> None: ...
    def close(self) -> None: ...


class Plain:
    """For logs of CI: a line every 5 s, and each event."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._last = 0.0
        self._missing = 0  # lines, since the last one that could be written

    def update(self, scene: Scene) -> None:
        from deeprec_ext.cli.table import plain_line

        now = time.monotonic()
        if now - self._last >= PLAIN_SECONDS:
            self._last = now
            self._print(plain_line(scene))

    def event(self, event: dict[str, Any]) -> None:
        self._print(f"  {format_event(event)}")

    def say(self, line: str) -> None:
        self._print(f"  {time.strftime('%H:%M:%S')} {printable(line)}")

    def close(self) -> None: ...

    def _print(self, line: str) -> None:
        """Into a file on a full disk as far as that is possible: the job does not depend on it."""
        missing = f"  ({self._missing} lines are missing here)\n" if self._missing else ""
        try:
            print(missing + line, file=self._stream, flush=True)
            self._missing = 0
        except BrokenPipeError:
            raise
        except OSError:
            self._missing += 1


class LiveTable:
    """One table that stays where it is; the last events below it."""

    def __init__(self, stream: IO[str]) -> None:
        from deeprec_ext.cli.console import Console

        self._console = Console(file=stream)
        self._live: Live | None = None
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)

    def update(self, scene: Scene) -> None:
        from rich.live import Live

        from deeprec_ext.cli.table import render

        picture = render(scene, list(self._events), lines=self._console.size.height - 1)
        with unless_terminal_gone():
            if self._live is None:
                self._live = Live(picture, console=self._console, auto_refresh=False, vertical_overflow="ellipsis")
                self._live.start()
            self._live.update(picture, refresh=True)

    def event(self, event: dict[str, Any]) -> None:
        self._events.append(format_event(event))

    def say(self, line: str) -> None:
        self._events.append(f"{time.strftime('%H:%M:%S')} {printable(line)}")

    def close(self) -> None:
        if self._live is not None:
            with unless_terminal_gone():
                self._live.stop()
            self._live = None
