"""The feeder against a ledger in the process: what is given, what counts as trained, what is given again."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from deeprec_ext.data.errors import DataError
from deeprec_ext.data.feeder import Feeder
from deeprec_ext.data.local import LocalLedger
from deeprec_ext.data.plan import plan
from deeprec_ext.data.records import elastic_records
from deeprec_ext.errors import UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

LIMIT = 10.0


class FakeLedger:
    """A local ledger that can be out of reach, or say other things."""

    def __init__(self, feeder: Feeder) -> None:
        self.feeder, self.ledger = feeder, LocalLedger(feeder.declaration)
        self.requests: list[pb.DataRequest] = []
        self.reachable, self.rewinds = True, 0
        self.asked = threading.Condition()

    def send(self, request: pb.DataRequest) -> None:
        with self.asked:
            self.requests.append(request)
            self.asked.notify_all()
        if self.reachable:
            self.feeder.receive(self._answer(request))

    def _answer(self, request: pb.DataRequest) -> pb.DataReply:
        with self.asked:
            if request.rewinds < self.rewinds:  # it speaks of leases that are void: no others for it
                state = pb.DataReply.MORE
                return pb.DataReply(
                    sequence=request.sequence, dataset=request.dataset, rewinds=self.rewinds, state=state,
                    retry_seconds=0.01,
                )  # fmt: skip
            return self.ledger.answer(request)

    def rewind(self) -> None:
        """To the beginning."""
        with self.asked:
            self.ledger, self.rewinds = LocalLedger(self.feeder.declaration), self.rewinds + 1
            self.ledger._next_lease = 1000 * self.rewinds
        self.feeder.receive(pb.DataReply(dataset="train", rewinds=self.rewinds, state=pb.DataReply.MORE))

    def until(self, condition) -> None:
        """Some request so far, or to come, has it."""
        with self.asked:
            assert self.asked.wait_for(lambda: any(condition(one) for one in self.requests), LIMIT)


def ask(files, batch_size=10, **options):
    given = {
        "epochs": 1, "shuffle": True, "seed": 1, "reader": "lines", "shard_records": 30, "name": None, "purpose": "train",
        "set_aside": False, "reader_options": {}, **options,
    }  # fmt: skip
    return plan(files, batch_size, **given)


@pytest.fixture
def feed() -> Iterator:
    """`feeder, ledger = feed(100)`"""
    made: list[Feeder] = []

    def make(files, batch_size=10, *, claimed=True, connected=True, drop=False, **options):
        asked = ask(files, batch_size, **options)
        feeder = Feeder(asked.declaration, asked.reader, batch_size, 2.0, drop_remainder=drop)
        made.append(feeder)
        ledger = FakeLedger(feeder)
        feeder.connect(ledger)
        if connected:
            feeder.registered(1)
        if claimed:
            feeder.claim()
        return feeder, ledger

    yield make
    for feeder in made:
        feeder.close()


def step(feeder: Feeder, batches: Iterator) -> list[int]:
    """One training step: wait, read, trained."""
    ticket = feeder.begin(1, LIMIT)
    assert ticket is not None
    found = next(batches).tolist()
    feeder.trained(ticket)
    return found


def finish(feeder: Feeder, batches: Iterator) -> list[int]:
    """Steps to the end of the data."""
    found: list[int] = []
    while True:
        ticket = feeder.begin(1, LIMIT)
        assert ticket is not None
        batch = next(batches, None)
        if batch is None:
            feeder.unused(ticket)
            return found
        found += batch.tolist()
        feeder.trained(ticket)


def test_every_record_comes_once_an_epoch_and_then_the_data_ends(feed):
    feeder, ledger = feed(101, epochs=3)
    found = finish(feeder, feeder.batches())
    assert np.bincount(found).tolist() == [3] * 101
    ledger.until(lambda request: sum(progress.done for progress in request.progress) > 0)


def test_the_order_depends_on_seed_and_epoch_alone():
    def order(seed):
        return np.concatenate(list(elastic_records(200, 16, epochs=2, seed=seed, shard_records=40))).tolist()

    assert order(1) == order(1) != order(2)
    assert order(1)[:200] != order(1)[200:] and sorted(order(1)[:200]) == list(range(200))


def test_without_shuffle_records_come_as_they_stand():
    assert np.concatenate(list(elastic_records(100, 16, shuffle=False))).tolist() == list(range(100))


def test_a_failed_step_gets_its_batch_once_more(feed):
    feeder, ledger = feed(100)
    batches = feeder.batches()
    first = step(feeder, batches)
    ticket = feeder.begin(1, LIMIT)
    failed = next(batches).tolist()
    feeder.failed(ticket)
    assert feeder.restart_needed
    feeder.restarted()
    assert next(batches, None) is None, "the old iterator has ended"
    again = feeder.batches()
    assert step(feeder, again) == failed
    assert sorted([*first, *failed, *finish(feeder, again)]) == list(range(100))
    ledger.until(lambda request: request.replayed_records == 10)


def test_an_iterator_that_is_made_anew_goes_on_with_what_is_not_trained(feed):
    feeder, _ = feed(100)
    batches = feeder.batches()
    first = step(feeder, batches)
    ahead = [next(batches).tolist() for _ in range(3)]  # a prefetch that nobody used
    feeder.renew()
    again = feeder.batches()
    assert [step(feeder, again) for _ in range(3)] == ahead
    assert len(set(first) & {record for batch in ahead for record in batch}) == 0


def test_what_is_trained_does_not_come_again_with_what_was_withdrawn_behind_it(feed):
    """A sum says of the step before that it is in the model, and of its own that it is not: that alone comes again."""
    feeder, ledger = feed(100)
    batches = feeder.batches()
    before = feeder.begin(1, LIMIT)
    first = next(batches).tolist()
    now = feeder.begin(1, LIMIT)
    second = next(batches).tolist()
    feeder.trained(before)
    feeder.withdraw(now)
    feeder.renew()
    again = feeder.batches()
    assert step(feeder, again) == second
    assert sorted([*first, *second, *finish(feeder, again)]) == list(range(100))
    ledger.until(lambda request: request.replayed_records == 0 and sum(one.done for one in request.progress) > 0)


@pytest.mark.parametrize("damaged", [(), (0, 1, 29, 30, 47, 95, 99)])
def test_batches_of_another_size_are_cut_of_what_is_read_and_not_given(feed, damaged):
    """Whatever sizes follow each other, each record once; those that were given ahead of their runs with the next iterator."""
    feeder, _ = feed(100)
    read = feeder._files.read
    feeder._files.read = lambda lease: (
        read(lease)[0],
        [one - lease.first_record for one in damaged if one in span(lease)],
    )
    feeder._leases._least, batches, found, dice = 100, feeder.batches(), [], random.Random(1)
    found.append(step(feeder, batches))
    for records in (3, 10, 1, 7, 11, 2):
        ahead = dice.randrange(2)
        for _ in range(ahead):
            next(batches)
        assert feeder.cut_to(records) == (not ahead)
        if ahead:
            feeder.renew()
            batches = feeder.batches()
            assert feeder.cut_to(records)
        for _ in range(2):
            found.append(step(feeder, batches))
        assert [len(one) for one in found[-2:]] == [records] * 2
    rest = finish(feeder, batches)
    assert sorted([number for one in found for number in one] + rest) == [n for n in range(100) if n not in damaged]
    assert feeder._leases.total_trained == 100


def span(lease):
    return range(lease.first_record, lease.first_record + lease.records)


def test_runs_in_several_threads_count_when_nobody_can_still_read_their_batches(feed):
    feeder, _ = feed(100)
    batches = feeder.batches()
    slow, quick = feeder.begin(1, LIMIT), feeder.begin(1, LIMIT)
    for _ in range(2):
        next(batches)
    feeder.trained(quick)
    assert len(feeder._outstanding) >= 2, "the slow run may have read the first or the second batch"
    before = feeder._popped
    feeder.trained(slow)
    assert feeder._popped == before + 2


def test_what_nobody_claims_is_trained_when_the_next_batch_is_asked_for(feed):
    feeder, _ = feed(50, claimed=False)
    assert sorted(np.concatenate(list(feeder.batches())).tolist()) == list(range(50))


def test_leases_in_hand_are_used_while_nobody_answers(feed):
    feeder, ledger = feed(1000, 10, shard_records=10)
    batches = feeder.batches()
    step(feeder, batches)
    ledger.reachable = False
    for _ in range(3):
        step(feeder, batches)
    feeder.registered(2)  # another AIMaster
    ledger.until(lambda request: request.sequence > 1 and request.HasField("declare"))
    ledger.reachable = True
    feeder.registered(2)
    assert len(finish(feeder, batches)) == 1000 - 40


def test_a_request_that_was_lost_is_sent_again_as_it_was(feed):
    feeder, ledger = feed(100, connected=False)
    ledger.reachable = False
    feeder.registered(1)
    ledger.until(lambda request: request.want > 0)
    first = ledger.requests[-1]
    ledger.requests.clear()
    feeder.registered(1)
    ledger.until(lambda request: request.sequence == first.sequence and request.want == first.want)


def test_after_a_rewind_the_records_come_from_new_leases(feed):
    feeder, ledger = feed(100)
    batches = feeder.batches()
    for _ in range(3):
        step(feeder, batches)
    ledger.rewind()
    assert feeder.restart_needed
    feeder.restarted()
    assert next(batches, None) is None
    assert sorted(finish(feeder, feeder.batches())) == list(range(100))


def test_a_step_that_began_before_a_rewind_does_not_count(feed):
    feeder, ledger = feed(100)
    batches = feeder.batches()
    ticket = feeder.begin(1, LIMIT)
    next(batches)
    ledger.rewind()
    assert not feeder.valid(ticket)
    feeder.trained(ticket)
    assert sorted(finish(feeder, feeder.batches())) == list(range(100))


def test_a_run_that_had_not_read_yet_when_the_ledger_went_back_takes_no_batch_from_anybody(feed):
    """It read one that nobody had counted; at the end of the data the next run waited for it, in TensorFlow, for ever."""
    feeder, ledger = feed(100)
    batches = feeder.batches()
    ticket = feeder.begin(1, LIMIT)
    ledger.rewind()
    next(batches)
    feeder.trained(ticket)
    assert feeder.restart_needed
    feeder.end_late()
    assert next(batches, None) is None
    feeder.restarted()
    assert sorted(finish(feeder, feeder.batches())) == list(range(100))


def test_the_short_rest_is_given_when_others_hold_the_last_shards(feed):
    feeder, _ = feed(25, 10, shard_records=25)
    feeder.receive(pb.DataReply(dataset="train", state=pb.DataReply.DRAINED))
    batches = feeder.batches()
    assert [len(step(feeder, batches)) for _ in range(3)] == [10, 10, 5]


@pytest.mark.parametrize(("records", "given"), [(25, 20), (20, 20), (5, 0)])
def test_a_rest_that_is_dropped_is_done_with_what_is_before_it(feed, records, given):
    feeder, ledger = feed(records, 10, shard_records=records, drop=True)
    assert len(finish(feeder, feeder.batches())) == given and feeder.ended
    ledger.until(lambda request: any(progress.done == records for progress in request.progress))


@pytest.mark.parametrize("batch_size", [5, 32, 48, 100, 3000, 70_000])
def test_a_lease_has_full_batches_where_none_of_fewer_records_is_trained_and_nobody_says_how_many(batch_size):
    made = ask(10**6, batch_size, shard_records=None, drop_remainder=True).declaration
    assert made.shard_records >= min(200, batch_size) and made.shard_records % batch_size == 0


@pytest.mark.parametrize(("batch_size", "records"), [(5, 256), (32, 1024), (3000, 65536), (70_000, 70_000)])
def test_leases_of_other_datasets_are_as_large_as_they_were_when_a_run_that_is_resumed_was_begun(batch_size, records):
    assert ask(10**6, batch_size, shard_records=None).declaration.shard_records == records


def test_what_is_left_goes_back_when_training_ends(feed):
    feeder, ledger = feed(1000, 10, shard_records=10)
    batches = feeder.batches()
    trained = [step(feeder, batches) for _ in range(5)]
    feeder.finish()
    ledger.until(lambda request: len(request.returned) > 0)
    rest = finish(feeder, feeder.batches())  # somebody trains again
    assert sorted([record for batch in trained for record in batch] + rest) == list(range(1000))


def test_a_dataset_that_the_ledger_refuses_says_why(feed):
    feeder, _ = feed(100, connected=False)
    feeder.receive(pb.DataReply(dataset="train", error="shard 3 of a.txt keeps failing"))
    with pytest.raises(DataError, match=r"shard 3 of a\.txt"):
        feeder.begin(1, LIMIT)
    with pytest.raises(DataError, match="keeps failing"):
        next(feeder.batches())


def test_the_wait_for_data_ends_with_its_time(feed):
    feeder, _ = feed(100, connected=False)
    assert feeder.begin(1, 0.01) is None
    assert "AIMaster" in feeder.waits_for()


def test_a_batch_that_breaks_the_step_is_a_failure_of_its_shard(feed):
    feeder, ledger = feed(100)
    batches = feeder.batches()
    ticket = feeder.begin(1, LIMIT)
    next(batches)
    feeder.broken(ticket, "decode_csv: field 3 is no number")
    ledger.until(lambda request: any("shard" in one.error and "field 3" in one.error for one in request.failed))


@pytest.mark.parametrize("harm", ["shrinks", "grows", "vanishes"])
def test_a_file_that_changes_is_named_with_its_shard(feed, tmp_path, harm):
    path = tmp_path / "numbers.txt"
    path.write_text("".join(f"{number}\n" for number in range(1000)))
    asked = ask(str(path))
    if harm == "vanishes":
        path.unlink()
    else:
        path.write_text(path.read_text()[:-20] if harm == "shrinks" else path.read_text() + "more\n")
    feeder = Feeder(asked.declaration, asked.reader, 10, 2.0)
    ledger = FakeLedger(feeder)
    feeder.connect(ledger)
    feeder.registered(1)
    feeder.claim()
    with pytest.raises(DataError, match=r"numbers\.txt (has (shrunk|grown) from|has vanished)"):
        feeder.begin(1, LIMIT)
    feeder.close()


@pytest.mark.parametrize(
    "files, options, word",
    [
        (100, {"batch_size": 0}, "batch_size"),
        (100, {"batch_size": 2.5}, "batch_size"),
        (100, {"epochs": 0}, "epochs"),
        (100, {"shard_records": 0}, "shard_records"),
        (100, {"purpose": "training"}, "purpose"),
        (0, {}, "number of records"),
        (range(3, 10), {}, "begins at 0"),
        (100, {"reader": "tfrecord"}, "range"),
        ("/nowhere/*.csv", {}, "no file matches"),
        ([], {}, "empty"),
        (100, {"name": ""}, "name"),
    ],
)
def test_arguments_that_cannot_be_are_named(files, options, word):
    with pytest.raises(UsageError, match=word):
        elastic_records(files, options.pop("batch_size", 10), **options)
