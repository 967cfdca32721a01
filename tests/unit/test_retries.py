"""Trying again: doubled waits, an end, and errors that are not worth it."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from deeprec_ext.retries import pauses, retried


def test_waits_are_doubled_up_to_the_most():
    assert list(itertools.islice(pauses(0.5, 3.0), 5)) == [0.5, 1.0, 2.0, 3.0, 3.0]


class Flaky:
    def __init__(self, *errors: Exception) -> None:
        self.errors, self.waited = list(errors), list[float]()

    async def call(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    async def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)

    def run(self, seconds: float) -> str:
        return asyncio.run(
            retried(self.call, lambda error: isinstance(error, OSError), seconds, first_seconds=1.0, sleep=self.sleep)
        )


def test_what_succeeds_at_last_is_returned_and_no_more_is_waited():
    flaky = Flaky(OSError("a"), OSError("b"))
    assert flaky.run(10.0) == "done" and flaky.waited == [1.0, 2.0]


def test_what_is_not_worth_it_is_raised_at_once():
    flaky = Flaky(OSError("a"), ValueError("b"), OSError("c"))
    with pytest.raises(ValueError, match="b"):
        flaky.run(10.0)
    assert flaky.waited == [1.0] and len(flaky.errors) == 1


def test_when_the_time_is_over_the_last_error_counts():
    flaky = Flaky(*(OSError(str(number)) for number in range(9)))
    with pytest.raises(OSError, match="2"):
        flaky.run(3.0)
    assert flaky.waited == [1.0, 2.0]
