"""Runs in a thread of ours: results, errors, and being given up."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("tensorflow")

from deeprec_ext.elastic.runner import AbandonedError, Runner

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


def test_two_threads_run_at_the_same_time():
    runner, both = Runner(), threading.Barrier(2, timeout=SECONDS)
    threads = [threading.Thread(target=runner.call, args=(both.wait,), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
