"""How a cluster is followed: a watch that the server ends is the usual thing, and goes on without a gap."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deeprec_ext.errors import UnreachableError
from tfjob.api.client import ExpiredError
from tfjob.api.watching import changes
from tfjob.model.kinds import PODS

EXPIRED = ExpiredError(410, "Expired", "too old resource version")
GONE = UnreachableError("the connection broke")


class Over(Exception):
    """The scripted watches are used up."""


class Server:
    """An API whose watches are scripted: how long each lasts, what it tells, and how it ends; its clock is theirs."""

    def __init__(self, *watches: tuple[float, list[tuple[str, str]], Exception | None]) -> None:
        self.watches, self.now = list(watches), 0.0
        self.asked: list[str] = []  # from which version, or "list"
        self.waited: list[float] = []

    async def list_all(self, *_: Any, **__: Any) -> tuple[list[Any], str]:
        self.asked.append("list")
        return [], str(100 * self.asked.count("list"))

    async def watch(self, _: Any, __: Any, version: str, **___: Any) -> AsyncIterator[tuple[str, Any]]:
        if not self.watches:
            raise Over
        self.asked.append(version)
        seconds, told, error = self.watches.pop(0)
        for kind, number in told:
            yield kind, {"metadata": {"resourceVersion": number}}
        self.now += seconds
        if error is not None:
            raise error

    async def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)

    def follow(self) -> list[str]:
        """What is told, until the script ends."""
        told: list[str] = []

        async def main() -> None:
            with contextlib.suppress(Over):
                async for kind, _ in changes(self, PODS, "team", sleep=self.sleep, clock=lambda: self.now):  # type: ignore[arg-type]
                    told.append(kind)

        asyncio.run(main())
        return told


QUIET = (300.0, [], None)
AT_ONCE = (0.0, [], None)


def test_a_watch_that_the_server_ends_goes_on_at_once() -> None:
    server = Server(QUIET, (300.0, [("ADDED", "101")], None), QUIET, (60.0, [("BOOKMARK", "140")], None), QUIET)
    assert server.follow() == ["LISTED", "ADDED"]
    assert server.asked == ["list", "100", "100", "101", "101", "140"]
    assert server.waited == []


def test_a_watch_that_told_something_goes_on_at_once_however_short() -> None:
    server = Server(*((0.0, [("MODIFIED", str(number))], None) for number in range(101, 121)))
    assert server.follow().count("MODIFIED") == 20 and server.waited == []


def test_one_that_ends_at_once_for_nothing_goes_on_but_again_and_again_it_is_waited_longer_and_longer() -> None:
    server = Server(*[AT_ONCE] * 8)
    server.follow()
    assert server.waited == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_the_same_event_again_and_again_is_nothing_new() -> None:
    server = Server(*[(0.0, [("BOOKMARK", "100")], None)] * 4)
    server.follow()
    assert server.waited == [0.5, 1.0, 2.0]


def test_one_that_lasts_makes_the_next_waits_short_again() -> None:
    server = Server(*[AT_ONCE] * 4, QUIET, *[AT_ONCE] * 2)
    server.follow()
    assert server.waited == [0.5, 1.0, 2.0, 0.5]


def test_a_version_that_has_expired_meanwhile_is_listed_again_at_once() -> None:
    """As after each quiet watch of a server that sends no bookmarks."""
    server = Server(*[QUIET, (0.0, [], EXPIRED)] * 5, QUIET)
    assert server.follow() == ["LISTED"] * 6 and server.waited == []


def test_versions_that_always_have_expired_are_not_listed_without_a_pause() -> None:
    server = Server(*[(0.0, [], EXPIRED)] * 4)
    server.follow()
    assert server.waited == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("seconds", [0.0, 300.0])
def test_a_connection_that_breaks_is_waited_for_from_the_first_time_on(seconds: float) -> None:
    server = Server(*[(seconds, [], GONE)] * 3, (0.0, [("ADDED", "101")], GONE))
    assert server.follow() == ["LISTED", "ADDED"]
    assert server.waited == [0.5, 1.0, 2.0, 0.5]
