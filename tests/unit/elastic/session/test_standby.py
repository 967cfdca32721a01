"""When standby sessions are prepared; the sessions only note what they are asked for."""

from __future__ import annotations

import collections
import math
import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import pytest

from deeprec_ext.elastic.agent.background import GivenUpError
from deeprec_ext.elastic.session import standby as module
from deeprec_ext.elastic.session.standby import Standby


class SessionPool:
    def __init__(self) -> None:
        self.ready: list[str] = []
        self.missing: list[str] = []
        self.haste = self.unpacked = 0
        self.done: list[str] = []
        self.seconds, self.took = 0.0, lambda seconds: None

    def drop_standby(self, keep: Iterable[str]) -> list[str]:
        gone = [one for one in self.ready if one not in set(keep)]
        self.ready = [one for one in self.ready if one in set(keep)]
        return gone

    def has_standby(self, wanted: str) -> bool:
        return wanted in self.ready

    def prepare(self, wanted: str, *, standby: bool) -> None:
        assert standby
        self.took(self.seconds)
        self.ready.append(wanted)
        self.done.append(f"prepare {wanted}")

    def complete(self, wanted: str) -> bool:
        if wanted not in self.missing:
            return False
        self.missing.remove(wanted)
        self.done.append(f"complete {wanted}")
        return True

    def replaced(self) -> list[str]:
        return []

    def pack_present(self, again: Callable[[], None]) -> None:
        if self.unpacked:
            self.unpacked -= 1
            self.done.append("pack")
            again()

    def improve(self, again: Callable[[], None]) -> list[str] | None:
        if not self.haste:
            return None
        self.haste -= 1
        self.done.append("improve")
        return [] if self.haste else ["hasty"]


class Rig:
    """A queue that is worked off by hand, a clock, and timers that wait for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, delay_seconds: float = 0.0) -> None:
        self.now, self.timers = 100.0, list[tuple[float, Callable[[], None]]]()
        self.wanted: list[str] | None = ["a", "b"]
        self.queue: collections.deque[Callable[[], None]] = collections.deque()
        self.pool, self.retired = SessionPool(), list[str]()
        self.memory = 0.5
        self.pool.took = self.pass_by
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(module, "available_memory_share", lambda: self.memory)
        rig = self

        class Timer:
            daemon = False

            def __init__(self, seconds: float, function: Callable[[], None]) -> None:
                self._due = rig.now + seconds, function

            def start(self) -> None:
                rig.timers.append(self._due)

        monkeypatch.setattr(module, "threading", type("threading", (), {"Timer": Timer, "Thread": threading.Thread}))
        self.hold_until = 0.0
        self.standby = Standby(
            self.queue.append, lambda: [self.pool], lambda: self.wanted, self.retired.extend,
            lambda: self.hold_until - self.now,
        )  # fmt: skip
        self.standby.delay_seconds = delay_seconds

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def work(self) -> None:
        """One job of the thread that prepares."""
        self.queue.popleft()()

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        due, self.timers = [t for t in self.timers if t[0] <= self.now], [t for t in self.timers if t[0] > self.now]
        for _, function in due:
            function()


def test_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.standby.soon()
    rig.standby.soon()
    assert len(rig.queue) == 1
    rig.work()
    assert rig.pool.ready == ["a"] and len(rig.queue) == 1
    rig.work()
    assert rig.pool.ready == ["a", "b"]
    rig.work()
    assert not rig.queue


def test_one_that_cannot_be_made_keeps_no_other_from_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    made, tried = rig.pool.prepare, []

    def prepare(wanted: str, *, standby: bool) -> None:
        tried.append(wanted)
        if wanted == "a":
            raise RuntimeError("no such luck")
        made(wanted, standby=standby)

    monkeypatch.setattr(rig.pool, "prepare", prepare)
    rig.standby.soon()
    while rig.queue:
        rig.work()
    assert rig.pool.ready == ["b"] and tried == ["a", "b"]
    rig.standby.placed()  # other PS: it is tried again
    rig.standby.soon()
    rig.work()
    assert tried == ["a", "b", "a"]


def test_who_is_given_up_while_it_prepares_is_not_taken_for_one_that_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(monkeypatch)

    def prepare(wanted: str, *, standby: bool) -> None:
        raise GivenUpError("a PS that it needs is gone")

    with monkeypatch.context() as patch:
        patch.setattr(rig.pool, "prepare", prepare)
        rig.standby.soon()
        with pytest.raises(GivenUpError):
            rig.work()
    rig.standby.soon()
    rig.work()
    assert rig.pool.ready == ["a"]


def test_first_every_standby_session_then_the_rest_of_each_then_a_better_present_one_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(monkeypatch)
    rig.pool.missing, rig.pool.haste = ["a", "b", "a"], 2
    rig.standby.soon()
    pieces = 0
    while rig.queue:
        assert len(rig.queue) == 1  # a command waits for one piece at most
        rig.work()
        pieces += 1
    order = ["prepare a", "prepare b", "complete a", "complete a", "complete b", "improve", "improve"]
    assert rig.pool.done == order and pieces == len(order) + 1
    assert rig.retired == ["hasty"]


def test_none_is_begun_while_a_change_begins_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.standby.soon()
    rig.work()
    rig.standby.stand_back()
    rig.work()
    assert rig.pool.ready == ["a"] and not rig.queue
    rig.sleep(5)
    rig.standby.go_on()
    rig.work()
    assert rig.pool.ready == ["a", "b"]
    rig.sleep(5)  # it went on for as long as it stood back
    rig.wanted = ["a", "b", "c"]
    rig.standby.stand_back()
    rig.standby.soon()
    while rig.queue:
        rig.work()
    assert rig.pool.ready == ["a", "b"]
    rig.sleep(module.STAND_BACK_SECONDS)
    while rig.queue:
        rig.work()
    assert rig.pool.ready == ["a", "b", "c"]


def test_changes_without_end_leave_half_of_the_time_for_standby_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.wanted = [str(number) for number in range(100)]
    made = []
    for _ in range(120):
        rig.standby.stand_back()
        rig.standby.soon()
        rig.work()
        made.append(len(rig.pool.ready))
        rig.sleep(1)
    assert made[0] == made[28] == 0 and 20 <= made[58] <= 30 and made[88] <= made[62] + 2 and made[-1] >= 45


def test_the_present_session_is_not_improved_while_a_change_goes_on_or_memory_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(monkeypatch)
    rig.wanted, rig.pool.haste, rig.hold_until = [], 1, math.inf
    rig.standby.soon()
    rig.work()
    assert not rig.timers, "who ends the change says so"
    rig.hold_until, rig.memory = 0.0, 0.1
    rig.standby.soon()
    rig.work()
    assert not rig.pool.done and not rig.queue
    rig.memory = 0.5
    rig.standby.soon()
    rig.work()
    assert rig.pool.done == ["improve"]


def test_the_present_session_is_not_improved_as_long_as_standby_sessions_are_still_to_be_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(monkeypatch)
    rig.wanted, rig.pool.haste, rig.hold_until = [], 1, rig.now + 60.0  # nobody has a backup yet
    rig.standby.soon()
    rig.work()
    assert not rig.pool.done and not rig.queue
    rig.wanted = ["a"]
    rig.standby.soon()
    rig.work()
    rig.work()
    assert rig.pool.done == ["prepare a"]
    rig.sleep(60.0)
    assert len(rig.queue) == 1
    rig.work()
    assert rig.pool.done == ["prepare a", "improve"]


def test_steps_of_a_session_made_in_haste_are_packed_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, delay_seconds=30.0)
    rig.pool.unpacked, rig.pool.haste, rig.hold_until = 2, 1, math.inf  # the change has not ended for the clock
    rig.standby.placed()
    rig.standby.soon()
    rig.work()
    assert rig.pool.done[:2] == ["pack", "prepare a"]
    while rig.queue:
        rig.work()
    assert rig.pool.done == ["pack", "prepare a", "pack", "prepare b"]


def test_nothing_is_packed_in_haste_where_memory_is_short_or_the_session_will_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(monkeypatch)
    rig.pool.unpacked, rig.memory = 1, 0.1
    rig.standby.soon()
    rig.work()
    rig.memory, rig.wanted = 0.5, None
    rig.standby.soon()
    rig.work()
    assert not rig.pool.done
    rig.wanted = []
    rig.standby.soon()
    rig.work()
    assert rig.pool.done == ["pack"]


def test_after_a_change_of_the_ps_the_most_important_are_made_at_once_and_the_rest_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(monkeypatch, delay_seconds=30.0)
    rig.wanted, rig.pool.missing = ["a", "b", "c", "d"], ["a"]
    rig.pool.seconds = 0.6 * module.EARLY_SECONDS
    rig.standby.placed()
    rig.standby.soon()
    while rig.queue:
        rig.work()
    assert rig.pool.done == ["prepare a", "prepare b"], "then the seconds are spent"
    rig.sleep(10.0)
    rig.standby.placed()  # another change meanwhile: from then on
    rig.wanted = ["e", "f", "g"]
    rig.sleep(15.0)
    while rig.queue:
        rig.work()
    assert rig.pool.done == ["prepare a", "prepare b", "prepare e", "prepare f"]
    rig.sleep(30.0)
    while rig.queue:
        rig.work()
    assert rig.pool.ready == ["e", "f", "g"]


def test_a_slow_machine_prepares_one_at_once_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, delay_seconds=90.0)
    rig.pool.seconds = 4 * module.EARLY_SECONDS
    rig.standby.placed()
    rig.standby.soon()
    while rig.queue:
        rig.work()
    assert rig.pool.ready == ["a"]


def test_those_of_another_view_are_closed_also_when_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, delay_seconds=30.0)
    rig.pool.ready, rig.wanted = ["old"], []
    rig.standby.placed()
    rig.standby.soon()
    rig.work()
    assert rig.retired == ["old"] and rig.pool.ready == [] and not rig.timers


def test_none_is_added_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.memory = 0.1
    rig.standby.soon()
    rig.work()
    assert rig.pool.ready == [] and not rig.queue
    rig.standby.soon()
    rig.work()
    assert len(rig.timers) == 1, "or there would be one more for each time that somebody asks"
    rig.memory = 0.5
    rig.sleep(module.MEMORY_SECONDS)
    rig.work()
    assert rig.pool.ready == ["a"]


def test_nothing_is_touched_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.pool.ready, rig.wanted = ["old"], None
    rig.standby.soon()
    rig.work()
    assert rig.pool.ready == ["old"] and not rig.retired


@pytest.mark.parametrize(("container", "expected"), [(0.05, 0.05), (1.0, 0.4), (0.6, 0.4)])
def test_memory_is_short_where_the_machine_or_the_container_has_little_left(monkeypatch, tmp_path, container, expected):
    told = tmp_path / "meminfo"
    told.write_text("MemTotal: 1000 kB\nMemAvailable: 400 kB\n")
    monkeypatch.setattr(module, "_container", lambda: SimpleNamespace(free_memory_share=lambda: container))
    monkeypatch.setattr(module, "open", lambda path, **how: told.open(**how), raising=False)
    assert module.available_memory_share() == pytest.approx(expected)
