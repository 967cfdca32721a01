"""What a worker is answered, and how the numbers of a report come about."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from deeprec_ext.aimaster.ledger import position as positions
from deeprec_ext.aimaster.ledger import report
from deeprec_ext.aimaster.ledger.dataset import Dataset
from deeprec_ext.aimaster.ledger.declaration import check, differences
from deeprec_ext.aimaster.ledger.files import ShardTable
from deeprec_ext.aimaster.ledger.leasing import Holder, share
from deeprec_ext.aimaster.ledger.position import PositionError
from deeprec_ext.aimaster.ledger.visits import Numbers, Visits
from deeprec_ext.aimaster.reporting.summary import summarize
from deeprec_ext.aimaster.store.store import MIGRATIONS, SCHEMA_VERSION, Store
from deeprec_ext.order import ShardOrder, shard_order
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.ledger.books import Book, index_range, text_files

MORE, DRAINED, END = pb.DataReply.MORE, pb.DataReply.DRAINED, pb.DataReply.END


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "aimaster.db"


def test_the_order_is_a_permutation_and_another_one_in_each_epoch() -> None:
    for count in (1, 2, 3, 7, 64, 65, 1000):
        assert sorted(shard_order(1, 0, count)) == list(range(count))
    assert shard_order(1, 0, 100) == shard_order(1, 0, 100) != shard_order(1, 1, 100) != shard_order(2, 1, 100)
    order = ShardOrder(7, 3, 10**6)
    assert len({order.shard(rank) for rank in range(1000)}) == 1000


def test_a_worker_waits_while_others_hold_the_last_shards_and_the_end_comes_when_all_are_trained(path: Path) -> None:
    book = Book(path, index_range(20))
    [first] = book.ask("a", 1).leases
    [second] = book.ask("b", 1).leases
    assert book.progress("a", first).state == DRAINED
    waiting = book.ask("a", 1)
    assert waiting.state == DRAINED and waiting.retry_seconds > 0 and not waiting.leases
    assert not book.dataset.waiting(), "nothing has changed for it"
    assert book.progress("b", second).state == END
    assert book.dataset.waiting() == ["a"] and book.dataset.hint().state == END
    assert not book.dataset.waiting(), "told once"


def test_shards_of_a_dead_worker_go_on_from_its_last_progress(path: Path) -> None:
    book = Book(path, index_range(10))
    [lease] = book.ask("a", 1).leases
    book.progress("a", lease, 4)
    book.ask("b", 1)
    book.dataset.release("a", 1.0, clean=False)
    assert book.dataset.waiting() == ["b"]
    [again] = book.ask("b", 1).leases
    assert again.done == 4 and again.id > lease.id and again.seed == lease.seed
    late = book.progress("a", lease)
    assert list(late.fenced) == [lease.id] and book.dataset.visits.trained == 4


def test_leases_of_who_says_that_it_holds_none_return(path: Path) -> None:
    """Their progress was told to nobody, or the answer that brought them was lost: others would wait for them for ever."""
    book = Book(path, index_range(30))
    [first] = book.ask("a", 1).leases
    lost = book.ask("a", 1).leases
    book.progress("a", first, 4)
    same = book.ask("a", 1, sequence=2, holds_none=True)
    assert [one.id for one in same.leases] == [one.id for one in lost], "a request that is late takes nothing back"
    assert book.dataset.visits.leased == 16 and not book.dataset.lost_leases
    again = book.ask("a", 1, holds_none=True)
    assert book.dataset.lost_leases == 2 and book.dataset.counters.unsure == 6 + 10
    given = []
    while again.state != END:
        given += [(one.rank, one.done) for one in again.leases]
        book.ask("a", progress=[pb.LeaseProgress(lease=one.id, done=10) for one in again.leases])
        again = book.ask("a", 1, holds_none=True)
    assert given == [(0, 4), (1, 0), (2, 0)] and book.dataset.lost_leases == 2


def test_an_answer_that_is_sent_again_takes_nothing_back(path: Path) -> None:
    book = Book(path, index_range(30))
    given = book.ask("a", 2, holds_none=True).leases
    for _ in range(2):
        again = book.ask("a", 2, sequence=1, holds_none=True)
        assert [one.id for one in again.leases] == [one.id for one in given]
        book.restart()
    assert book.dataset.visits.leased == 10 and not book.dataset.lost_leases


def test_the_tail_is_shared_among_the_workers() -> None:
    assert share(100, 1000, 4) == 100
    assert share(100, 80, 4) == 10
    assert share(100, 3, 4) == 1
    assert share(5, None, 4) == 5 and share(0, 3, 4) == 0


def test_who_asks_again_and_again_leaves_its_share_to_others(path: Path) -> None:
    """As a process does that wants a minute's work of an epoch of half a minute."""
    book = Book(path, index_range(80))
    mine: list[pb.Lease] = []
    for _ in range(5):
        mine += book.ask("a", 8, need=max(0, 2 - len(mine))).leases
    assert len(mine) == 4 and not book.dataset.waiting(), "half of all: it is alone"
    assert book.ask("a", 8, need=0).state == MORE
    other = book.ask("b", 8, need=2).leases
    assert len(other) == 2
    for one in mine:
        book.progress("a", one)
    assert len(book.ask("a", 8, need=2).leases) == 1, "two are left for two"
    assert len(book.ask("a", 8, need=1).leases) == 1 and book.ask("a", 8, need=0).state == DRAINED


def test_who_has_nothing_to_train_is_given_what_a_batch_takes(path: Path) -> None:
    book = Book(path, index_range(80))
    assert len(book.ask("a", 8, need=6).leases) == 6
    assert share(8, 3, 4, held=2, need=2) == 1 and share(8, 3, 4, held=2, need=0) == 0
    assert share(8, 400, 400, need=2) == 1, "where there are few nobody has two and another none"
    assert share(8, 100, 4, held=2, need=0) == 8 and share(8, None, 4, held=50, need=0) == 8


def test_files_are_counted_by_all_workers_before_a_shuffled_epoch_begins(path: Path) -> None:
    book = Book(path, text_files(2, shuffle=True))
    scans = {who: book.ask(who, 1).leases[0] for who in ("a", "b")}
    assert [lease.kind for lease in scans.values()] == [pb.Lease.SCAN] * 2
    assert {lease.file for lease in scans.values()} == {0, 1}
    nothing = book.ask("c", 5)
    assert nothing.state == MORE and not nothing.leases and nothing.retry_seconds > 0
    for who, lease in scans.items():
        assert not book.dataset.waiting()
        book.ask(who, scanned=[pb.Scanned(lease=lease.id, begins=[0, 60], records=[10, 3], end_byte=100)])
    assert book.dataset.waiting() == ["c"]
    [lease] = book.ask("c", 1).leases
    assert lease.seed and (lease.begin_byte, lease.end_byte, lease.records) in [(0, 60, 10), (60, 100, 3)]


def test_without_shuffle_shards_are_leased_as_soon_as_the_next_file_is_counted(path: Path) -> None:
    book = Book(path, text_files(2))
    [scan] = book.ask("a", 1).leases
    book.ask("a", scanned=[pb.Scanned(lease=scan.id, begins=[0, 60], records=[10, 3], end_byte=100)])
    first, second = [book.ask("a", 1).leases[0] for _ in range(2)]
    assert [first.kind, second.kind] == [pb.Lease.DATA] * 2
    assert (second.file, second.shard, second.first_record, second.records, second.begin_byte, second.end_byte) == (
        0, 1, 10, 3, 60, 100)  # fmt: skip
    assert first.seed == 0


def test_a_shard_that_keeps_failing_ends_the_job_with_its_name(path: Path) -> None:
    book = Book(path, index_range(100, seed=1))
    bad = book.ask("a", 1).leases[0]
    for who in "abc":
        book.dataset.visits.release(who)
        held = list(book.ask(who, 64).leases)
        while bad.shard not in [lease.shard for lease in held]:
            held += book.ask(who, 64).leases
        lease = next(lease for lease in held if lease.shard == bad.shard)
        reply = book.ask(who, failed=[pb.LeaseFailure(lease=lease.id, error="torn record")])
    assert "shard 0 (records 0 to 9 of the index range) failed 3 times: torn record" in reply.error
    [trouble] = book.dataset.troubles
    assert trouble.fatal and trouble.error == reply.error
    book.restart()
    assert book.ask("a", 1).error == reply.error, "also after a restart of the AIMaster"


def test_deaths_are_no_failures_of_the_shard(path: Path) -> None:
    book = Book(path, index_range(10))
    for number in range(10):
        assert book.ask(f"w{number}", 1).leases
        book.dataset.release(f"w{number}", 1.0, clean=False)
    assert not book.dataset.failures and not book.dataset.error


def test_a_shard_that_is_set_aside_is_told_and_left_out_of_later_epochs(path: Path) -> None:
    book = Book(path, index_range(30, epochs=2, set_aside=True))
    seen = []
    for _ in range(100):
        reply = book.ask("a", 1)
        if reply.state == END:
            break
        [lease] = reply.leases
        seen.append((lease.epoch, lease.shard))
        if lease.shard == 1:
            book.ask("a", failed=[pb.LeaseFailure(lease=lease.id, error="torn")])
        else:
            book.progress("a", lease)
    assert seen.count((0, 1)) == 3 and (1, 1) not in seen
    values = report.summarize(book.store)
    assert values is not None
    assert (values["records"], values["trained"], values["set_aside"], values["lost"]) == (60, 40, 20, 0)
    assert [trouble.fatal for trouble in book.dataset.troubles] == [False]


def test_without_end_there_is_always_another_epoch(path: Path) -> None:
    book = Book(path, index_range(20, epochs=0))
    for _ in range(50):
        [lease] = book.ask("a", 1).leases
        book.progress("a", lease)
    values = report.numbers_of(book.dataset)
    assert lease.epoch == 24 and values["trained"] == 500 and values["lost"] == 0


def test_what_max_steps_leaves_is_not_lost(path: Path) -> None:
    book = Book(path, index_range(100))
    book.progress("a", book.ask("a", 1).leases[0])
    values = summarize(book.store, status="succeeded", seconds=1.0, roles={})["data"]
    assert (values["trained"], values["left"], values["lost"]) == (10, 90, 0)


def test_an_end_that_was_told_too_early_shows_as_lost(path: Path) -> None:
    book = Book(path, index_range(20))
    for lease in book.ask("a", 1).leases:
        book.progress("a", lease)
    book.dataset.told_end = book.dataset.changed = True  # a fault
    book.save()
    values = report.summarize(book.store)
    assert values is not None and values["lost"] == 10


def test_repeated_is_bounded_by_what_a_dead_worker_can_have_trained_and_by_what_it_held(path: Path) -> None:
    fast = Holder("a", asked_at=10.0, rate_max=100.0)
    assert fast.maybe_trained(100_000, now=11.0) == 800  # four times its rate, since its last word and a second before
    assert fast.maybe_trained(50, now=11.0) == 50
    assert Holder("b").maybe_trained(70, now=1.0) == 70, "nothing is known about its speed"
    book = Book(path, index_range(100, 50))
    [lease] = book.ask("a", 1).leases
    book.progress("a", lease, 20, replayed_records=7)
    book.dataset.release("a", 1.0, clean=False)
    assert report.numbers_of(book.dataset)["repeated"] == 7 + 30


def test_what_was_trained_behind_a_gap_is_repeated_when_the_worker_dies(path: Path) -> None:
    book = Book(path, index_range(10_000, 5000))
    [lease] = book.ask("a", 1).leases
    book.progress("a", lease, 20, beyond_records=3000, records_per_second=10.0)
    book.dataset.release("a", 0.0, clean=False)
    assert report.numbers_of(book.dataset)["repeated"] == 3000 + 40


def test_a_script_that_ends_repeats_nothing(path: Path) -> None:
    book = Book(path, index_range(100, 50))
    book.ask("a", 1)
    book.dataset.release("a", 1.0, clean=True)
    assert book.dataset.repeated == 0 and not book.dataset.visits.holders()


def test_rewound_records_count_as_repeated_when_they_are_trained_again(path: Path) -> None:
    book = Book(path, index_range(40))
    book.progress("a", book.ask("a", 1).leases[0])
    position = positions.unpack(positions.pack({"train": book.dataset.position()}))["train"]
    book.progress("a", book.ask("a", 1).leases[0])
    [held] = book.ask("a", 1).leases
    unsure = book.dataset.counters.unsure
    assert book.dataset.rewind(position) == "" and book.dataset.visits.trained == 10
    assert book.dataset.counters.unsure == unsure + 10, "what was in hand may have been trained"
    late = book.ask("a", 5, rewinds=0, progress=[pb.LeaseProgress(lease=held.id, done=10)])
    assert late.rewinds == 1 and not late.leases and book.dataset.visits.trained == 10, "its leases are void"
    assert book.dataset.counters.rewound == 0
    book.progress("a", book.ask("a", 1).leases[0])
    assert (book.dataset.counters.rewound, book.dataset.counters.to_repeat) == (10, 0)


def test_the_position_of_another_order_is_not_used() -> None:
    dataset, other = Dataset(index_range(40, seed=1), Numbers()), Dataset(index_range(40, seed=2), Numbers())
    assert "seed" in dataset.rewind(other.position())
    assert Dataset(index_range(40, epochs=9), Numbers()).rewind(Dataset(index_range(40), Numbers()).position()) == ""


@pytest.mark.parametrize("damage", [b"XXXX1", b"DRL1", b"DRL1\x78\x9c\x00", positions.MAGIC + b"\x00" * 40])
def test_bytes_that_are_no_position_are_refused(damage: bytes) -> None:
    with pytest.raises(PositionError):
        positions.unpack(damage)


def test_a_position_with_impossible_visits_is_refused() -> None:
    import zlib

    for runs in ([[0, 5, 10, 0]], [[-1, 1, 10, 0]], [[0, 1, 10, 10]], [[0, 1]], [["x", 1, 1, 1]]):
        values = {"train": {"of": "f", "complete": 0, "aside": 0, "epochs": [[0, 2, 20, 0, runs]]}}
        with pytest.raises(PositionError):
            positions.unpack(positions.MAGIC + zlib.compress(json.dumps(values).encode()))


def test_a_million_shards_cost_nothing_until_they_are_leased() -> None:
    declaration = index_range(10**8, 100, shuffle=True, epochs=3)
    dataset = Dataset(declaration, Numbers())
    held = [visit for who in range(200) for visit in dataset.visits.lease(f"w{who}", 1, 50)]
    for visit in held[::2]:
        dataset.visits.acknowledge(visit, 100)
    for visit in held[1::20]:
        dataset.visits.acknowledge(visit, 33)
    packed = positions.pack({"train": dataset.position()})
    assert len(packed) < 20_000
    assert positions.unpack(packed)["train"] == dataset.position()
    assert sum(len(epoch.open) for epoch in dataset.visits.epochs.values()) == 5000


def test_two_declarations_of_one_name_must_be_the_same() -> None:
    one, two = text_files(3), text_files(3)
    assert differences(one, two) == ""
    two.files[1].bytes = 50
    assert "f1 (100 bytes" in differences(one, two) and "(50 bytes" in differences(one, two)
    assert "epochs=1 and now with 2" in differences(one, text_files(3, epochs=2))
    rows, fewer = index_range(40, shard_records=10), index_range(30, shard_records=8)
    assert "was declared with 40 records and now with 30" in differences(rows, fewer), "whatever else follows from that"
    assert "3 files and now with 4" in differences(one, text_files(4))
    assert "shard_records" in check(text_files(1, shard_records=0))
    assert "no files" in check(text_files(0)) and "negative" in check(text_files(1, epochs=-1))
    assert check(one) == ""


@pytest.mark.parametrize(
    "scanned",
    [{"begins": [0], "records": [1, 2]}, {"begins": [5, 0], "records": [1, 2]}, {"begins": [0], "records": [0]}],
)
def test_a_count_that_cannot_be_true_is_a_failure_of_the_file(path: Path, scanned: dict[str, list[int]]) -> None:
    book = Book(path, text_files(1))
    for _ in range(3):
        [lease] = book.ask("a", 1).leases
        reply = book.ask("a", scanned=[pb.Scanned(lease=lease.id, end_byte=100, **scanned)])
    assert "file f0 failed 3 times: the file was counted wrongly" in reply.error


def test_a_dataset_without_records_ends_at_once(path: Path) -> None:
    book = Book(path, text_files(1, epochs=0))
    [lease] = book.ask("a", 1).leases
    assert book.ask("a", 1, scanned=[pb.Scanned(lease=lease.id)]).state == END


def test_a_store_that_is_older_than_the_ledger_still_opens(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.executescript(f"{MIGRATIONS[0]} PRAGMA user_version=1;")
        db.execute("INSERT INTO meta VALUES ('step', '7')")
    assert summarize(Store(path, read_only=True), status="", seconds=0.0, roles={})["data"] is None
    store = Store(path)
    assert store.get("step") == 7 and store.rows("PRAGMA user_version") == [(SCHEMA_VERSION,)]
    assert report.summarize(store) is None
    store.close()


def test_a_resumed_run_may_have_more_epochs_and_nothing_else(path: Path) -> None:
    book = Book(path, index_range(10))
    book.progress("a", book.ask("a", 1).leases[0])
    assert book.dataset.ended
    assert not book.dataset.lengthen(index_range(20, epochs=3)) and not book.dataset.lengthen(index_range(10))
    assert book.dataset.lengthen(index_range(10, epochs=2)) and not book.dataset.lengthen(index_range(10, epochs=1))
    book.tables.redeclare(book.dataset)
    book.save()
    book.restart()
    [lease] = book.ask("a", 1).leases
    assert lease.epoch == 1 and book.progress("a", lease).state == END


def test_passes_of_an_evaluation_are_shown_together() -> None:
    totals: dict[str, dict[str, int]] = {}
    passes = [Dataset(index_range(20, name=f"evaluate@chief-0-1-{i}", purpose="evaluate"), Numbers()) for i in range(3)]
    for one in passes:
        report.fold(totals, one)
    assert list(totals) == ["evaluate"] and totals["evaluate"]["passes"] == 3 and totals["evaluate"]["records"] == 60
    [status] = report.status({one.name: one for one in passes})
    assert status.name == "evaluate" and status.records == 20


def test_visits_of_a_file_are_found_by_number() -> None:
    declaration = pb.Dataset(
        files=[pb.DataFile(records=25), pb.DataFile(records=7), pb.DataFile(records=10)], shard_records=10
    )
    table = ShardTable(declaration)
    extents = [table.extent(shard) for shard in range(table.count)]
    assert [(e.file, e.first_record, e.records) for e in extents] == [
        (0, 0, 10), (0, 10, 10), (0, 20, 5), (1, 0, 7), (2, 0, 10)]  # fmt: skip
    assert Visits(declaration, table, Numbers()).todo() is None  # epochs 0: without end


def test_epochs_that_are_datasets_and_over_are_shown_as_one(tmp_path: Path) -> None:
    books = {}
    for number, name in enumerate(
        (
            "sampler 0, epoch 0",
            "sampler 0, epoch 1",
            "sampler 1, epoch 0",
            "sampler 0, epoch 2",
            "train",
            "sampler 0, epoch 3",
        )
    ):
        book = Book(tmp_path / f"{number}.db", index_range(40, name=name))
        while book.dataset.trained < (40 if number < 5 else 10):
            book.progress("a", book.ask("a", 1).leases[0])
        books[name] = book.dataset
    told = [(one.name, one.records, one.trained, one.epoch, one.epochs) for one in report.status(books)]
    assert told == [
        ("sampler 0, epochs 0 to 2", 120, 120, 2, 3),
        ("sampler 1, epoch 0", 40, 40, 0, 1),
        ("train", 40, 40, 0, 1),
        ("sampler 0, epoch 3", 40, 10, 0, 1),
    ]
