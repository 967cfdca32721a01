"""Work beside training, and when it is given up."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from deeprec_ext.elastic.agent import background
from deeprec_ext.elastic.agent.background import GivenUpError, at_usual_priority, offer_usual_priority, politely


def test_the_result_or_the_error_comes_back() -> None:
    assert politely(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(ZeroDivisionError):
        politely(lambda: 1 // 0, give_up=lambda: True)


def test_what_hangs_on_a_dead_ps_is_left_behind() -> None:
    over, dead = threading.Event(), threading.Event()
    threading.Timer(0.2, dead.set).start()
    with pytest.raises(GivenUpError):
        politely(over.wait, give_up=dead.is_set)
    left = [thread for thread in threading.enumerate() if thread.name == "deeprec-left-behind"]
    assert left
    over.set()
    for thread in left:
        thread.join(5)


def test_polite_work_that_somebody_waits_for_gets_the_usual_priority_where_that_is_allowed() -> None:
    begun, go_on = threading.Event(), threading.Event()
    found: list[tuple[int, int]] = []

    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def work() -> None:
        before, of_another = priority(), []
        begun.set()
        assert go_on.wait(30)
        another = threading.Thread(target=lambda: of_another.append(priority()))  # as TensorFlow does
        another.start()
        another.join(30)
        found.append((before, *of_another))

    thread = threading.Thread(target=politely, args=(work,))
    thread.start()
    assert begun.wait(30)
    allowed = background.hasten()
    go_on.set()
    thread.join(30)
    usual = os.getpriority(os.PRIO_PROCESS, os.getpid())
    nicer = min(19, usual + background.NICENESS)
    assert found == [(nicer, usual if allowed else nicer)]


def test_nobody_gives_up_while_there_is_hope() -> None:
    over = threading.Event()
    threading.Timer(0.3, over.set).start()
    assert politely(over.wait, give_up=lambda: False)


@pytest.fixture
def closing() -> Iterator[threading.Event]:
    """A session whose closing hangs until that is set."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait, args=(60,), name="deeprec-close", daemon=True)
    thread.start()
    yield over
    over.set()
    thread.join(10)


def test_the_end_waits_no_longer_for_a_close_where_nothing_works(closing: threading.Event, monkeypatch) -> None:
    """It waits for a timer of TensorFlow's; what comes next in this process is not hindered by anything."""
    monkeypatch.setattr(background, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(background, "QUIET_SHARE", 2.0)  # pytest's own threads do not count
    monkeypatch.setattr(background, "LATE_SECONDS", 30.0)
    assert background.wait_for_threads({"deeprec-close": 50.0}) == ["deeprec-close"]


def test_on_a_busy_machine_the_end_waits_for_a_close(closing: threading.Event, monkeypatch) -> None:
    monkeypatch.setattr(background, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(background, "QUIET_SHARE", -1.0)
    threading.Timer(1.5, closing.set).start()
    assert background.wait_for_threads({"deeprec-close": 50.0}) == []


def test_waking_up_late_is_no_quiet(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(background.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(background.time, "process_time", lambda: 0.0)

    class Sleeping(threading.Thread):
        late = 0.0

        def join(self, timeout: float | None = None) -> None:
            now[0] += (timeout or 0.0) + self.late

    quiet, thread = background._Quiet(), Sleeping()
    for _ in range(3):
        quiet.join(thread, 0.2)
    assert quiet.seconds == pytest.approx(0.6)
    thread.late = 0.3
    quiet.join(thread, 0.2)
    assert quiet.seconds == 0.0


LATE = """
import os, subprocess, sys, tempfile, threading, time
import tensorflow as tf
from deeprec_ext.elastic.agent import background

class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(3)  # the interpreter is being taken down

path = os.path.join(tempfile.mkdtemp(), "fifo")
os.mkfifo(path)
threading.Thread(target=lambda: tf.io.gfile.GFile(path).read(1), daemon=True).start()  # in C++, until somebody writes
writer = subprocess.Popen(["sh", "-c", f"sleep 1; echo > {path}; rm -r {os.path.dirname(path)}"])
writer.returncode = 0  # nobody waits for it
time.sleep(0.3)
sys.slow = Slow()
background.outlive()
sys.exit(3)
"""


@pytest.mark.slow
def test_a_thread_that_comes_back_while_the_process_ends_does_not_bring_it_down(root):
    """Without it CPython 3.11 ends with signal 6: "terminate called", "FATAL: exception not rethrown"."""
    pytest.importorskip("tensorflow")
    done = subprocess.run([sys.executable, "-c", LATE], cwd=root, capture_output=True, text=True, timeout=100)
    assert done.returncode == 3, done.stderr


def test_what_nicer_threads_do_in_python_is_done_at_the_usual_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    monkeypatch.setattr(background, "_usual", None)
    usual = priority()
    assert politely(lambda: at_usual_priority(priority), niceness=1) == usual + 1, "nobody offers it"
    offer_usual_priority()
    assert politely(lambda: (priority(), at_usual_priority(priority)), niceness=1) == (usual + 1, usual)
    here = threading.get_native_id()
    assert at_usual_priority(threading.get_native_id) == here, "who has it needs nobody"
    with pytest.raises(ZeroDivisionError):
        politely(lambda: at_usual_priority(lambda: 1 // 0), niceness=1)
    within = politely(lambda: at_usual_priority(lambda: at_usual_priority(priority)), niceness=1)
    assert within == usual, "nor does what it is doing"
