"""Times as Kubernetes writes them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from tests.unit.tfjob.world import T0
from tfjob.model.times import parse_time, seconds_since, stamp


def test_a_time_is_written_in_utc_and_read_back() -> None:
    assert stamp(T0) == "2025-01-31T12:00:00Z" and parse_time(stamp(T0)) == T0
    assert stamp(datetime(2025, 1, 31, 14, tzinfo=timezone(timedelta(hours=2)))) == stamp(T0)


@pytest.mark.parametrize("text", ["2025-01-31T12:00:00.500000Z", "2025-01-31T14:00:00.500000+02:00"])
def test_micro_times_and_other_zones_are_read_too(text: str) -> None:
    assert parse_time(text) == T0 + timedelta(seconds=0.5)


@pytest.mark.parametrize(("text", "seconds"), [("2025-01-31T11:59:00Z", 60.0), (None, None), ("", None)])
def test_what_is_not_written_is_no_time_ago(text: str | None, seconds: float | None) -> None:
    assert seconds_since(text, T0) == seconds
