"""A store, and a file of events, that cannot be written: nothing fails, nothing is acted on, and all of it is written later."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deeprec_ext.aimaster.core.clock import SystemClock
from deeprec_ext.aimaster.core.records import RoleRecord, Scaling
from deeprec_ext.aimaster.job.unwritten import CODE
from deeprec_ext.aimaster.rebuilding import opening
from deeprec_ext.aimaster.scaling.machine import State
from deeprec_ext.aimaster.store import storefile
from deeprec_ext.aimaster.store.events import EventLog
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.aimaster.store.storefile import StoreFile, damaged, kept_copy
from deeprec_ext.errors import UsageError
from tests.unit.aimaster.world import World, world


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system of two megabytes."""
    if os.geteuid():
        pytest.skip("only root may mount a small file system")
    path = tmp_path / "small"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no small file system can be mounted here: {made.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path) -> None:
    """Until nothing more fits."""
    with contextlib.suppress(OSError), (path / "filler").open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def empty(path: Path) -> None:
    (path / "filler").unlink()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storefile, "AGAIN_SECONDS", 0.0)


def rows_of(path: Path, query: str) -> list[tuple[object, ...]]:
    """As another process sees it."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def check_same(store: Store) -> None:
    """The file has what the store has in memory."""
    with contextlib.closing(sqlite3.connect(store._path)) as db:
        assert list(db.iterdump()) == list(store._db.iterdump())


def test_on_a_full_disk_the_store_goes_on_and_the_file_follows_later(small: Path) -> None:
    store, done = Store(small / "aimaster.db"), []
    log = EventLog(store, small / "events.jsonl", SystemClock())
    store.put(a=1)
    fill(small)
    number = 0
    while not store.behind:  # there is some room in the write-ahead log
        number += 1
        with store.transaction(durable=True):
            store.put(state=f"COMMIT {number}" + "x" * 3000)
            log.add("decided", number=number)
            store.after_commit(lambda: done.append(store.get("state")))
    assert "full" in store.behind and store.get("state").startswith(f"COMMIT {number}")
    told = len(done)
    assert told == number - 1, "nobody acts on what is not written"
    for more in range(100):
        store.save_scaling(Scaling(store.next_scaling_id(), "scale-up", "ps"))
        log.add("more", number=more)
    store.try_again()
    assert store.behind and len(store.scalings()) == 100
    empty(small)
    store.try_again()
    log.try_again()
    assert not store.behind and not log.behind and len(done) == number
    check_same(store)
    lines = [json.loads(line) for line in (small / "events.jsonl").read_text().splitlines()]
    assert [line["sequence"] for line in lines] == list(range(1, number + 101))
    log.close()
    store.close()
    again = Store(small / "aimaster.db")
    assert len(again.scalings()) == 100 and again.get("state").startswith(f"COMMIT {number}")
    again.close()


def test_what_waits_is_bounded(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storefile, "WAITING_BYTES_MAX", 50_000)
    store = Store(small / "aimaster.db")
    fill(small)
    for number in range(300):
        store.put_blob("blob", os.urandom(1000))
        store.put(number=number)
    assert store.behind and store._file._bytes <= 50_000 and len(store._file._waiting) < 100
    empty(small)
    store.try_again()
    assert not store.behind
    check_same(store)
    store.close()


@pytest.mark.parametrize(
    "error", ["database or disk is full", "disk I/O error", "attempt to write a readonly database"]
)
def test_whatever_the_reason_is_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    store, original, failing = Store(tmp_path / "aimaster.db"), StoreFile._commit, [True]

    def commit(self: StoreFile, statements: object, durable: bool) -> None:
        if failing[0]:
            raise sqlite3.OperationalError(error)
        original(self, statements, durable)  # type: ignore[arg-type]

    monkeypatch.setattr(StoreFile, "_commit", commit)
    store.put(a=1)
    store.save_role(RoleRecord("ps-0", task=3))
    with contextlib.suppress(ZeroDivisionError), store.transaction():
        store.put(a=2)
        raise ZeroDivisionError
    assert error in store.behind and store.get("a") == 1
    failing[0] = False
    store.try_again()
    check_same(store)
    assert store.roles() == [RoleRecord("ps-0", task=3)]
    store.close()


def test_a_deleted_store_is_written_anew_without_a_loss(tmp_path: Path) -> None:
    store = Store(tmp_path / "aimaster.db")
    store.put(a=1)
    for path in tmp_path.glob("aimaster.db*"):
        path.unlink()
    store.put(a=2)  # into a file without a name
    store.try_again()
    assert not store.behind
    check_same(store)
    assert rows_of(tmp_path / "aimaster.db", "SELECT value FROM meta WHERE key='a'") == [("2",)]
    store.close()


def test_a_store_that_is_damaged_while_it_is_used_is_put_aside_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "aimaster.db"
    store = Store(path)
    for number in range(500):
        store.add_event(1.0, "one", "", 0, {"number": number})
    store.checkpoint()
    store._file._shut()  # what it has in its cache it does not read again
    with path.open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(20_000))
    for number in range(500):
        store.add_event(1.0, "two", "", 0, {"number": number})
        store.try_again()
    assert not store.behind and len(store.events(0, 2000)) == 1000
    check_same(store)
    assert damaged(path).exists()
    store.close()


def test_a_store_whose_log_is_damaged_goes_back_silently_and_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "aimaster.db"
    store = Store(path)
    for number in range(50):
        store.put(number=number)
    for part in sorted(tmp_path.glob("aimaster.db*")):  # as a killed process leaves it
        for name in ("copy", "whole"):
            shutil.copy(part, tmp_path / f"{name}-{part.name}")
    store.close()
    whole, killed = tmp_path / "whole-aimaster.db", tmp_path / "copy-aimaster.db"
    opening.quarantine_what_went_back(whole)
    assert whole.exists()
    log = killed.with_name(killed.name + "-wal")
    with log.open("r+b") as file:
        file.seek(log.stat().st_size // 2)
        file.write(bytes(8 << 10))  # whole frames: a part of one may be where nothing was written
    for shared in tmp_path.glob("copy-*-shm"):
        shared.unlink()
    with contextlib.closing(sqlite3.connect(killed)) as db:
        assert not storefile.damage(db) and db.execute("SELECT value FROM meta WHERE key='number'").fetchone() != (
            "49",
        )
    assert storefile.lacks(killed) > 0
    opening.quarantine_what_went_back(killed)
    assert not killed.exists() and damaged(killed).exists()


@pytest.mark.parametrize("opened", [True, False])
def test_a_store_that_is_gone_is_told_as_gone_and_leaves_what_was_put_aside_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, opened: bool
) -> None:
    path = tmp_path / "aimaster.db"
    store = Store(path)
    store.put(number=1)
    store.close()
    path.unlink()
    damaged(path).write_bytes(b"what an earlier AIMaster found damaged")
    if opened:  # as `wait_for` does before: the file is made by that
        assert opening.unwritable(path) == ""
    opening.quarantine_what_went_back(path)
    assert damaged(path).read_bytes() == b"what an earlier AIMaster found damaged"
    assert path.exists() == opened
    assert ("is gone, or empty" in caplog.text) == opened and "write-ahead log" not in caplog.text
    store = Store(path)
    store.put(number=2)
    store.close()
    assert storefile.lacks(path) == 0


def test_damage_that_the_copy_finds_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "aimaster.db"
    store = Store(path)
    for number in range(500):
        store.add_event(1.0, "one", "", 0, {"number": number})
    store.checkpoint()
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(20_000))
    with contextlib.suppress(sqlite3.DatabaseError):
        store.copy()
    store.try_again()
    store.try_again()
    check_same(store)
    store.copy()
    store.close()


def test_a_store_that_is_found_damaged_at_the_end_of_a_job_is_written_anew(tmp_path: Path) -> None:
    """Damaged since the last copy, a minute ago: the summary is read from it."""

    async def main() -> None:
        async with world(tmp_path) as it:
            store, path = it.master.job.store, it.master.job.store._file.path
            for number in range(500):
                store.add_event(1.0, "one", "", 0, {"number": number})
            store.checkpoint()
            store._file._shut()
            with path.open("r+b") as file:
                file.seek(8192)
                file.write(os.urandom(40_000))
            events = len(store.events(0, 10_000))
        assert damaged(path).exists()
        for one in (path, kept_copy(path)):
            with contextlib.closing(sqlite3.connect(one)) as db:
                assert not storefile.damage(db)
                assert db.execute("SELECT count(*) FROM events").fetchone()[0] >= events

    asyncio.run(main())


def test_a_damaged_store_is_told_from_one_that_is_out_of_reach(tmp_path: Path) -> None:
    path = tmp_path / "aimaster.db"
    store = Store(path)
    store.put(cluster="x" * 10_000, aimaster_incarnation=3)
    store.close()
    assert opening.unwritable(path) == ""
    path.write_bytes(b"no database" * 1000)
    assert opening.unwritable(path) == "", "waiting does not mend it"
    empty_one = Store(path)
    assert empty_one.get("aimaster_incarnation") is None and damaged(path).read_bytes().startswith(b"no database")
    empty_one.close()


def test_a_resumed_run_goes_on_from_the_copy_or_says_what_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "aimaster.db"
    store = Store(path)
    store.put(aimaster_incarnation=3, cluster="{}")
    store.save_scaling(Scaling(1, "scale-up", "ps", outcome="committed"), b"moved")
    store.copy()
    store.close()
    path.write_bytes(os.urandom(30_000))
    opening.resume_from_copy(path)
    again = Store(path)
    assert again.get("aimaster_incarnation") == 3 and again.scalings()[0].outcome == "committed"
    again.close()

    path.write_bytes(os.urandom(30_000))
    kept_copy(path).write_bytes(os.urandom(30_000))
    with pytest.raises(UsageError, match="its copy cannot be read either"):
        opening.resume_from_copy(path)
    shutil.rmtree(kept_copy(path), ignore_errors=True)
    kept_copy(path).unlink()
    with pytest.raises(UsageError, match="the position in the data are lost"):
        opening.resume_from_copy(path)


def test_a_copy_of_a_damaged_store_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "aimaster.db"
    store = Store(path)
    for number in range(500):
        store.add_event(1.0, "one", "", 0, {"number": number})
    store.checkpoint()
    store.copy()
    kept = kept_copy(path).read_bytes()
    store._file._shut()
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(8192))
    with pytest.raises(sqlite3.DatabaseError):
        store.copy()
    assert kept_copy(path).read_bytes() == kept
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []
    store.close()


def test_an_aimaster_on_a_full_disk_answers_waits_and_goes_on(small: Path) -> None:
    """Status is served, a scaling stands still and says so, nobody hears of a decision, and all of it goes on by itself."""

    async def play() -> None:
        world = World(small)
        await world.start()
        await world.training()
        job = world.master.job

        async def keep_full() -> None:
            while True:  # what SQLite frees when it closes its file is taken as well
                fill(small)
                await asyncio.sleep(0.01)

        filling = asyncio.get_running_loop().create_task(keep_full())
        await world.until(lambda: bool(job.unwritten.notices()))
        status = await world.status()
        notice = status.notices[0].notice
        assert notice.code == CODE and "goes on by itself" in notice.remedy
        assert (
            "No space left" in notice.text or "disk is full" in notice.text
        )  # the latter while SQLite has just freed some
        reply = await world.scale(ps=3)
        await world.until(
            lambda: (
                world.master.scalings.running is not None
                and "waits for the disk" in world.master.scalings.running.scaling.detail
            )
        )
        before = {name: agent.view.epoch for name, agent in world.backend.everybody.items()}
        await asyncio.sleep(1.0)
        assert {name: agent.view.epoch for name, agent in world.backend.everybody.items()} == before
        assert job.store.behind and not world.master.broken.is_set() and (await world.status()).state == "scaling"
        filling.cancel()
        empty(small)
        await world.until(
            lambda: any(s.id == reply.scaling_id and s.outcome == "committed" for s in world.master.scalings.records()),
            20,
        )
        assert not (await world.status()).notices
        events = [json.loads(line) for line in (small / "events.jsonl").read_text().splitlines()]
        assert "written_again" in [event["type"] for event in events]
        assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
        for agent in world.backend.everybody.values():
            agent.stop()
        await world.master.stop()

    asyncio.run(play())


def test_a_decision_that_is_written_is_told_although_what_came_since_cannot_be(tmp_path: Path) -> None:
    """The pause is a lease: who waited for the disk once more would commit what trainers have gone on without."""

    async def play() -> None:
        async with world(tmp_path) as it:
            await it.training()
            job, stored = it.master.job, it.master.job.stored

            async def full_from_the_decision_on(timeout_seconds: float | None = None) -> bool:
                running = it.master.scalings.running
                if timeout_seconds is None and running is not None and running.state is State.COMMIT:
                    await asyncio.Event().wait()
                return await stored(timeout_seconds)

            job.stored = full_from_the_decision_on
            reply = await it.scale(ps=3)
            await it.until(
                lambda: any(
                    s.id == reply.scaling_id and s.outcome == "committed" for s in it.master.scalings.records()
                ),
                20,
            )

    asyncio.run(play())


def test_a_store_that_went_back_is_rebuilt_from_what_agents_know(tmp_path: Path) -> None:
    """What SQLite makes of a damaged log: a store from before the last scaling, whole and wrong."""

    async def play() -> None:
        world = World(tmp_path)
        await world.start()
        await world.training()
        path, before = tmp_path / "aimaster.db", tmp_path / "before"
        with contextlib.closing(sqlite3.connect(path)) as db, contextlib.closing(sqlite3.connect(before)) as copy:
            db.backup(copy)
        await world.scale(ps=3)
        assert (await world.ended()).outcome == "committed"
        slots = list((await world.status()).slot_map)
        await asyncio.sleep(0.5)  # agents are told what to keep a little later
        await world.crash()
        for part in ("aimaster.db-wal", "aimaster.db-shm"):
            (tmp_path / part).unlink(missing_ok=True)
        shutil.copy(before, path)
        assert storefile.lacks(path) > 0
        opening.quarantine_what_went_back(path)
        await world.start()
        await world.until(
            lambda: all(a.known_aimaster == world.master.job.incarnation for a in world.backend.agents.values())
        )
        status = await world.status()
        assert status.live and list(status.slot_map) == slots and world.master.job.cluster.generation == 1
        for agent in world.backend.everybody.values():
            agent.stop()
        await world.master.stop()

    asyncio.run(play())
