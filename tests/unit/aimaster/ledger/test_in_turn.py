"""Datasets whose epochs are read in turn: none begins before the last one is trained, and all hear what each came to."""

from __future__ import annotations

from pathlib import Path

import pytest

from deeprec_ext.aimaster.ledger.dataset import Dataset
from deeprec_ext.aimaster.ledger.ends import LATE_SECONDS
from deeprec_ext.aimaster.ledger.rebuild import DatasetReplica, DatasetSources, rebuild, replica_of
from deeprec_ext.aimaster.ledger.visits import Numbers
from deeprec_ext.data.local import LocalLedger
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.ledger.books import Book, index_range

MORE, DRAINED, END = pb.DataReply.MORE, pb.DataReply.DRAINED, pb.DataReply.END


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "aimaster.db", index_range(20, epochs=2, in_turn=True))


def end(
    book: Book, who: str, epoch: int, seen: bytes | None = b"", chief: bool = False, **fields: object
) -> pb.EpochReply:
    request = pb.EpochRequest(dataset="train", epoch=epoch, **fields)  # type: ignore[arg-type]
    if seen is not None:
        request.seen = seen
    reply = book.dataset.end_of_epoch(who, request, chief, book.now)
    book.save()
    return reply


def train_epoch(book: Book) -> None:
    for who in ("a", "b"):
        [lease] = book.ask(who, 1).leases
        book.progress(who, lease)


def test_an_epoch_begins_when_all_have_trained_the_one_before(book: Book) -> None:
    [first] = book.ask("a", 1).leases
    [second] = book.ask("b", 1).leases
    waiting = book.progress("a", first, want=1)
    assert waiting.state == DRAINED and not waiting.leases and waiting.complete == 0
    book.progress("b", second)
    assert book.dataset.waiting() == ["a"] and book.dataset.hint().complete == 1
    reply = book.ask("a", 5)
    assert [lease.epoch for lease in reply.leases] == [1] and reply.complete == 1, "half of what is left at the most"
    assert book.ask("b", 5).leases[0].epoch == 1
    assert book.dataset.visits.todo() == 0


def test_a_model_that_goes_back_trains_the_end_of_the_epoch_before_again(book: Book) -> None:
    [first] = book.ask("a", 1).leases
    book.progress("a", first)
    position = book.dataset.position()
    [second] = book.ask("b", 1).leases
    book.progress("b", second)
    assert book.ask("a", 1).leases[0].epoch == 1
    book.dataset.rewind(position)
    again = book.ask("a", 1)
    assert [lease.epoch for lease in again.leases] == [0] and again.complete == 0
    assert book.progress("a", again.leases[0]).complete == 1


def test_the_chief_gets_what_all_have_seen_when_the_epoch_is_trained(book: Book) -> None:
    [first] = book.ask("a", 1).leases
    [second] = book.ask("b", 1).leases
    book.progress("a", first)
    assert not end(book, "a", 0, b"1", chief=True).whole, "the epoch is not trained"
    book.progress("b", second)
    assert not end(book, "a", 0, b"1", chief=True).whole, "b has not said what it has seen"
    assert not end(book, "b", 0, b"2").whole, "it is for the chief"
    reply = end(book, "a", 0, b"1", chief=True)
    assert reply.whole and sorted(reply.seen) == [b"1", b"2"]
    assert not end(book, "b", 0, b"2").came_to
    assert end(book, "a", 0, None, chief=True, came_to=["loss 3"]).known == 1
    assert list(end(book, "b", 0, b"2").came_to) == ["loss 3"]
    assert not end(book, "b", 0, b"2", known=1).came_to, "it knows"
    assert list(end(book, "late", 0, None).came_to) == ["loss 3"]


def test_an_epoch_that_all_have_left_stays_trained_though_the_model_goes_back(book: Book) -> None:
    """Nobody leases any more, since all wait for what it came to: the rest is trained again in the next one."""
    [first] = book.ask("a", 1).leases
    book.progress("a", first)
    position = book.dataset.position()
    [second] = book.ask("b", 1).leases
    book.progress("b", second)
    book.dataset.rewind(position)
    book.save()
    book.restart()
    assert book.dataset.visits.complete == 0
    book.ask("a")
    book.ask("b")
    end(book, "b", 0, b"2")
    reply = end(book, "a", 0, b"1", chief=True)
    assert reply.whole and sorted(reply.seen) == [b"1", b"2"]
    assert not end(book, "a", 1, b"1", chief=True, came_to=["first"]).whole, "of the next nothing is trained"


@pytest.mark.parametrize("where", ["the beginning", "within the second epoch"])
def test_of_a_resumed_run_those_epochs_are_over_that_its_model_has_trained(book: Book, where: str) -> None:
    train_epoch(book)
    for who in ("a", "b"):
        end(book, who, 0, chief=who == "a")
    end(book, "a", 0, None, chief=True, came_to=["one"], begins=True)
    [lease] = book.ask("a", 1).leases
    book.progress("a", lease)
    position = book.dataset.position()
    book.ask("b", 1)
    book.dataset.rewind(None if where == "the beginning" else position)
    assert book.dataset.ends.came_to == ["one"] and book.dataset.ends.begun
    book.dataset.resume()
    book.save()
    book.restart()
    again = book.dataset
    over = ["one"] if where != "the beginning" else []
    assert (again.ends.came_to, again.ends.reached, again.ends.begun) == (over, len(over), bool(over))


def test_an_epoch_of_several_passes_is_over_when_all_of_them_are_trained(tmp_path: Path) -> None:
    """Also of a run that is resumed: two passes are one epoch, and three no more."""
    book = Book(tmp_path / "aimaster.db", index_range(20, epochs=6, in_turn=True))
    train_epoch(book)
    for who in ("a", "b"):
        assert not end(book, who, 0, chief=who == "a", passes=2).whole, "one of two"
    train_epoch(book)
    end(book, "b", 0, passes=2)
    assert end(book, "a", 0, chief=True, passes=2).whole
    end(book, "a", 0, None, chief=True, came_to=["one"], begins=True, passes=2)
    train_epoch(book)
    position = book.dataset.position()
    train_epoch(book)
    end(book, "a", 1, None, chief=True, first=1, came_to=["two"], begins=True, passes=2)
    book.restart()
    book.dataset.rewind(position)
    book.dataset.resume()
    assert book.dataset.ends.came_to == ["one"] and book.dataset.ends.reached == 3


def test_nobody_waits_for_who_died_or_left_but_what_it_saw_counts(book: Book) -> None:
    train_epoch(book)
    book.ask("c")
    end(book, "b", 0, b"2")
    book.dataset.release("b", 1.0, clean=False)
    assert not end(book, "a", 0, b"1", chief=True).whole
    end(book, "c", 0, None, leaves=True)
    assert sorted(end(book, "a", 0, b"1", chief=True).seen) == [b"1", b"2"]


def test_the_chief_waits_not_for_ever(book: Book) -> None:
    train_epoch(book)
    assert not end(book, "a", 0, b"1", chief=True).whole and not book.dataset.ends.late
    book.now += LATE_SECONDS + 1
    assert list(end(book, "a", 0, b"1", chief=True).seen) == [b"1"] and book.dataset.ends.late == {"b"}


def test_only_the_chief_says_what_an_epoch_came_to(book: Book) -> None:
    train_epoch(book)
    assert end(book, "b", 0, b"2", came_to=["mine"]).known == 0
    assert end(book, "a", 0, None, chief=True, came_to=["first", "second"]).known == 2
    assert end(book, "a", 0, None, chief=True, came_to=["other"]).known == 2
    assert list(end(book, "b", 0, None).came_to) == ["first", "second"], "it is never changed"


def test_what_epochs_came_to_outlives_the_aimaster_and_its_store(book: Book) -> None:
    train_epoch(book)
    end(book, "a", 0, b"1", chief=True, came_to=["first"])
    book.restart()
    assert book.dataset.ends.came_to == ["first"]
    replica = DatasetReplica.from_plain(replica_of(book.dataset).plain())
    rebuilt = Dataset(book.dataset.declaration, Numbers())
    assert rebuild(rebuilt, DatasetSources(replica)) and rebuilt.ends.came_to == ["first"]
    assert end(book, "a", 1, None, chief=True, came_to=["first", "second"], first=0).known == 2


def test_that_the_chief_has_begun_is_the_chiefs_to_say_and_outlives_the_aimaster_and_its_store(book: Book) -> None:
    assert not end(book, "b", 0, None).begun and not end(book, "a", 0, None, chief=True).begun, "it asks first"
    assert not end(book, "b", 0, None, begins=True).begun
    assert end(book, "a", 0, None, chief=True, begins=True).begun and end(book, "b", 0, None).begun
    book.restart()
    assert end(book, "a", 0, None, chief=True).begun, "a chief that was started again learns that it is under way"
    rebuilt = Dataset(book.dataset.declaration, Numbers())
    assert rebuild(rebuilt, DatasetSources(replica_of(book.dataset))) and rebuilt.ends.begun


def test_outside_of_a_job_epochs_are_read_in_turn_too() -> None:
    ledger = LocalLedger(index_range(20, epochs=2, in_turn=True))
    first = ledger.answer(pb.DataRequest(want=9))
    assert [lease.epoch for lease in first.leases] == [0, 0] and first.complete == 0
    assert ledger.answer(pb.DataRequest(want=9)).state == DRAINED
    progress = [pb.LeaseProgress(lease=lease.id, done=10) for lease in first.leases]
    second = ledger.answer(pb.DataRequest(want=9, progress=progress))
    assert [lease.epoch for lease in second.leases] == [1, 1] and second.complete == 1
    progress = [pb.LeaseProgress(lease=lease.id, done=10) for lease in second.leases]
    last = ledger.answer(pb.DataRequest(want=9, progress=progress))
    assert last.state == END and last.complete == 2
