"""Batches of a `fit` in step: each is in the model once, whatever sums say of them."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deeprec_ext.allreduce.summing import Summed
from deeprec_ext.data import streams
from deeprec_ext.data.plan import plan
from deeprec_ext.elastic.agent.waiting import Waiting
from deeprec_ext.keras.in_step.voting import EpochsInStep
from deeprec_ext.proto import deeprec_ext_pb2 as pb

RECORDS, BATCH = 120, 8
INPUTS = SimpleNamespace(waiting=Waiting())


class Job:
    """What becomes of what this process gives: counts how often each record is in the model.

    Args:
      void: sums in which nothing of this process counts; alone: also, it alone had the one before; away: sums before which it
        was given the model of the others, while it had collected a part of a step.
    """

    between, course, records, summed = False, None, 0, None

    def __init__(self, void: set[int], alone: set[int], away: set[int]) -> None:
        self._void, self._alone, self._away = void, alone, away
        self.step, self.collects, self.stale, self.leads = 0, False, False, False
        self.model, self._before, self._collected = (np.zeros(RECORDS) for _ in range(3))
        self.heard = self.entered = lambda *one: None

    def attend(self) -> None:
        if self.step + 1 in self._away and self._collected.any():
            self._away.discard(self.step + 1)
            self.stale = True

    def drop(self) -> None:
        self._collected, self.stale = np.zeros(RECORDS), False

    def run(self, batch: Any) -> None:
        self._collected = self._collected + np.bincount(batch, minlength=RECORDS)
        if not self.collects:
            self.summed = self._sum()

    def idle(self, vote: bool = False) -> Summed:
        return self._sum(vote)

    def _sum(self, vote: bool = False) -> Summed:
        self.step += 1
        followed = self.step not in self._alone
        if not followed:
            self.model = self.model - self._before
        counted = followed and self.step not in self._void
        self._before = self._collected if counted else np.zeros(RECORDS)
        self.model, weight = self.model + self._before, float(self._collected.any())
        self._collected = np.zeros(RECORDS)
        found = Summed([], weight, self.step, counted, followed, unanimous=vote)
        self.heard(found)
        return found


class Epochs(EpochsInStep):
    def _ask(self, request: Any) -> None:
        return None


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    ("void", "alone", "away"),
    [
        (set(), set(), set()), ({1}, set(), set()), ({2, 3, 7}, set(), set()), (set(), {4}, set()), ({5, 9}, {3, 4, 8}, set()),
        (set(), set(), {2, 3, 4}), ({3}, {5}, {2, 3, 6}), (set(range(2, 60, 2)), {9, 15}, {4, 5, 11}),
    ],
)  # fmt: skip
def test_each_record_is_in_the_model_once(void, alone, away, parts):
    feeder = streams.alone(plan(RECORDS, BATCH, 1, True, 1, "lines", 30, None, "train", False, {}))
    job = Job(set(void), set(alone), set(away))
    member = SimpleNamespace(step=1, settings=pb.AgentSettings(), pause=lambda: None)
    home = SimpleNamespace(generation=0, chief=False, leaving=threading.Event(), member=member, inputs=INPUTS)
    epochs = Epochs(home, job, feeder, lambda: feeder.batches(), None)
    epochs._entered = epochs._opened = True
    epochs._parts = parts
    job.heard = epochs._hear
    try:
        while epochs.ready():
            batch = next(epochs)
            with epochs.step():
                job.run(batch)
    finally:
        feeder.finish()
        feeder.close()
    np.testing.assert_array_equal(job.model, np.ones(RECORDS))
    assert epochs.ended_together and (parts == 1 or job.step < 60)


def test_who_is_stopped_by_a_callback_hears_of_its_last_step_before_it_leaves():
    """Else others would train it again."""
    feeder = streams.alone(plan(RECORDS, BATCH, 1, True, 1, "lines", 30, None, "train", False, {}))
    job = Job(set(), set(), set())
    member = SimpleNamespace(step=1, settings=pb.AgentSettings(), pause=lambda: None)
    home = SimpleNamespace(generation=0, chief=False, leaving=threading.Event(), member=member, inputs=INPUTS)
    epochs = Epochs(home, job, feeder, lambda: feeder.batches(), None)
    epochs._entered = epochs._opened = True
    job.heard = epochs._hear
    try:
        for _ in range(3):
            assert epochs.ready()
            batch = next(epochs)
            with epochs.step():
                job.run(batch)
        assert feeder._popped < 3
        assert not epochs.finish(None, {})
        assert feeder._popped == 3 and job.step == 4
    finally:
        feeder.finish()
        feeder.close()
