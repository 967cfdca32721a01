"""The store survives what its process does not."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from deeprec_ext.aimaster.core.clock import SystemClock
from deeprec_ext.aimaster.core.records import Failure, PsInfo, RoleRecord, Scaling
from deeprec_ext.aimaster.membership.view import AgreedCluster, first_view, replace_lost, take_task
from deeprec_ext.aimaster.store import events
from deeprec_ext.aimaster.store import store as stores
from deeprec_ext.aimaster.store.events import EventLog
from deeprec_ext.aimaster.store.store import Store, StoreError
from deeprec_ext.launch.records.eventlog import EventTail


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    store = Store(tmp_path / "aimaster.db")
    scaling = Scaling(
        1, "scale-up", "ps", added=("ps-2",), targets=(PsInfo(0, "ps-0", "a:1", "i"),), pause_seconds=(0.5,)
    )
    store.save_scaling(scaling, b"moved")
    store.save_scaling(scaling)
    store.save_role(RoleRecord("ps-0", task=3))
    store.close()
    again = Store(tmp_path / "aimaster.db")
    assert again.scalings() == [scaling] and again.moved(1) == b"moved"
    assert again.roles() == [RoleRecord("ps-0", task=3)]
    again.close()


def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "aimaster.db")
    with pytest.raises(ZeroDivisionError), store.transaction(durable=True):
        store.put(state="COMMIT")
        _ = 1 / 0
    assert store.get("state") is None
    store.close()


def test_the_incarnation_grows_with_every_start(tmp_path: Path) -> None:
    numbers = []
    for _ in range(3):
        store = Store(tmp_path / "aimaster.db")
        numbers.append(store.next_incarnation())
        store.close()
    assert numbers == [1, 2, 3]


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "aimaster.db") as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(StoreError, match="schema 99"):
        Store(tmp_path / "aimaster.db")


def test_no_run_directory_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no run directory"):
        Store(tmp_path / "aimaster.db", read_only=True)


def test_events_that_a_killed_process_did_not_append_are_appended_by_the_next(tmp_path: Path) -> None:
    store, path = Store(tmp_path / "aimaster.db"), tmp_path / "events.jsonl"
    log = EventLog(store, path, SystemClock())
    log.add("one")
    store.add_event(1.0, "two", "ps-0", 3, {"cause": "x"})  # killed before the line was written
    log.close()
    with path.open("a") as file:
        file.write('{"torn')
    EventLog(store, path, SystemClock()).close()
    lines = path.read_text().splitlines()
    assert [json.loads(line)["type"] for line in lines if line != '{"torn'] == ["one", "two"]
    store.close()


def test_a_full_file_of_events_is_put_aside_and_followed_without_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "FILE_BYTES", 1000)
    store, path = Store(tmp_path / "aimaster.db"), tmp_path / "events.jsonl"
    follower, seen = EventTail(path), []
    log = EventLog(store, path, SystemClock())
    for number in range(60):
        log.add("one", number=number)
        if number % 3 == 0:
            seen += follower.poll()
    assert [event["number"] for event in seen + follower.poll()] == list(range(60))
    assert sorted(one.name for one in tmp_path.glob("events*")) == ["events.jsonl", "events.jsonl.1"]
    assert sum(one.stat().st_size for one in tmp_path.glob("events*")) < 2200
    log.close()

    path.write_text("")  # killed as the new file had just been begun
    EventLog(store, path, SystemClock()).close()
    last = json.loads((tmp_path / "events.jsonl.1").read_text().splitlines()[-1])["sequence"]
    assert [json.loads(line)["sequence"] for line in path.read_text().splitlines()] == list(range(last + 1, 61))
    store.close()


@pytest.mark.parametrize("step", ["replace", "open"])
def test_a_file_of_events_that_cannot_be_put_aside_repeats_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A full disk: neither a new name nor a new file."""
    monkeypatch.setattr(events, "FILE_BYTES", 1000)
    store, path, failed = Store(tmp_path / "aimaster.db"), tmp_path / "events.jsonl", [0]
    log, usual = EventLog(store, path, SystemClock()), getattr(Path, step)

    def full(self: Path, *arguments: object, **more: object) -> object:
        if self.name == "events.jsonl" and failed[0] < 3 and (step == "replace" or arguments[:1] == ("ab",)):
            failed[0] += 1
            raise OSError(28, "No space left on device")
        return usual(self, *arguments, **more)

    monkeypatch.setattr(Path, step, full)
    last = 0
    while failed[0] < 3 or last % 3:
        log.add("one", number=last)
        log.try_again()
        last += 1
    assert not log.behind
    lines = [line for one in sorted(tmp_path.glob("events*"), reverse=True) for line in one.read_text().splitlines()]
    assert [json.loads(line)["number"] for line in lines] == list(range(last))
    log.close()
    store.close()


def test_the_oldest_events_scalings_and_failures_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "FORGET_EVERY", 10)
    monkeypatch.setattr(stores, "EVENTS_KEPT", 30)
    monkeypatch.setattr(stores, "SCALINGS_KEPT", 20)
    monkeypatch.setattr(stores, "FAILURES_KEPT", 20)
    store = Store(tmp_path / "aimaster.db")
    for _ in range(100):
        store.add_event(1.0, "one", "", 0, {})
        store.save_scaling(Scaling(store.next_scaling_id(), "scale-up", "ps", outcome="committed"))
        store.save_failure(Failure(0, "ps-1", "killed by signal 9", 5.0, 0.1))
    assert [row[0] for row in store.events(0)] == list(range(71, 101))
    assert [scaling.id for scaling in store.scalings()] == list(range(81, 101))
    assert [failure.id for failure in store.failures()] == list(range(81, 101))
    assert [failure.id for failure in store.failures(2)] == [99, 100], "what a look every ten seconds asks for"
    store.close()


def test_an_event_is_told_only_when_its_transaction_is_there_to_stay(tmp_path: Path) -> None:
    store = Store(tmp_path / "aimaster.db")
    log = EventLog(store, tmp_path / "events.jsonl", SystemClock())
    told = (tmp_path / "events.jsonl").read_text
    with contextlib.suppress(ZeroDivisionError), store.transaction():
        log.add("decided")
        raise ZeroDivisionError
    with store.transaction(durable=True):
        log.add("decided", scaling=1)
        assert told() == ""
    assert '"scaling": 1' in told() and told().count("decided") == 1
    log.close()
    store.close()


def test_a_view_round_trips_and_a_replacement_takes_over_the_slots() -> None:
    cluster = AgreedCluster()
    members = []
    for number in range(2):
        cluster, task = take_task(cluster)
        members.append(PsInfo(task, f"ps-{number}", f"h:{number}", f"i{number}"))
    cluster = first_view(cluster, tuple(members), 4)
    assert AgreedCluster.from_json(cluster.to_json()) == cluster
    cluster, task = take_task(cluster)
    replaced = replace_lost(cluster, {"ps-1": PsInfo(task, "ps-1", "h:9", "i9")})
    assert replaced.slot_map == (0, 2, 0, 2)
    assert (replaced.epoch, replaced.generation, replaced.live) == (cluster.epoch + 1, cluster.generation + 1, False)


def test_the_newest_scalings_are_read_as_they_were_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "aimaster.db")
    for number in range(1, 31):
        store.save_scaling(Scaling(number, "scale-up", "ps", pause_seconds=(0.1, 0.2)), b"moved")
    newest = [Scaling.from_json(text) for text in store.newest_scalings(20)]
    assert newest == store.scalings()[-20:]
    assert len(store.newest_scalings(200)) == 30
