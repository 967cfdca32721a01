"""The gate: runs pass, wait while it is closed, and go on by themselves when the lease runs out."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("tensorflow")

from deeprec_ext.elastic.agent.gate import Gate

SECONDS = 20.0  # deadline of anything that should happen at once


def start(function) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_a_closed_gate_holds_back_new_runs_until_it_is_opened():
    gate, passed = Gate(), threading.Event()
    gate.close(1000)

    def run():
        with gate.passing():
            passed.set()

    thread = start(run)
    assert not passed.wait(0.05)
    gate.open()
    assert passed.wait(SECONDS)
    thread.join(SECONDS)
    assert gate.waits == 1


def test_a_pause_is_a_lease_that_runs_out():
    gate = Gate()
    gate.close(0.05)
    with gate.passing():  # would hang if the lease did not end by itself
        assert not gate.closed
    assert gate.waits == 1


def test_idle_means_that_no_run_is_under_way():
    gate, begun, finish = Gate(), threading.Event(), threading.Event()

    def run():
        with gate.passing():
            begun.set()
            assert finish.wait(SECONDS)

    thread = start(run)
    assert begun.wait(SECONDS)
    gate.close(1000)
    assert not gate.wait_idle(0.05)
    finish.set()
    assert gate.wait_idle(SECONDS)
    thread.join(SECONDS)


def test_waiting_past_the_present_runs_does_not_wait_for_later_ones():
    gate, first, begun = Gate(), threading.Event(), threading.Event()

    def run():
        with gate.passing():
            begun.set()
            assert first.wait(SECONDS)

    thread = start(run)
    assert begun.wait(SECONDS)
    done = threading.Event()
    waiter = start(lambda: (gate.wait_past(SECONDS), done.set()))
    assert not done.wait(0.05)
    with gate.passing():  # a later run, still under way when the first has ended
        first.set()
        assert done.wait(SECONDS)
    thread.join(SECONDS)
    waiter.join(SECONDS)


def test_a_run_that_fails_leaves_the_gate():
    gate = Gate()
    with pytest.raises(ValueError), gate.passing():
        raise ValueError
    assert gate.wait_idle(0)


def test_the_time_that_runs_waited_is_counted_once_however_many_wait():
    now = [0.0]
    gate, passed = Gate(lambda: now[0]), threading.Semaphore(0)
    gate.close(1000)

    def run():
        with gate.passing():
            passed.release()

    threads = [start(run) for _ in range(3)]
    deadline = threading.Event()
    while gate.waits < 3:
        assert not deadline.wait(0.001)
    now[0] = 5.0
    assert gate.waiting.seconds == 5.0  # while they wait
    gate.open()
    for thread in threads:
        thread.join(SECONDS)
    now[0] = 50.0
    assert gate.waiting.seconds == 5.0
    with gate.passing():
        now[0] = 60.0
    assert gate.waiting.seconds == 5.0
