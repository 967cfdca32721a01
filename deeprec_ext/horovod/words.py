"""What each process says where a call begins. All have heard the same, so all make the same of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

GRADIENTS = "gradients"
"""The kind of call that is made in each step, of whatever length the fits of others are."""
MODEL = "model"
"""All get the model of one; who comes to it while the others train has theirs."""
REST = "rest"
"""A `fit` is over."""
OF_TRAINING = (GRADIENTS, MODEL, REST)
"""Kinds of calls that say where a process is in its training: others are those of the script around it."""


@dataclass(frozen=True)
class Word:
    kinds: list[
        str
    ]  # of the calls that it is at, with what has to be alike: several, where a graph makes them in any order
    gathers: bool  # more of them may come by themselves: they are of one run of a graph
    last: str  # the call that it has come through last
    calls: int  # that it has come through
    number: int  # of the ring in which it came through the last one
    before: int  # and through the one before
    steps: int  # of the job, as far as it knows
    own: int  # of these, made by this process
    resets: bool  # it is within `elastic.run`
    stale: bool  # it has heard of a view with others
    leaves: bool
    weight: int  # 0: it has been given the model in the middle of a step, and its gradients are of another one
    trains: bool  # it is at its first gradients, or past them
    apart: bool  # somebody is at another place of the script: only calls of training are made together
    says: list[float]  # learning rates, and what else all are to have of the one that leads

    def told(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def heard(cls, said: bytes) -> Word:
        return cls(**json.loads(said))

    def is_like(self, best: Word) -> bool:
        return (self.calls, self.number) == (best.calls, best.number)

    def is_late(self, best: Word) -> bool:
        return (self.calls, self.number) == (best.calls - 1, best.before)

    def is_new(self, best: Word) -> bool:
        return not self.is_like(best) and not self.is_late(best)

    def asks(self, best: Word) -> bool:
        """It is new, and at a call before its first step: the others have made it long ago."""
        return self.is_new(best) and not self.trains

    def is_at(self, *kinds: str) -> bool:
        return all(of(one) in kinds for one in self.kinds)


def of(name: str) -> str:
    """The kind of a call that is told so."""
    return name.partition(" ")[0]


def best_of(words: Sequence[Word]) -> Word:
    """The first of those that have come through most."""
    return max(words, key=lambda one: (one.calls, one.number))


def leader_of(words: Sequence[Word]) -> Word:
    """Whose learning rate all take: the first of those that have made most steps by themselves, and are not new."""
    return max(words, key=lambda one: (one.weight > 0, one.own))


def common(words: Sequence[Word]) -> str | None:
    """The call that is made next: the first, by name, of those that all are at."""
    return min((one for one in words[0].kinds if all(one in other.kinds for other in words)), default=None)


@dataclass(eq=False)
class Call:
    """One that this process is at.

    Args:
      name: its kind, with what has to be alike; gathers, says: see `Word`.
    """

    name: str
    work: Callable[[Any, int], Any]
    gathers: bool = False
    says: Sequence[float] = ()
    is_over: bool = False
    _result: Any = None
    _error: BaseException | None = None

    @property
    def kind(self) -> str:
        return of(self.name)

    def end(self, result: Any) -> None:
        self._result, self.is_over = result, True

    def fail(self, error: BaseException) -> None:
        self._error, self.is_over = error, True

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result
