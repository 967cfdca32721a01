"""What a chief does that is asked to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from deeprec_ext.elastic.trainer import last_checkpoint
from deeprec_ext.elastic.trainer.last_checkpoint import LastCheckpoint

DEADLINE = 30.0


@pytest.fixture
def ended(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield threading.Event()
    signal.signal(signal.SIGTERM, before)


def terminated() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_after_the_step_under_way_a_checkpoint_is_written_told_of_and_the_process_ends(ended):
    done: list[str] = []
    last = LastCheckpoint(lambda: done.append("told"), lambda: done.append("ended"))
    assert last.install()
    last.after_step(lambda: done.append("saved"))
    terminated()
    assert done == []
    last.after_step(lambda: done.append("saved"))
    assert done == ["saved", "told", "ended"]


def test_who_cannot_save_ends_without(ended):
    def fails() -> None:
        raise OSError("no space left on device")

    done: list[str] = []
    last = LastCheckpoint(lambda: done.append("told"), lambda: done.append("ended"))
    last.install()
    last.after_step(fails)
    terminated()
    last.after_step(fails)
    assert done == ["ended"]


def test_who_trains_nothing_ends_at_once_and_a_step_that_does_not_end_is_not_waited_for(ended, monkeypatch):
    monkeypatch.setattr(last_checkpoint, "STEP_SECONDS", 0.05)
    last = LastCheckpoint(lambda: None, ended.set)
    last.install()
    terminated()
    assert ended.is_set()
    ended.clear()
    last.after_step(lambda: None)
    terminated()
    assert ended.wait(DEADLINE)


def test_a_handler_of_the_script_stays(ended):
    signal.signal(signal.SIGTERM, own := lambda *_: None)
    assert not LastCheckpoint(lambda: None).install() and signal.getsignal(signal.SIGTERM) is own


SCRIPT = """
import os, signal, time
from deeprec_ext.elastic.trainer.last_checkpoint import LastCheckpoint
last = LastCheckpoint(lambda: None)
last.install()
last.after_step(lambda: None)
there, here = os.pipe()
if child := os.fork():
    os.read(there, 1)  # Python forgets what arrives while it forks
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    last.after_step(lambda: print("saved", flush=True))
os.write(here, b"!")
time.sleep(30)
"""


def test_a_process_that_the_script_has_forked_ends_at_once_and_this_one_by_the_signal():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "-15\nsaved\n"), done.stderr
