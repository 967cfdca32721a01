"""Parts of a step's records."""

from __future__ import annotations

import random

import pytest

from deeprec_ext.elastic.member.joined import global_batch, part, parts


@pytest.mark.parametrize(
    ("records", "members", "parts"),
    [
        (32, 1, [32]), (32, 3, [12, 10, 10]), (64, 4, [16] * 4), (33, 2, [17, 16]), (6, 4, [2, 2, 1, 1]), (2, 4, [1, 1, 0, 0]),
        (1, 1, [1]),
    ],
)  # fmt: skip
def test_all_have_alike_and_even_parts_where_they_can(records, members, parts):
    assert [part(records, members, place) for place in range(members)] == parts


@pytest.mark.parametrize(
    ("records", "holds", "found"),
    [
        (50, [50, 50], [26, 24]), (50, [50, 0], [50, 0]), (50, [0, 50], [0, 50]), (50, [10, 50], [10, 40]),
        (50, [35, 15], [35, 15]), (50, [8, 5], [8, 5]), (50, [3, 50], [3, 46]), (51, [3, 51], [3, 48]), (50, [0, 0], [0, 0]),
        (60, [60, 4, 60, 11], [22, 4, 22, 11]), (2, [2, 2, 0, 2], [1, 1, 0, 0]), (1, [0, 1], [0, 1]), (10, [], []),
    ],
)  # fmt: skip
def test_where_some_run_short_the_others_have_more_of_a_step(records, holds, found):
    assert parts(records, holds) == found


def test_parts_are_never_more_than_a_step_nor_than_what_is_there():
    chance = random.Random(1)
    for _ in range(2000):
        members, records = chance.randint(1, 12), chance.randint(1, 90)
        holds = [chance.choice((0, records, chance.randint(0, records))) for _ in range(members)]
        found = parts(records, holds)
        assert all(0 <= one <= most for one, most in zip(found, holds))
        assert min(records, sum(holds)) - members < sum(found) <= records
        assert any(found) == any(holds), "somebody goes on"


def test_who_is_alone_has_all():
    assert global_batch(48) == 48
