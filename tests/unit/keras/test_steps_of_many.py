"""Steps and records are two tables of the ledger: several processes with both come to the end of them, whoever holds what."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest

from deeprec_ext.aimaster.ledger.dataset import Dataset
from deeprec_ext.aimaster.ledger.visits import Numbers
from deeprec_ext.data.feeder import Feeder
from deeprec_ext.data.plan import plan
from deeprec_ext.keras.leased.counted import Counted, plan_of_steps
from deeprec_ext.keras.leased.epochs import Epochs
from deeprec_ext.proto import deeprec_ext_pb2 as pb

BATCH = 8
LIMIT_SECONDS = 60.0
"""Far below the ten minutes after which the AIMaster takes back what nobody trains."""


class Books:
    """The AIMaster's, of all datasets. It answers at once, and tells those who wait."""

    def __init__(self):
        self.datasets, self.feeders, self.lock, self.numbers = {}, {}, threading.Lock(), Numbers()
        self.requests = Counter()

    def feeder(self, who, made, batch_size):
        feeder = Feeder(made.declaration, made.reader, batch_size, 2.0)
        self.feeders[who, feeder.name] = feeder
        feeder.registered(1)
        feeder.connect(SimpleNamespace(send=lambda request: self.answer(who, request)))
        return feeder

    def answer(self, who, request):
        with self.lock:
            self.requests[who, request.dataset] += 1
            if request.dataset not in self.datasets:
                self.datasets[request.dataset] = Dataset(request.declare, self.numbers)
            dataset = self.datasets[request.dataset]
            reply = dataset.answer(who, request, time.monotonic())
            waiting, hint = dataset.waiting(), dataset.hint()
        self.feeders[who, request.dataset].receive(reply)
        for one in waiting:
            self.feeders[one, request.dataset].receive(hint)

    def holders(self):
        with self.lock:
            return {name: dataset.visits.holders() for name, dataset in self.datasets.items()}


class Process:
    """A trainer; `epochs` are the real ones."""

    def __init__(self, books, who, records, steps):
        self.trained, self.ends, self.dry = [], [], False
        feeders = books.feeder(who, steps, steps.batch_size), books.feeder(who, records, BATCH)
        home = SimpleNamespace(
            chief=True, leaving=threading.Event(), generation=0, runs_repeated=0, wait_live=lambda seconds: True,
            inputs=SimpleNamespace(
                waiting=contextlib.nullcontext(), end_of_epoch=lambda request: pb.EpochReply(begun=True, known=0)
            ),
        )  # fmt: skip
        nothing = lambda *_: None  # noqa: E731
        model = SimpleNamespace(opened=True, recover=nothing, changed=nothing, pass_on=nothing, forget=nothing)
        counted = Counted(*feeders)
        self.epochs = Epochs(home, model, counted, lambda: counted.batches(feeders[1].batches()), records)
        self.home, self.wanted = home, steps.declaration.epochs
        self.thread = threading.Thread(target=self.fit, name=who)

    def fit(self):
        try:
            for epoch in range(self.wanted):
                self.epochs.begin(epoch)
                self.epochs.go_on()
                while self.epochs.ready():
                    try:
                        batch = next(self.epochs)
                    except StopIteration:
                        break
                    with self.epochs.step():
                        self.trained += batch.tolist()
                self.ends.append(len(self.trained))
                if self.epochs._dry or self.home.leaving.is_set():
                    self.dry = self.epochs._dry
                    break
        finally:
            self.epochs.close()


@pytest.fixture
def fit():
    """Runs as many processes as are asked for until all have ended."""
    begun = []

    def run(rows, steps, epochs, passes=1, shard_records=None, processes=2):
        books = Books()
        made = plan(rows, BATCH, passes, False, 0, "range", shard_records, None, "train", False, {})
        records = made.of_its_own("records", passes, in_turn=False)
        counted = plan_of_steps("steps", steps, epochs)
        found = [Process(books, f"p{number}", records, counted) for number in range(processes)]
        begun.extend(found)
        for one in found:
            one.thread.start()
        deadline = time.monotonic() + LIMIT_SECONDS
        for one in found:
            one.thread.join(max(0.0, deadline - time.monotonic()))
        told = {name: (one.trained, one.visits.holders()) for name, one in books.datasets.items()}
        assert not any(one.thread.is_alive() for one in found), f"they wait for each other: {told}"
        return books, found

    yield run
    for one in begun:
        one.home.leaving.set()
        one.thread.join(LIMIT_SECONDS)


def rows_of(processes):
    return sorted(row for one in processes for row in one.trained)


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("shard_records", [BATCH, None], ids=["a lease is a batch", "a lease is all there is"])
def test_steps_for_all_records_there_are_train_them_all(fit, caplog, shard_records, processes):
    """Leases are as coarse as a pass: who has none of the records keeps no step."""
    books, found = fit(160, 10, 6, passes=3, shard_records=shard_records, processes=processes)
    assert rows_of(found) == sorted([*range(160)] * 3)
    assert all(len(one.ends) == 6 and not one.dry for one in found), "every process has every epoch to its end"
    steps, records = books.datasets["steps"], books.datasets["records"]
    assert steps.ended and records.ended and not steps.repeated + records.repeated
    assert "ran out of data" not in caplog.text


@pytest.mark.parametrize("processes", [2, 3])
def test_records_that_end_before_the_steps_end_the_training_of_all(fit, caplog, processes):
    """Plain Keras trains what there is, says so, and stops."""
    with caplog.at_level(logging.WARNING):
        books, found = fit(160, 15, 4, passes=2, processes=processes)
    assert rows_of(found) == sorted([*range(160)] * 2) and all(one.dry for one in found)
    assert {len(one.ends) for one in found} == {3}, "fifteen, fifteen, ten steps"
    assert caplog.text.count("ran out of data") == processes
    assert books.datasets["steps"].trained == 40 and books.datasets["records"].ended
    assert not any(books.holders().values())


@pytest.mark.parametrize("processes", [2, 3])
def test_steps_that_end_before_the_records_end_the_training_and_leave_the_rest_in_nobodys_hands(fit, caplog, processes):
    """steps_per_epoch=rows // batch of rows that batches do not divide."""
    books, found = fit(165, 10, 2, processes=processes)
    assert len(rows_of(found)) == len(set(rows_of(found))) and books.datasets["steps"].ended
    assert all(len(one.ends) == 2 and not one.dry for one in found) and "ran out of data" not in caplog.text
    assert not any(books.holders().values())
