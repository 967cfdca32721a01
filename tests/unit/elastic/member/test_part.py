"""Parts of a step's records."""

from __future__ import annotations

import pytest

from deeprec_ext.elastic.member.joined import global_batch, part


@pytest.mark.parametrize(
    ("records", "members", "parts"),
    [
        (32, 1, [32]), (32, 3, [12, 10, 10]), (64, 4, [16] * 4), (33, 2, [17, 16]), (6, 4, [2, 2, 1, 1]), (2, 4, [1, 1, 0, 0]),
        (1, 1, [1]),
    ],
)  # fmt: skip
def test_all_have_alike_and_even_parts_where_they_can(records, members, parts):
    assert [part(records, members, place) for place in range(members)] == parts


def test_who_is_alone_has_all():
    assert global_batch(48) == 48
