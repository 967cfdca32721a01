"""Runs in a thread of ours: results, errors, and being given up."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("tensorflow")

from deeprec_ext.elastic.session.runner import AbandonedError, Runner

SECONDS = 20.0


def test_results_and_errors_come_back_to_the_caller():
    runner = Runner()
    assert runner.call(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(KeyError):
        runner.call({}.__getitem__, "x")
    assert runner.call(lambda: "again") == "again"


def test_a_stuck_run_is_given_up_and_the_next_one_does_not_wait_for_it():
    runner, release, outcome = Runner(), threading.Event(), []

    def stuck():
        try:
            runner.call(release.wait, SECONDS)
        except AbandonedError as error:
            outcome.append(str(error))

    begun = threading.Thread(target=stuck, daemon=True)
    begun.start()
    while not runner.abandon("the PS is hung"):
        pass
    begun.join(SECONDS)
    assert outcome == ["the PS is hung"]
    assert runner.call(lambda: 1) == 1
    release.set()
    assert runner.call(lambda: 2) == 2, "the late result of the abandoned run reached nobody"


def test_a_run_that_comes_after_the_word_of_a_loss_does_not_begin():
    """It was held up before it got here, and nobody would give it up any more: on a PS that hangs it would never end."""
    runner, lost, begun = Runner(), threading.Event(), []
    lost.set()
    assert runner.abandon("a PS was lost") == 0
    with pytest.raises(AbandonedError):
        runner.call(begun.append, 1, hopeless=lost.is_set)
    assert not begun
    lost.clear()
    runner.call(begun.append, 2, hopeless=lost.is_set)
    assert begun == [2]


class GivenUpAtTheEnd:
    """The results of a run; whoever takes one gives up all runs before he can say that his has ended."""

    def __init__(self, runner, results):
        self.runner, self.results = runner, results

    def get(self):
        taken = self.results.get()
        self.runner.abandon("a PS was lost")
        return taken

    def __getattr__(self, name):
        return getattr(self.results, name)


def test_a_run_that_is_given_up_as_it_ends_does_not_spoil_the_next_one():
    runner = Runner()
    assert runner.call(lambda: 1) == 1
    (thread,) = runner._idle
    plain, thread.results = thread.results, GivenUpAtTheEnd(runner, thread.results)
    assert runner.call(lambda: 2) == 2
    thread.results = plain
    assert runner.call(lambda: 3) == 3, "it would be made twice: given up, but under way"
    assert runner._idle == [thread]


def test_two_threads_run_at_the_same_time():
    runner, both = Runner(), threading.Barrier(2, timeout=SECONDS)
    threads = [threading.Thread(target=runner.call, args=(both.wait,), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
