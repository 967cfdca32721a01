"""The operator's queue: each job once, never by two at the same time, later what is not due yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tfjob.operator import queue as module
from tfjob.operator.queue import WorkQueue


def play(scenario: Callable[[WorkQueue[str]], Awaitable[None]]) -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        try:
            await asyncio.wait_for(scenario(queue), 20)
        finally:
            queue.close()

    asyncio.run(main())


async def is_empty(queue: WorkQueue[str]) -> bool:
    try:
        await asyncio.wait_for(queue.get(), 0.05)
    except asyncio.TimeoutError:
        return True
    return False


def test_a_job_that_comes_several_times_is_looked_at_once() -> None:
    async def scenario(queue: WorkQueue[str]) -> None:
        for _ in range(3):
            queue.add("a")
        queue.add("b")
        assert [await queue.get(), await queue.get()] == ["a", "b"] and await is_empty(queue)

    play(scenario)


def test_a_change_during_a_look_leads_to_another_look_after_it() -> None:
    async def scenario(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await queue.get()
        queue.add("a")
        assert await is_empty(queue)  # not by two at the same time
        queue.done("a")
        assert await queue.get() == "a"

    play(scenario)


def test_what_is_not_due_comes_later_and_the_earliest_time_counts() -> None:
    async def scenario(queue: WorkQueue[str]) -> None:
        queue.add_after("a", 0.05)
        queue.add_after("a", 10.0)
        assert len(queue) == 0
        assert await queue.get() == "a"
        queue.done("a")
        queue.add_after("b", 60.0)
        queue.add("b")  # sooner than planned
        assert await queue.get() == "b"
        queue.done("b")
        assert await is_empty(queue)

    play(scenario)


def test_errors_in_a_row_wait_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(module.random, "uniform", lambda low, high: 1.0)
    monkeypatch.setattr(WorkQueue, "add_after", lambda self, key, seconds: waits.append(seconds))

    async def scenario(queue: WorkQueue[str]) -> None:
        for _ in range(12):
            queue.add("a")
            queue.done(await queue.get(), failed=True)
        assert waits[:3] == [0.2, 0.4, 0.8] and waits[-1] == 60.0
        queue.add("a")
        queue.done(await queue.get())
        queue.add("a")
        queue.done(await queue.get(), failed=True)
        assert waits[-1] == 0.2

    play(scenario)
