"""Other processes wait for what the chief does, and for nothing else."""

from __future__ import annotations

import threading
import time

import pytest

from deeprec_ext.keras import milestones
from deeprec_ext.keras.milestones import Milestones


def waits(of):
    """Whether it still waits after a few looks; the thread in which it does."""
    thread = threading.Thread(target=of.wait, daemon=True)
    thread.start()
    thread.join(3 * milestones.LOOK_SECONDS)
    return thread.is_alive(), thread


@pytest.fixture
def leaving():
    event = threading.Event()
    yield event
    event.set()


def test_the_nth_file_of_a_worker_waits_for_the_nth_of_the_chief(tmp_path, leaving):
    chief, worker = Milestones(tmp_path, True, leaving), Milestones(tmp_path, False, leaving)
    for _ in range(2):
        still, thread = waits(worker)
        assert still
        chief.made()
        thread.join(10)
        assert not thread.is_alive()
    chief.made()
    chief.made()
    assert not waits(worker)[0] and not waits(worker)[0]


def test_a_chief_that_begins_again_is_waited_for_again(tmp_path, leaving):
    Milestones(tmp_path, True, leaving).made()
    Milestones(tmp_path, True, leaving)
    assert waits(Milestones(tmp_path, False, leaving))[0]


def test_a_chief_that_begins_again_knows_what_was_done_before_unless_the_model_is_another(tmp_path, leaving):
    first = Milestones(tmp_path, True, leaving, lambda: 1)
    assert not first.made_before
    first.made()
    first.made()
    for _ in range(2):  # also the next but one
        again = Milestones(tmp_path, True, leaving, lambda: 1)
        assert again.made_before
        again.made()
        assert again.made_before
    again.made()
    assert not again.made_before
    other = Milestones(tmp_path, True, leaving, lambda: 2)
    assert not other.made_before
    other.made()
    assert not other.made_before
    assert not Milestones(None, True, leaving).made_before


def test_who_leaves_waits_no_longer(tmp_path, leaving):
    Milestones(tmp_path, True, leaving)
    still, thread = waits(Milestones(tmp_path, False, leaving))
    assert still
    leaving.set()
    thread.join(10)
    assert not thread.is_alive()


def test_a_chief_that_saves_nothing_is_not_waited_for_for_ever(tmp_path, leaving, monkeypatch):
    monkeypatch.setattr(milestones, "LIMIT_SECONDS", 0.2)
    Milestones(tmp_path, True, leaving)
    began = time.monotonic()
    Milestones(tmp_path, False, leaving).wait()
    assert time.monotonic() - began > 0.2


@pytest.mark.parametrize("content", [None, "", "many"])
def test_without_a_common_directory_nobody_waits(tmp_path, leaving, content):
    if content is not None:
        (tmp_path / milestones.NAME).write_text(content)
    assert not waits(Milestones(tmp_path, False, leaving))[0]
    assert not waits(Milestones(None, False, leaving))[0]


def test_who_cannot_write_any_more_is_not_waited_for(tmp_path, leaving, monkeypatch):
    chief, worker = Milestones(tmp_path, True, leaving), Milestones(tmp_path, False, leaving)
    chief.made()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(milestones.wholefiles, "write", full)
    chief.made()
    assert not waits(worker)[0] and not waits(worker)[0]
