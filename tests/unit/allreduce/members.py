"""Members of rings as threads, and who tells them of generations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from deeprec_ext.allreduce.meeting import Generation
from deeprec_ext.errors import DeepRecError

T = TypeVar("T")
DEADLINE = 60.0


def all_of(works: Sequence[Callable[[], T]]) -> list[T]:
    """Each in a thread of its own, at the same time."""
    pool = ThreadPoolExecutor(len(works))
    try:
        return [one.result(DEADLINE) for one in [pool.submit(work) for work in works]]
    finally:
        pool.shutdown(wait=False)  # after an error others may wait for ever


class GoneError(DeepRecError):
    """This member is dead, or the test is over."""


class Coordinator:
    """What the AIMaster is to be: says who is in which generation."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._number, self._members = -1, {}
        self._watching: list[Callable[[], None]] = []
        self.troubles: list[tuple[str, int]] = []
        self.ended = False

    def announce(self, members: dict[str, int]) -> None:
        """Names and ports, in the order of the ring."""
        with self._changed:
            self._number, self._members = self._number + 1, dict(members)
            self._changed.notify_all()
            watching = list(self._watching)
        for told in watching:
            told()

    def end(self) -> None:
        with self._changed:
            self.ended = True
            self._changed.notify_all()


class Told:
    """One member's view of it: `Generations`."""

    def __init__(self, coordinator: Coordinator, name: str) -> None:
        self._from, self.name, self.dead = coordinator, name, False

    def after(self, number: int, trouble: str) -> Generation:
        there = self._from
        with there._changed:
            if trouble:
                there.troubles.append((self.name, number))
            there._changed.wait_for(
                lambda: self.dead or there.ended or (there._number > number and self.name in there._members), DEADLINE
            )
            if self.dead or there.ended or self.name not in there._members:
                raise GoneError(self.name)
            names = list(there._members)
            addresses = tuple(("127.0.0.1", port) for port in there._members.values())
            return Generation(there._number, names.index(self.name), addresses, b"%d" % there._number, tuple(names))

    def over(self, number: int) -> bool:
        return self._from._number > number or self.dead or self._from.ended

    def watch(self, told: Callable[[], None]) -> None:
        self._from._watching.append(told)


def call(thread: Callable[..., Any], *arguments: Any) -> threading.Thread:
    made = threading.Thread(target=thread, args=arguments, daemon=True)
    made.start()
    return made
