"""Records that were damaged and left out are done, and not trained; and what a dead worker may have trained has bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from deeprec_ext.aimaster.ledger import position as positions
from deeprec_ext.aimaster.ledger import report
from deeprec_ext.aimaster.ledger.leasing import LATE_SECONDS_MAX, MESSAGE_SECONDS, RATE_FACTOR, Holder
from deeprec_ext.aimaster.ledger.rebuild import DatasetSources, rebuild, replica_of
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.ledger.books import Book, index_range


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "aimaster.db"


def told(lease: pb.Lease, done: int, *skipped: int) -> dict[str, list[pb.LeaseProgress]]:
    return {"progress": [pb.LeaseProgress(lease=lease.id, done=done, skipped=skipped)]}


def sums(book: Book) -> tuple[int, int, int]:
    """(trained, skipped, the rest), of the records that there are."""
    values = report.numbers_of(book.dataset)
    rest = values["left"] + values["lost"] + values["set_aside"]
    assert values["trained"] + values["skipped"] + rest == values["records"]
    return values["trained"], values["skipped"], rest


def test_a_skipped_record_is_counted_once_however_often_it_is_told_and_by_whom(path: Path) -> None:
    book = Book(path, index_range(40))
    lease = book.ask("a", 1).leases[0]
    book.ask("a", **told(lease, 4, 0, 2))
    assert sums(book) == (2, 2, 36)
    book.ask("a", **told(lease, 4, 0, 2))
    book.restart()
    book.ask("a", **told(lease, 6, 0, 2, 5, 5, 9, -1, 400))
    assert sums(book) == (3, 3, 34), "what is not done is not skipped either"
    book.dataset.release("a", 1.0, clean=False)
    again = next(one for one in book.ask("b", 64).leases if one.shard == lease.shard)
    book.ask("b", **told(again, 10, 2, 9))
    assert sums(book) == (6, 4, 30)
    assert book.dataset.trained == 6 and report.status({"train": book.dataset})[0].skipped == 4


def test_to_the_end_it_all_adds_up_and_nothing_is_lost(path: Path) -> None:
    book = Book(path, index_range(40, epochs=2))
    while leases := book.ask("a", 4).leases:
        for lease in leases:
            book.ask("a", **told(lease, lease.records, *(range(10) if lease.shard == 1 else (3,))))
    assert book.ask("a", 1).state == pb.DataReply.END
    assert sums(book) == (2 * 27, 2 * 13, 0)


def test_it_goes_back_with_the_data_and_is_remembered_with_a_checkpoint(path: Path) -> None:
    book = Book(path, index_range(40))
    first, second = book.ask("a", 2).leases
    book.ask("a", **told(first, 10, 1))
    position = positions.unpack(positions.pack({"train": book.dataset.position()}))["train"]
    book.ask("a", **told(second, 10, *range(10)))
    assert sums(book) == (9, 11, 20) and position.skipped == 1
    assert book.dataset.rewind(position) == "" and sums(book) == (9, 1, 30)
    book.save()
    book.restart()
    assert sums(book) == (9, 1, 30)
    assert book.dataset.rewind(None) == "" and sums(book) == (0, 0, 40)


def test_an_aimaster_that_has_lost_its_store_hears_of_it_from_trainers_or_its_memo(path: Path, tmp_path: Path) -> None:
    book = Book(path, index_range(40))
    first, second = book.ask("a", 2).leases
    book.ask("a", **told(first, 10, 1, 2))
    replica = replica_of(book.dataset)
    trained = [pb.Trained(epoch=0, first_rank=0, count=2)]
    known = pb.DataKnown(
        dataset="train", trained=trained, trained_records=20, skipped_records=5, highest_lease=second.id
    )
    for told_, skipped in (({"a": known}, 5), ({}, 2)):
        other = Book(tmp_path / f"{skipped}.db", index_range(40))
        assert rebuild(other.dataset, DatasetSources(replica, b"", told_))
        assert sums(other)[1] == skipped


# ------------------------------------------------------------------------------------------------------------- bounds


def test_who_dies_has_trained_what_it_had_given_to_steps_and_what_it_could_do_since() -> None:
    worker = Holder("a", asked_at=10.0, rate_max=100.0, handed=300)
    assert worker.maybe_trained(100_000, now=10.0) == 300 + RATE_FACTOR * 100 * MESSAGE_SECONDS
    assert worker.maybe_trained(100_000, now=11.0) == 300 + RATE_FACTOR * 100 * (1 + MESSAGE_SECONDS)
    assert worker.maybe_trained(250, now=11.0) == 250, "never more than it held"
    first = Holder("b", asked_at=10.0, handed=128)
    assert first.maybe_trained(23_503, now=10.0, rate_of_others=400.0) == 128 + RATE_FACTOR * 400 * MESSAGE_SECONDS
    assert first.maybe_trained(23_503, now=10.0) == 23_503, "nobody's speed is known"
    beginning = worker.maybe_trained(100_000, now=10.0, rate_of_others=1600.0)
    assert beginning == 300 + RATE_FACTOR * 1600 * MESSAGE_SECONDS, (
        "its own speed is that of its first steps, which take long"
    )


def test_a_request_that_was_long_on_its_way_is_as_old_as_it_was_when_it_was_made() -> None:
    worker = Holder("a", rate_max=100.0, handed=0)
    worker.asked(now=1000.0, composed=50.0)  # the clocks have nothing to do with each other
    assert worker.asked_at == 1000.0
    worker.asked(now=1013.0, composed=60.0)
    assert worker.asked_at == 1010.0, "it came three seconds later after it was made than the one before"
    assert worker.maybe_trained(100_000, now=1013.0) == RATE_FACTOR * 100 * (3 + MESSAGE_SECONDS)
    worker.asked(now=1013.5, composed=63.4)
    assert worker.asked_at == pytest.approx(1013.4)
    worker.asked(now=1020.0, composed=1e-6)
    assert worker.asked_at == 1020.0 - LATE_SECONDS_MAX, "a clock that goes backwards is not believed for ever"
    worker.asked(now=1021.0)
    assert worker.asked_at == 1021.0


def test_repeated_has_a_lower_bound_of_what_was_surely_trained(path: Path) -> None:
    book = Book(path, index_range(10_000, 5000))
    lease = book.ask("a", 1).leases[0]
    book.ask(
        "a", **told(lease, 20), beyond_records=300, records_per_second=100.0, handed_records=400, replayed_records=9
    )
    book.dataset.release("a", 0.0, clean=False)
    values = report.numbers_of(book.dataset)
    assert (values["repeated_at_least"], values["repeated"]) == (300, 9 + 400 + 100)
    book.save()
    book.restart()
    assert report.numbers_of(book.dataset)["repeated_at_least"] == 300
    book.ask("b", 64)
    book.dataset.release("b", 0.0, clean=True)
    assert report.numbers_of(book.dataset)["repeated_at_least"] == 300
