"""A real job with a liar in it: a short run of `python -m benchmarks.lies`."""

from __future__ import annotations

from benchmarks.lies.__main__ import run
from benchmarks.lies.edges import kinds, lies


def test_a_liar_breaks_nothing_of_a_job_that_trains() -> None:
    result = run(messages=300, seed=7, records=20_000, seconds=400.0)
    assert result["broke"] == {}
    assert result["messages"] == 300 and result["looks"] > 3 and result["suspect"]
    assert sum(sum(codes.values()) for codes in result["refused"].values()) > 50, "lies that nobody refuses are none"


def test_the_same_seed_tells_the_same_lies_of_every_kind() -> None:
    first, again = lies(3000, 5, "d"), lies(3000, 5, "d")
    assert [repr(one.fields) for one in first] == [repr(one.fields) for one in again]
    assert {one.kind for one in first} == set(kinds())
