"""What a worker does that comes when all records are trained, and what sums say of its batches; the rest is tested with real
jobs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from deeprec_ext.allreduce.summing import Summed
from deeprec_ext.data import in_step, streams
from deeprec_ext.data.plan import plan
from deeprec_ext.errors import DeepRecError


class Member:
    """Of a job in which others have made `others` steps; 0: nobody is there any more."""

    def __init__(self, role: str, others: int, size: int, step: int = -1) -> None:
        self.identity, self.size, self.step, self._others = SimpleNamespace(role=role), size, step, others
        self.sums = 0

    def sum(self, arrays, weight, *, last):
        assert weight == 0 and last
        self.sums, self.step = self.sums + 1, self._others + 1
        return Summed(list(arrays), 0.0, self.step, False, True)


def ended(monkeypatch, member: Member, like) -> None:
    monkeypatch.setattr(in_step, "Member", Member)
    in_step._Loop(member, None, lambda batch: [], lambda summed: None, like)._end()


LIKE = [np.zeros(3)]


def test_who_comes_late_takes_the_model_of_those_who_are_there(monkeypatch):
    member = Member("chief", others=7, size=2)
    ended(monkeypatch, member, LIKE)
    assert member.sums == 1 and member.step == 8


@pytest.mark.parametrize(
    ("others", "size", "like"), [(0, 1, LIKE), (0, 0, LIKE), (7, 2, None)], ids=["they left", "nobody", "no arrays"]
)
def test_a_chief_that_can_get_no_model_says_so_before_it_is_saved(monkeypatch, others, size, like):
    with pytest.raises(DeepRecError, match="nothing is to be saved here"):
        ended(monkeypatch, Member("chief", others, size), like)
    ended(monkeypatch, Member("worker", others, size), like)


def test_who_has_summed_needs_nothing(monkeypatch):
    member = Member("chief", others=7, size=2, step=7)
    ended(monkeypatch, member, LIKE)
    assert member.sums == 0


class Others:
    """A member whose sums do not always count: this process was away."""

    def __init__(self, void: set[int], alone: set[int]) -> None:
        self.step, self._void, self._alone = 0, void, alone
        self.model, self._before = np.zeros(100), np.zeros(100)

    def sum(self, arrays, weight, *, last):
        self.step += 1
        followed = self.step not in self._alone
        if not followed:  # it alone had the sum before
            self.model = self.model - self._before
        counted = followed and self.step not in self._void
        self._before = arrays[0] if counted and weight else np.zeros(100)
        self.model = self.model + self._before
        return Summed(list(arrays), weight, self.step, counted, followed)


@pytest.mark.parametrize(
    ("void", "alone"),
    [
        (set(), set()),
        ({1}, set()),
        ({2, 3, 7}, set()),
        ({4}, {4}),
        ({2, 5, 6}, {5, 8}),
        (set(range(2, 30, 2)), {9, 15}),
    ],
)
def test_each_record_is_in_the_model_once_whatever_sums_say(void, alone):
    made = plan(100, 10, 1, True, 1, "lines", 30, None, "train", False, {})
    feeder, member = streams.alone(made), Others(void, alone)
    try:
        loop = in_step._Loop(
            member, feeder, lambda batch: [np.bincount(batch, minlength=100).astype(float)], lambda one: None
        )
        loop.run()
    finally:
        feeder.finish()
        feeder.close()
    np.testing.assert_array_equal(member.model, np.ones(100))
