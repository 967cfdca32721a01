"""What a worker does that comes when all records are trained; the rest is tested with real jobs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from deeprec_ext.allreduce.summing import Summed
from deeprec_ext.data import in_step
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
