"""The thread that prepares sessions: what the AIMaster asks for does not wait for what the trainer would like."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("tensorflow")

from deeprec_ext.elastic.agent.building import Builder


def test_commands_go_before_jobs_of_our_own_and_both_keep_their_order() -> None:
    acks: list[tuple[int, str]] = []
    builder = Builder(lambda number, error: acks.append((number, error)))
    done: list[str] = []
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        assert go_on.wait(30)
        done.append("under way")

    builder.put(first)
    builder.start()
    assert begun.wait(30)
    builder.put(lambda: done.append("job 1"))
    builder.put(lambda: done.append("job 2"))
    builder.obey(1, lambda: done.append("command 1"))
    builder.obey(2, lambda: done.append("command 2"))
    builder.urge(lambda: done.append("urgent"))
    builder.put(ended.set)
    assert builder.busy
    go_on.set()
    assert ended.wait(30)
    assert done == ["under way", "command 1", "command 2", "urgent", "job 1", "job 2"]
    assert acks == [(1, ""), (2, "")]
    builder.settle(30)


def test_a_command_that_fails_is_answered_with_its_error_and_the_thread_goes_on() -> None:
    acks: list[tuple[int, str]] = []
    builder = Builder(lambda number, error: acks.append((number, error)))
    builder.start()

    def fail() -> None:
        raise ValueError("no")

    builder.obey(7, fail)
    builder.obey(8, lambda: None)
    builder.settle(30)
    assert [number for number, _ in acks] == [7, 8] and "no" in acks[0][1] and not acks[1][1]
