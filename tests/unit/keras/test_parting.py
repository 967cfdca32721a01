"""Iterators that take long to end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from deeprec_ext.keras import parting
from deeprec_ext.keras.parting import Held

DEADLINE = 20.0


@pytest.fixture(autouse=True)
def _nobody_else_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of its own: that of the process may be held up for a minute by what a test before this one has read."""
    monkeypatch.setattr(parting, "_ENDING", parting._Ending())


class Slow:
    """Ends when it may."""

    def __init__(self) -> None:
        self.may, self.began, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.thread = ""

    def made(self) -> Iterator[int]:
        return _Iterator(self)


class _Iterator:
    def __init__(self, slow: Slow) -> None:
        self.slow = slow

    def __iter__(self) -> _Iterator:
        return self

    def __next__(self) -> int:
        return 1

    def __del__(self) -> None:
        self.slow.thread = threading.current_thread().name
        self.slow.began.set()
        self.slow.may.wait(DEADLINE)
        self.slow.ended.set()


def test_an_iterator_that_takes_long_to_end_holds_up_nobody() -> None:
    slow = Slow()
    held = Held(slow.made())
    assert next(held.iterator) == 1
    del held
    assert slow.began.wait(DEADLINE) and not slow.ended.is_set()  # this thread goes on
    assert slow.thread == "deeprec-ending"
    slow.may.set()
    assert slow.ended.wait(DEADLINE)


def test_no_more_wait_for_their_end_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parting, "WAITING_MAX", 2)
    first, more = Slow(), [Slow() for _ in range(3)]
    Held(first.made())
    assert first.began.wait(DEADLINE)
    for one in more:
        one.may.set()
        Held(one.made())
    assert [one.thread == threading.current_thread().name for one in more] == [False, False, True]
    first.may.set()
    for one in more:
        assert one.ended.wait(DEADLINE)


LAST = """
import os, sys
from deeprec_ext.keras.parting import Held

class Keeps:
    def __del__(self, held=Held, sys=sys, write=os.write):
        held(iter([1]))  # the first of the process: there is no thread yet
        write(1, b"ends" if sys.is_finalizing() else b"early")

kept = Keeps()  # until modules are taken apart
"""


def test_one_that_is_dropped_while_the_interpreter_ends_ends_there() -> None:
    """A thread that is started then never runs, and `start` waits for it."""
    done = subprocess.run([sys.executable, "-c", LAST], capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends", "")
