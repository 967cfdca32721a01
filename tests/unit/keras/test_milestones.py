"""Other processes wait for what the chief does, and decide by what it has measured."""

from __future__ import annotations

import json
import threading
import time
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.errors import DeepRecError
from deeprec_ext.keras import milestones
from deeprec_ext.keras.milestones import Milestones
from deeprec_ext.rundir import RunDirectory


def waits(wait, *words):
    """Whether it still waits after a few looks; the thread in which it does."""
    thread = threading.Thread(target=partial(wait, *words), daemon=True)
    thread.start()
    thread.join(3 * milestones.LOOK_SECONDS)
    return thread.is_alive(), thread


def ended(thread):
    thread.join(10)
    return not thread.is_alive()


def fitted(one):
    one.begins()
    one.ends()


@pytest.fixture
def leaving():
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch):
    monkeypatch.setattr(milestones, "LEFT_LOOK_SECONDS", 0.0)


@pytest.fixture
def both(tmp_path, leaving):
    chief, worker = Milestones(tmp_path, True, leaving), Milestones(tmp_path, False, leaving)
    return chief, worker


def test_the_end_of_a_fit_waits_for_that_of_the_chiefs(both):
    chief, worker = both
    for _ in range(2):
        chief.begins()
        worker.begins()
        still, thread = waits(worker.wait_end)
        assert still
        chief.ends()
        assert ended(thread)
        worker.ends()
    fitted(chief)
    worker.begins()
    assert not waits(worker.wait_end)[0]


def test_a_file_is_the_one_of_its_name_after_the_same_fit(both):
    chief, worker = both
    fitted(chief)
    fitted(worker)
    chief.saved("other")
    still, thread = waits(worker.wait_saved, "best")
    assert still
    chief.saved("best")
    assert ended(thread)
    still, thread = waits(worker.wait_saved, "best")  # once more
    assert still
    chief.saved("best")
    assert ended(thread)


@pytest.mark.parametrize("further", ["begins", "ends"])
def test_who_saves_what_the_chief_does_not_goes_on_when_the_chief_is_further(both, further):
    chief, worker = both
    fitted(chief)
    fitted(worker)
    still, thread = waits(worker.wait_saved, "best")
    assert still
    chief.begins()
    if further == "ends":
        chief.ends()
    assert ended(thread)
    fitted(worker)  # and is out of step with nothing
    if further == "begins":
        chief.ends()
    still, thread = waits(worker.wait_saved, "best")
    assert still
    chief.saved("best")
    assert ended(thread)


def test_a_chief_that_begins_again_is_waited_for_again(tmp_path, leaving):
    fitted(Milestones(tmp_path, True, leaving))
    Milestones(tmp_path, True, leaving)
    worker = Milestones(tmp_path, False, leaving)
    worker.begins()
    assert waits(worker.wait_end)[0]


def test_a_chief_that_begins_again_knows_what_was_done_before_unless_the_model_is_another(tmp_path, leaving):
    first = Milestones(tmp_path, True, leaving, lambda: 1)
    assert not first.made_before
    first.begins()
    assert not Milestones(tmp_path, True, leaving, lambda: 1).made_before  # begun is not done
    first.ends()
    first.saved("a file")
    for _ in range(2):  # also the next but one
        again = Milestones(tmp_path, True, leaving, lambda: 1)
        assert again.made_before
        fitted(again)
        assert again.made_before
    again.saved("a file")
    assert not again.made_before
    other = Milestones(tmp_path, True, leaving, lambda: 2)
    assert not other.made_before
    fitted(other)
    assert not other.made_before
    assert not Milestones(None, True, leaving).made_before


RESULTS = [0.25, [0.5, np.float32(2.0)], {"loss": 1.5, "of classes": np.array([1.0, 2.0])}, [float("nan"), 1.0]]


@pytest.mark.parametrize("value", RESULTS)
def test_what_the_chief_has_measured_is_what_others_get(both, value):
    chief, worker = both
    fitted(chief)
    fitted(worker)
    got = []
    still, thread = waits(lambda: got.append(worker.result(pytest.fail)))
    assert still and chief.measured(lambda: value, True) is value
    assert ended(thread)
    np.testing.assert_equal(got[0], value)


def test_results_are_those_of_their_place(both):
    chief, worker = both
    for number in range(3):
        fitted(chief)
        for one in range(2):
            chief.measured(lambda: 10 * number + one, True)  # noqa: B023
    got = []
    for _ in range(3):
        fitted(worker)
        got += [worker.result(pytest.fail) for _ in range(2)]
    assert got == [0, 1, 10, 11, 20, 21]


def test_who_evaluates_where_the_chief_does_not_measures_by_itself(both):
    chief, worker = both
    fitted(chief)
    fitted(worker)
    got = []
    still, thread = waits(lambda: got.append(worker.result(lambda: "own")))
    assert still
    chief.begins()
    assert ended(thread) and got == ["own"]


def test_what_cannot_be_told_each_measures(both):
    chief, worker = both
    odd = object()
    assert chief.measured(lambda: odd, True) is odd
    assert worker.result(lambda: "own") == "own"


def test_a_chief_that_begins_again_measures_what_was_trained_since_and_nothing_else(tmp_path, leaving):
    first = Milestones(tmp_path, True, leaving)
    fitted(first)
    first.measured(lambda: 1.0, True)
    again, worker = Milestones(tmp_path, True, leaving), Milestones(tmp_path, False, leaving)
    fitted(again)
    fitted(worker)
    still, thread = waits(worker.result, pytest.fail)  # what an earlier chief has said is confirmed by this one
    assert still
    assert again.measured(pytest.fail, False) == 1.0
    assert ended(thread)
    assert again.measured(lambda: 2.0, False) == 2.0  # the other one had not come so far
    fitted(again)
    assert again.measured(lambda: 3.0, True) == 3.0


def test_what_was_measured_outlives_chiefs_that_come_to_nothing_and_the_run(tmp_path, leaving):
    first = Milestones(tmp_path, True, leaving)
    fitted(first)
    first.measured(lambda: 1.0, True)
    Milestones(tmp_path, True, leaving)
    RunDirectory(tmp_path).begin_script_again()
    RunDirectory(tmp_path).begin_script_again()
    worker = Milestones(tmp_path, False, leaving)
    assert not worker.begun_before and not waits(worker.wait_saved, "a file")[0]
    again = Milestones(tmp_path, True, leaving)
    assert not again.made_before and not again.begun_before
    fitted(again)
    assert again.measured(pytest.fail, False) == 1.0
    RunDirectory(tmp_path / "nowhere").begin_script_again()


def test_what_raises_while_it_is_measured_each_measures(both):
    chief, worker = both

    def fails():
        raise Pruned

    with pytest.raises(Pruned):
        chief.measured(fails, True)
    assert worker.result(lambda: "own") == "own"


def test_who_comes_late_knows_it(tmp_path, both, leaving):
    chief, worker = both
    assert not chief.begun_before and not worker.begun_before
    chief.begins()
    for is_chief in (False, True):
        assert Milestones(tmp_path, is_chief, leaving).begun_before


class Pruned(Exception):
    pass


KINDS = {
    "of the script": (Pruned("enough"), Pruned),
    "of TensorFlow": (tf.errors.ResourceExhaustedError(None, None, "OOM"), tf.errors.ResourceExhaustedError),
    "that nobody has": (type("Gone", (Exception,), {})("enough"), DeepRecError),
}


@pytest.mark.parametrize("error, kind", KINDS.values(), ids=KINDS)
def test_a_fit_that_the_chief_has_left_ends_in_others_once_its_script_goes_on(both, error, kind):
    chief, worker = both
    fitted(chief)
    fitted(worker)
    worker.begins()
    chief.begins()
    worker.left()
    chief.ends(error)
    worker.left()  # perhaps it ends with that
    chief.begins()
    with pytest.raises(kind, match=r"OOM|enough"):
        worker.left()


def test_a_chief_that_begins_again_leaves_what_the_one_before_has_left(tmp_path, leaving):
    first = Milestones(tmp_path, True, leaving)
    first.begins()
    first.ends(Pruned("enough"))
    again = Milestones(tmp_path, True, leaving)
    again.begins()
    with pytest.raises(Pruned, match="enough"):
        again.left()
    again.ends(Pruned("enough"))
    again.begins()
    again.left()


def test_a_script_that_ends_by_it_has_not_caught_it(both, monkeypatch):
    chief, worker = both
    monkeypatch.setattr(milestones, "LEFT_SECONDS", 0.0)
    chief.begins()
    worker.begins()
    chief.ends(Pruned("enough"))
    chief.script_ends()
    worker.left()
    worker.ends(Pruned("enough"))
    fitted(chief)
    chief.measured(lambda: 1.0, True)
    worker.script_ends()  # is not the chief's
    fitted(worker)
    assert worker.result(pytest.fail) == 1.0


def test_a_chief_that_lives_on_has_caught_what_it_has_left_by(both, monkeypatch):
    chief, worker = both
    chief.begins()
    worker.begins()
    chief.ends(Pruned("enough"))
    worker.left()
    monkeypatch.setattr(milestones, "LEFT_SECONDS", 0.0)
    with pytest.raises(Pruned):
        worker.left()


def test_one_that_has_ended_by_it_has_not(both):
    chief, worker = both
    chief.begins()
    worker.begins()
    chief.ends(KeyboardInterrupt())
    chief.begins()
    worker.left()


def test_who_leaves_waits_no_longer(both, leaving):
    _, worker = both
    worker.begins()
    for wait in (worker.wait_end, partial(worker.wait_saved, "a file"), partial(worker.result, lambda: None)):
        leaving.clear()
        still, thread = waits(wait)
        assert still
        leaving.set()
        assert ended(thread)


def test_a_chief_that_saves_nothing_is_not_waited_for_for_ever(both, monkeypatch):
    monkeypatch.setattr(milestones, "LIMIT_SECONDS", 0.2)
    began = time.monotonic()
    both[1].wait_saved("a file")
    assert time.monotonic() - began > 0.2


@pytest.mark.parametrize("content", [None, "", "many", "1 2 3", json.dumps({"begun": 1})])
def test_without_a_common_directory_nobody_waits(tmp_path, leaving, content):
    if content is not None:
        (tmp_path / milestones.NAME).write_text(content)
    for directory in (tmp_path, None):
        worker = Milestones(directory, False, leaving)
        worker.begins()
        worker.left()
        assert not waits(worker.wait_end)[0] and not waits(worker.wait_saved, "a file")[0]
        assert worker.result(lambda: "own") == "own"
    assert Milestones(None, True, leaving).measured(lambda: "own", False) == "own"


def test_who_cannot_write_any_more_is_not_waited_for(both, monkeypatch):
    chief, worker = both
    fitted(chief)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(milestones.wholefiles, "write", full)
    fitted(chief)
    for _ in range(2):
        worker.begins()
        assert not waits(worker.wait_end)[0]
        worker.ends()
