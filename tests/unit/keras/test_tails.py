"""The end of an epoch of several processes: as many steps as one process makes, each record once, weights alike."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deeprec_ext.allreduce.meeting import Listener
from deeprec_ext.allreduce.summing import Summed, Summing
from deeprec_ext.data.feeder import Feeder
from deeprec_ext.data.local import LocalLedger
from deeprec_ext.data.plan import plan
from deeprec_ext.elastic.agent.waiting import Waiting
from deeprec_ext.keras.in_step import voting
from deeprec_ext.keras.in_step.voting import EpochsInStep
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.allreduce.members import DEADLINE, Coordinator, Told, call

HERE = threading.local()
"""`of`: whose thread it is."""


class Ledger:
    """One for all members; `a` has more than half of the leases; who is late has none before so many steps of the others."""

    def __init__(self, declaration: Any, members: int, late: Mapping[str, int]) -> None:
        self._late, self.steps = late, lambda: 0
        self._ledger, self._lock, self._given = LocalLedger(declaration), threading.Lock(), dict[str, int]()
        leases = len(self._ledger._shards)
        self._others = leases // (2 * members)
        self._first = leases - (members - 1) * self._others

    def answer(self, name: str, feeder: Feeder, request: Any) -> None:
        with self._lock:
            room = (self._first if name == "a" else self._others) - self._given.get(name, 0)
            request.want = min(room, request.want) if self.steps() >= self._late.get(name, 0) else 0
            reply = self._ledger.answer(request)
            self._given[name] = self._given.get(name, 0) + len(reply.leases)
            if reply.state == pb.DataReply.MORE and not reply.leases:
                reply.state = pb.DataReply.DRAINED
        feeder.receive(reply)


class Epochs(EpochsInStep):
    def _ask(self, request: Any) -> Any:
        return None


class Fit:
    """In place of `InStep`, in a ring with the others: its model counts how often each record is in it."""

    between = stale = leads = collects = False
    sums_once, course, records, kept = True, None, 0, SimpleNamespace(is_there=False)

    def __init__(self, coordinator: Coordinator, ledger: Ledger, made: Any, name: str, pace: float) -> None:
        self.pace = pace
        self.name, self.told, self.listener = name, Told(coordinator, name), Listener()
        self.summing = Summing(self.listener, self.told, self)
        self.model = np.zeros(sum(one.records for one in made.declaration.files))
        self.sizes: dict[int, float] = {}  # of steps that change something
        self.models: dict[int, bytes] = {}
        self.summed: Summed | None = None
        self.error: BaseException | None = None
        self.feeder = Feeder(made.declaration, made.reader, made.batch_size, 60.0)
        self.feeder.registered(1)
        self.feeder.connect(SimpleNamespace(send=lambda request: ledger.answer(name, self.feeder, request)))
        self.home = SimpleNamespace(
            generation=0, chief=name == "a", leaving=threading.Event(), inputs=SimpleNamespace(waiting=Waiting()),
            notice=lambda *words, **how: None,
            member=SimpleNamespace(step=1, settings=pb.AgentSettings(), pause=lambda: None),
        )  # fmt: skip
        self.epochs = Epochs(self.home, self, self.feeder, self.feeder.batches, None)
        self.epochs.batch = made.batch_size
        self.epochs._entered = True
        self.heard, self.entered, self.holds = self.epochs._hear, self.epochs._enter_again, self.epochs._holds
        self.place = lambda: (len(coordinator._members), [*coordinator._members, name].index(name))

    def take(self) -> list[Any]:
        return [self.model]

    def put(self, arrays: Any) -> None:
        (self.model,) = arrays

    def attend(self) -> None:
        if (missed := self.summing.attend([np.zeros_like(self.model)])) is not None:
            self._apply(missed)

    def drop(self) -> None:
        pass

    enter = drop

    def idle(self, vote: bool = False) -> Summed:
        return self._sum(np.zeros_like(self.model), 0, vote)

    def _sum(self, counts: Any, weight: int, vote: bool = False) -> Summed:
        found = self.summing.sum([counts / max(1, weight)], weight, vote, holds=self.holds())
        self.heard(found)
        self._apply(found)
        return found

    def _apply(self, found: Summed) -> None:
        if found.weight:
            self.model = self.model + np.rint(found.arrays[0] * found.weight)
            self.sizes[found.step] = found.weight
        self.models[found.step] = self.model.tobytes()

    def run(self, started: threading.Barrier) -> None:
        HERE.of = self
        try:
            self.epochs._claim()  # what the first step has of it is not what this is about
            if not self.pace:
                self.feeder.withdraw(self.feeder.begin(1, DEADLINE))
            started.wait(DEADLINE)
            while self.epochs.ready():
                batch = next(self.epochs)
                time.sleep(self.pace)
                with self.epochs.step():
                    self.summed = self._sum(np.bincount(batch, minlength=self.model.size), len(batch))
        except BaseException as error:  # the test says which
            self.error = error
        finally:
            self.feeder.finish()
            self.summing.close()
            self.listener.close()
            self.feeder.close()


def fitted(
    monkeypatch: Any,
    records: int,
    batch: int,
    names: str,
    late: Mapping[str, int] = MappingProxyType({}),
    pace: float = 0.0,
) -> list[Fit]:
    """An epoch, by so many members; a batch takes `pace` seconds."""
    monkeypatch.setattr(voting, "place", lambda: HERE.of.place())
    coordinator = Coordinator()
    made = plan(records, batch, 1, True, 1, "lines", 30, None, "train", False, {})
    ledger = Ledger(made.declaration, len(names), late)
    members = [Fit(coordinator, ledger, made, name, pace) for name in names]
    ledger.steps = lambda: len(members[0].sizes)
    coordinator.announce({one.name: one.listener.port for one in members})
    started = threading.Barrier(len(members))
    threads = [call(one.run, started) for one in members]
    try:
        for thread in threads:
            thread.join(DEADLINE)
        assert not any(thread.is_alive() for thread in threads) and [one.error for one in members if one.error] == []
    finally:
        coordinator.end()
        for one in members:
            one.summing.give_up()
    return members


def alike(members: list[Fit], records: int) -> None:
    """Each record once, and the same models after the same steps."""
    for one in members:
        np.testing.assert_array_equal(one.model, np.ones(records))
        assert sum(one.sizes.values()) == records
    steps: dict[int, set[bytes]] = {}
    for one in members:
        for step, model in one.models.items():
            steps.setdefault(step, set()).add(model)
    assert {len(found) for found in steps.values()} == {1}


@pytest.mark.parametrize(
    ("records", "batch", "names"), [(600, 50, "ab"), (600, 50, "abc"), (610, 64, "abc"), (300, 6, "abcd")]
)
def test_an_epoch_has_about_as_many_steps_as_that_of_one_process(records, batch, names, monkeypatch):
    members = fitted(monkeypatch, records, batch, names)
    alike(members, records)
    sizes = list(members[0].sizes.values())
    assert max(sizes) <= batch and len(sizes) <= -(-records // batch) + 2, sizes


def test_whose_records_come_after_it_has_said_that_it_has_none_makes_no_step_larger(monkeypatch):
    """The others have taken all of that step already; it has a part of the next."""
    members = fitted(monkeypatch, 2400, 48, "abc", {"b": 5, "c": 9}, pace=0.04)
    alike(members, 2400)
    sizes = list(members[0].sizes.values())
    assert max(sizes) <= 48 and len(sizes) <= 2400 / 48 + 5, sizes


@pytest.mark.parametrize(
    ("batch", "held", "found"),
    [
        (48, (48, 0, 0), [48, 0, 0]), (48, (20, 0, 0), [20, 14, 14]), (48, (47, 0, 0), [47, 0, 0]), (48, (0, 0, 0), [16] * 3),
        (48, (48, 3, 48), [22, 3, 22]), (47, (44, 0, 0), [44, 2, 1]), (48, (48, 48, 48), [16] * 3), (3, (0, 0, 0), [1] * 3),
    ],
)  # fmt: skip
def test_who_has_said_that_it_has_none_takes_what_the_others_leave(batch, held, found):
    epochs = EpochsInStep.__new__(EpochsInStep)
    epochs.batch, epochs._held = batch, held
    assert [epochs._part(len(held), at) for at in range(len(held))] == found
