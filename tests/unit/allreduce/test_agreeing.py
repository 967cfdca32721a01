"""What follows from what members say when they meet."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deeprec_ext.allreduce.agreeing import ANY, Word, agreed, heard
from deeprec_ext.allreduce.ring import LostError

HAS_IT = Word(
    begun=1, step=7, number=4, before=3, kept=9, kind=5, may_begin=False, kind_had=5, type_had="<f4", has_place=False,
    asks=[[0], 5, 0, "<f4"], absent=0,
)  # fmt: skip
NEW = HAS_IT._replace(begun=-1, step=-1, number=-1, before=-1, kept=0, kind_had=0)
LATE = HAS_IT._replace(step=6, number=3, before=2)


def test_words_travel_and_those_of_another_release_end_the_ring() -> None:
    assert heard([one.told() for one in (HAS_IT, NEW)]) == [HAS_IT, NEW]
    for strange in (b"[1, 2]", b"7", b"no json", json.dumps([*HAS_IT, 0]).encode()):
        with pytest.raises(LostError, match="of this release"):
            heard([HAS_IT.told(), strange])


@pytest.mark.parametrize(
    "other", [{"step": "7"}, {"begun": None}, {"kept": 9.5}, {"may_begin": 1}, {"type_had": 4}, {"absent": [0]}]
)
def test_a_word_of_other_types_ends_the_ring_and_not_the_script(other: dict[str, Any]) -> None:
    strange = HAS_IT._replace(**other).told()
    with pytest.raises(LostError, match="of this release"):
        heard([HAS_IT.told(), strange])
    with pytest.raises(LostError, match="of this release"):
        heard([json.dumps(dict.fromkeys(Word._fields, 0)).encode()])


def test_who_is_new_takes_the_state_and_who_is_late_the_result_of_who_is_farthest() -> None:
    found = agreed([NEW, LATE, HAS_IT, HAS_IT])
    assert found.source == 2 and not found.begins
    assert found.same == [False, False, True, True] and found.late == [False, True, False, False]
    assert all(found.alike) and not any(found.waits)


@pytest.mark.parametrize(
    "other",
    [LATE._replace(begun=0), LATE._replace(number=2), HAS_IT._replace(step=5, number=3, before=2)],
    ids=["another model", "a result that nobody followed", "two steps"],
)
def test_who_lacks_more_than_the_last_result_takes_the_state(other: Word) -> None:
    found = agreed([HAS_IT, other])
    assert found.source == 0 and not any(found.late) and found.same == [True, False]


def test_a_result_that_nobody_may_be_given_is_none() -> None:
    assert not any(agreed([HAS_IT._replace(kept=0), LATE]).late)


def test_of_two_models_the_one_that_began_last_is_farther() -> None:
    assert agreed([HAS_IT._replace(step=900), HAS_IT._replace(begun=2, step=1)]).source == 1


@pytest.mark.parametrize(("may", "source"), [([False, True, True], 1), ([False, False, False], -1)])
def test_where_nobody_has_a_state_that_of_the_first_that_may_begin_is_everybodys(may: list[bool], source: int) -> None:
    found = agreed([NEW._replace(may_begin=one) for one in may])
    assert found.begins and found.source == source
    assert found.same == [rank == source for rank in range(3)]


def test_who_sums_something_else_is_not_alike_and_who_looks_is() -> None:
    found = agreed([HAS_IT, NEW._replace(kind=6), NEW._replace(kind=ANY)])
    assert found.alike == [True, False, True] and found.kind == 5
    late = agreed([HAS_IT._replace(kind=6), LATE])  # it asks for the sum that the other has had
    assert late.late == [False, True] and late.alike == [True, True]


def test_who_is_elsewhere_waits_for_those_who_can_be_waited_for() -> None:
    here, elsewhere = HAS_IT._replace(has_place=True), NEW._replace(has_place=True, kind=6)
    found = agreed([elsewhere, here])
    assert found.waits == [True, False] and all(found.alike) and found.same == [True, True]
    fits = agreed([elsewhere, HAS_IT])  # says no word before each sum
    assert fits.alike == [False, True] and fits.source == 1


@pytest.mark.parametrize(
    ("words", "behind"),
    [
        ([HAS_IT._replace(absent=1), NEW], True), ([HAS_IT, NEW._replace(absent=1)], False),
        ([HAS_IT._replace(absent=2), HAS_IT], False), ([HAS_IT._replace(absent=2), HAS_IT._replace(absent=1)], True),
        ([LATE._replace(absent=1), HAS_IT], False), ([LATE, HAS_IT._replace(absent=1)], True),
    ],
)  # fmt: skip
def test_only_who_is_farthest_can_know_whether_somebody_has_gone_on(words: list[Any], behind: bool) -> None:
    assert agreed(words).may_be_behind == behind
