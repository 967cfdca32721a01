"""A machine's clock that is set while the job runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from deeprec_ext.aimaster.core.clock import SystemClock
from deeprec_ext.aimaster.store.store import Store

DAY = 86_400.0


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_a_clock_that_jumps_by_a_day_is_not_followed(jump: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, really = SystemClock(), time.time
    before = clock.wall(), clock.monotonic()
    monkeypatch.setattr(time, "time", lambda: really() + jump)
    assert 0 <= clock.wall() - before[0] < DAY / 2 and clock.monotonic() >= before[1]


def test_an_aimaster_that_begins_after_the_clock_was_set_back_goes_on_from_what_is_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "aimaster.db")
    store.add_event(time.time() + DAY, "one", "", 0, {})
    clock = SystemClock(store.newest_time())
    assert clock.wall() >= store.newest_time()
    store.close()
