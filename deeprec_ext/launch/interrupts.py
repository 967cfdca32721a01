"""Ctrl-C, SIGTERM and SIGHUP (the terminal was closed), from the first line of a run to its last: none ends it half-way."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import termios
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NAMES = {"SIGINT": "Ctrl-C", "SIGHUP": "SIGHUP (its terminal was closed)"}


class Interrupts:
    """Enter it on the main thread. Outside of `heard_by` a signal is kept, and told to who listens next."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._tell: Callable[[str], object] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in NUMBERS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # of nohup: it stays ignored
                self._before[number] = signal.signal(number, self._on)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # Who presses Ctrl-C five times still gets the exit code: this process is about to end.
            signal.signal(number, signal.SIG_IGN if self.names else handler)

    @contextlib.contextmanager
    def heard_by(self, tell: Callable[[str], object]) -> Iterator[None]:
        """`tell` gets each signal's name, in the signal handler: it must only pass it on."""
        self._tell = tell
        for name in self.names:
            tell(name)
        try:
            yield
        finally:
            self._tell = None

    def _on(self, number: int, frame: FrameType | None) -> None:
        leave_gone_terminal()
        name = signal.Signals(number).name
        self.names.append(name)
        if self._tell is not None:
            self._tell(name)


def leave_gone_terminal() -> None:
    """What stdin, stdout and stderr have of a terminal that was closed becomes /dev/null: writing there would fail."""
    for descriptor in range(3):
        try:
            termios.tcgetattr(descriptor)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, descriptor)
                os.close(null)


@contextlib.contextmanager
def unless_terminal_gone() -> Iterator[None]:
    """What is written meanwhile may be lost with its terminal, which can go before the signal comes."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        leave_gone_terminal()
