"""How a `fit` in step comes to its batches, their size, and its end."""

from __future__ import annotations

import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.allreduce.summing import Summed
from deeprec_ext.data import in_step, streams
from deeprec_ext.data.plan import plan
from deeprec_ext.elastic.agent.waiting import Waiting
from deeprec_ext.keras.in_step import voting
from deeprec_ext.keras.in_step.voting import EpochsInStep
from deeprec_ext.keras.leased import epochs as epochs_of_fit
from deeprec_ext.keras.leased.counted import Counted, plan_of_steps
from deeprec_ext.proto import deeprec_ext_pb2 as pb

SUMS_MAX = 200


class Steps:
    """In place of `InStep`: alone in its ring, where sums take effect one step later. Keeps what is in the model."""

    def __init__(self) -> None:
        self.between = self.stale = self.leads = self.collects = False
        self.course: Any = None
        self.kept = SimpleNamespace(is_there=False)
        self.records, self.sums, self.sums_once = 0, 0, True
        self.summed: Summed | None = None
        self.heard: Any = lambda summed: None
        self.trained: list[list[int]] = []

    def attend(self) -> None:
        pass

    drop = enter = attend

    def run(self, batch: np.ndarray) -> None:
        self.trained.append(batch.tolist())
        self.summed = self._sum(len(batch), False)

    def idle(self, vote: bool = False) -> Summed:
        return self._sum(0, vote)

    def _sum(self, weight: int, vote: bool) -> Summed:
        self.sums += 1
        assert self.sums < SUMS_MAX, "it does not end"
        found = Summed([], weight, self.sums, True, True, unanimous=vote)
        self.heard(found)
        return found


class Epochs(EpochsInStep):
    def _ask(self, request: Any) -> Any:
        return None


def epochs_of(source: Any, make: Any, steps: Steps, **words: Any) -> Epochs:
    settings = pb.AgentSettings(**words)
    member = SimpleNamespace(step=1, settings=settings, pause=lambda: None)
    home = SimpleNamespace(
        generation=0, chief=True, leaving=threading.Event(), member=member, inputs=SimpleNamespace(waiting=Waiting()), told=[]
    )  # fmt: skip
    home.notice = lambda code, *words, **how: home.told.append(code)
    found = Epochs(home, steps, source, make, None)
    found._entered = found._opened = True
    steps.heard = found._hear
    return found


def fed(records: int, batch: int) -> Any:
    return streams.alone(plan(records, batch, 1, True, 1, "lines", 30, None, "train", False, {}))


@pytest.fixture
def close() -> Any:
    made: list[Any] = []
    yield made
    for one in made:
        one.finish()
        one.close()


def train(epochs: Epochs, steps: Steps, most: int = SUMS_MAX) -> None:
    for _ in range(most):
        if not epochs.ready():
            return
        batch = next(epochs)
        with epochs.step():
            steps.run(batch)


@pytest.mark.parametrize(("records", "steps_wanted"), [(320, 10), (100, 10), (310, 10), (640, 10)])
def test_steps_of_an_epoch_end_with_them_or_with_the_records(records, steps_wanted, close):
    """Each row once at the most; what is in the model is not given again where the records end."""
    feeder, counted = fed(records, 32), streams.alone(plan_of_steps("steps", steps_wanted, 1))
    close += [feeder, counted]
    source, steps = Counted(counted, feeder), Steps()
    epochs = epochs_of(source, lambda: source.batches(feeder.batches()), steps)
    train(epochs, steps)
    assert epochs.over and epochs.ended_together
    given = Counter(number for one in steps.trained for number in one)
    batches = min(steps_wanted, -(-records // 32))
    assert set(given.values()) == {1} and len(steps.trained) == batches
    assert len(given) == min(records, 32 * steps_wanted)
    assert epochs._dry == (batches < steps_wanted)
    assert steps.sums < 3 * batches + 30


def test_an_own_input_that_ends_early_votes_until_the_others_are_through(close):
    counted = streams.alone(plan_of_steps("steps", 10, 1))
    close.append(counted)
    source, steps = Counted(counted, None), Steps()
    epochs = epochs_of(source, lambda: source.batches(None), steps)
    train(epochs, steps, 3)
    assert epochs.ready()
    next(epochs)
    epochs.run_dry()
    assert not epochs.over and counted._popped == 0 and counted._leases.total_trained == 3, "its last step is trained"
    train(epochs, steps)
    assert epochs.over and epochs.ended_together and len(steps.trained) == 3


@pytest.mark.parametrize(("before", "after"), [((1, 0), (4, 1)), ((4, 1), (1, 0)), ((3, 0), (2, 0))])
@pytest.mark.parametrize("ahead", [0, 3], ids=["rows", "read ahead"])
def test_the_first_step_after_a_change_has_as_many_records_as_all(before, after, ahead, close, monkeypatch):
    """256 records a step, whatever was cut and read for other numbers of workers."""
    now = [before]
    monkeypatch.setattr(voting, "place", lambda: now[0])
    feeder, steps = fed(6000, 256), Steps()
    close.append(feeder)

    def make() -> Any:
        if not ahead:
            return feeder.batches()
        made = tf.data.Dataset.from_generator(feeder.batches, output_signature=tf.TensorSpec([None], tf.int64))
        return made.prefetch(ahead).as_numpy_iterator()

    epochs = epochs_of(feeder, make, steps)
    epochs.batch = 256
    train(epochs, steps, 3)
    for _ in range(100):  # its read-ahead is full
        if len(feeder._outstanding) - feeder._given >= 8:
            break
        threading.Event().wait(0.02)
    now[0] = after
    train(epochs, steps, 2)
    sizes = [len(one) for one in steps.trained]
    assert sizes == [voting.part(256, *before)] * 3 + [voting.part(256, *after)] * 2
    train(epochs, steps)
    assert Counter(number for one in steps.trained for number in one) == Counter(range(6000))
    assert {len(one) for one in steps.trained[3:-1]} == {voting.part(256, *after)}


def test_who_has_no_part_of_a_step_gives_its_records_to_the_others_and_votes(close, monkeypatch):
    now = [(2, 1)]
    monkeypatch.setattr(voting, "place", lambda: now[0])
    feeder, steps = fed(64, 2), Steps()
    close.append(feeder)
    epochs = epochs_of(feeder, feeder.batches, steps)
    epochs.batch = 2
    train(epochs, steps, 3)
    now[0] = (4, 3)
    for _ in range(5):
        assert not epochs._find()
    assert len(steps.trained) == 3 and set(epochs._home.told) == {"few-records"}
    assert not list(feeder._leases.held)
    now[0] = (1, 0)
    train(epochs, steps)
    assert Counter(number for one in steps.trained for number in one) == Counter(range(64))


class Slow:
    """A source that reads what it gives next."""

    drained, reading = False, True


def test_a_batch_that_is_being_read_is_waited_for_but_once_so_long():
    now, source = [0.0], Slow()
    patience = in_step.Patience(source, lambda: now[0])
    assert not patience.goes_on(), "nobody waits for the first batch of who is new"
    for _ in range(2):
        patience.had()
        waited = 0.0
        while patience.goes_on():
            assert patience.seconds() == in_step.WAIT_SECONDS
            now[0] += in_step.WAIT_SECONDS
            waited += in_step.WAIT_SECONDS
        assert waited == pytest.approx(in_step.READ_SECONDS, abs=1.1 * in_step.WAIT_SECONDS)
        assert not patience.goes_on(), "the next step goes on without it"
    source.reading = False
    patience.had()
    assert not patience.goes_on(), "its leases are on their way"
    source.drained = True
    assert patience.seconds() == 0 and patience.seconds(drained=False) == in_step.WAIT_SECONDS
    patience.idle = True
    assert patience.seconds() == in_step.IDLE_SECONDS


def test_slow_storage_makes_steps_slow_and_not_small(close, monkeypatch):
    monkeypatch.setattr(in_step, "WAIT_SECONDS", 0.01)
    feeder, steps = fed(80, 8), Steps()
    close.append(feeder)
    read, wait = feeder._files.read, threading.Event().wait

    def slowly(lease: Any) -> Any:
        wait(0.1)
        return read(lease)

    monkeypatch.setattr(feeder._files, "read", slowly)
    epochs = epochs_of(feeder, feeder.batches, steps)
    epochs.batch = 8
    epochs._patience.had()
    train(epochs, steps, 9)
    assert steps.sums == 9 and [len(one) for one in steps.trained] == [8] * 9
    assert epochs._home.inputs.waiting.seconds > 0.1


@pytest.mark.parametrize("steps_left", [False, True])
@pytest.mark.parametrize("records_left", [False, True])
def test_the_tail_of_counted_steps_keeps_nobody_waiting(steps_left, records_left):
    """Others hold the last steps, or records."""
    source: Any = Counted(*(SimpleNamespace(drained=not left, reading=False) for left in (steps_left, records_left)))
    assert in_step.Patience(source).seconds() == (in_step.WAIT_SECONDS if steps_left and records_left else 0)


def test_training_waits_until_the_ledger_has_gone_back(close, monkeypatch):
    """However long no AIMaster answers: the model is an old one, and the records since then would be in none."""
    monkeypatch.setattr(epochs_of_fit, "PUBLISH_SECONDS", 0.0)
    monkeypatch.setattr(voting, "REWIND_SECONDS", 0.0)
    feeder, steps = fed(64, 8), Steps()
    close.append(feeder)
    epochs, asked = epochs_of(feeder, feeder.batches, steps), []

    def ask(request: Any) -> Any:
        asked.append(request.restored)
        return {3: pb.EpochReply(), 4: pb.EpochReply(rewinds=1)}.get(len(asked))  # 3: its records are not known yet

    monkeypatch.setattr(epochs, "_ask", ask)
    epochs._go_back(b"position")
    assert asked == [b"position"] * 4


@pytest.mark.parametrize(
    ("loss", "told"),
    [("mse", False), (tf.keras.losses.MeanSquaredError(), False), (tf.keras.losses.MeanSquaredError(reduction="sum"), True),
     ({"one": "mse", "other": tf.keras.losses.MeanAbsoluteError(reduction="sum")}, True)],
)  # fmt: skip
def test_a_loss_that_is_a_sum_is_told(loss, told, close):
    feeder, steps = fed(64, 8), Steps()
    close.append(feeder)
    epochs = epochs_of(feeder, feeder.batches, steps)
    epochs._entered, steps.course = False, SimpleNamespace(model=SimpleNamespace(loss=loss))
    epochs._come_in()
    assert ("sum-losses" in epochs._home.told) == told
