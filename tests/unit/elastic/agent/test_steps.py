"""What a trainer says of its pauses, on a clock of the test."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow")

from deeprec_ext.elastic.agent.causes import STEP, SUM
from deeprec_ext.elastic.agent.interval import TIMES_MAX, Interval
from deeprec_ext.elastic.agent.steps import STEPS_AFTER_COMMIT, StepClock
from deeprec_ext.gazer.metrics import STEP_BUCKETS
from deeprec_ext.proto import deeprec_ext_pb2 as pb


class Training:
    def __init__(self) -> None:
        self.now, self.waits, self.step = 0.0, 0, 0
        self.steps = StepClock(gate_waits=lambda: self.waits, clock=lambda: self.now)

    def train(self, count: int, seconds: float = 0.1) -> None:
        for _ in range(count):
            self.now += seconds
            self.step += 1
            self.steps.completed(self.step)


def test_the_pause_is_the_longest_gap_minus_the_median_before():
    training = Training()
    training.train(10)
    training.steps.begin_scaling(7)
    training.train(5)
    training.train(1, seconds=0.6)
    training.waits = 2
    training.steps.end_scaling(7)
    training.train(STEPS_AFTER_COMMIT - 1)
    assert not training.steps.take_pauses()
    training.train(1)
    (pause,) = training.steps.take_pauses()
    assert (pause.scaling_id, pause.gate_waits) == (7, 2)
    assert pause.pause_seconds == pytest.approx(0.5)
    assert pause.median_step_seconds == pytest.approx(0.1)
    assert not training.steps.take_pauses()


def test_a_gap_after_the_window_does_not_count():
    training = Training()
    training.train(10)
    training.steps.begin_scaling(1)
    training.steps.end_scaling(1)
    training.train(STEPS_AFTER_COMMIT)
    training.train(1, seconds=9)
    assert training.steps.take_pauses()[0].pause_seconds == pytest.approx(0)


def test_the_next_scaling_ends_the_window_of_the_one_before():
    training = Training()
    training.train(10)
    training.steps.begin_scaling(1)
    training.train(3)
    training.steps.begin_scaling(2)
    training.train(1, seconds=0.3)
    assert [pause.scaling_id for pause in training.steps.take_pauses(flush=True)] == [1, 2]


def test_a_worker_that_has_made_no_step_reports_no_pause():
    training = Training()
    training.steps.begin_scaling(1)
    training.steps.end_scaling(1)
    training.train(30)
    assert not training.steps.take_pauses(flush=True)


def test_the_time_between_two_sessions_is_no_step():
    training = Training()
    training.train(10)
    training.steps.begin_session()
    training.now += 60
    training.train(10)
    assert training.steps.median_step_seconds() == pytest.approx(0.1)


def test_rates_fall_when_steps_stop():
    training = Training()
    training.steps.examples_per_step = 64
    training.train(20)
    assert training.steps.rates() == (pytest.approx(10), pytest.approx(640))
    training.now += 100
    assert training.steps.rates()[0] < 1


def test_a_new_session_may_be_behind_the_old_one():
    training = Training()
    training.steps.completed(900)
    training.steps.begin_session()
    training.steps.completed(501)  # the model was restored from the checkpoint of step 500
    assert training.steps.global_step == 501


def test_an_interval_has_the_steps_since_the_last_look():
    training = Training()
    training.steps.examples_per_step = 10
    training.train(1)
    training.train(18, seconds=0.003)
    training.train(1, seconds=0.03)
    training.train(1, seconds=100.0)
    sample = training.steps.take_interval()
    assert (sample.steps, sample.examples) == (21, 210)
    assert sample.median_seconds == pytest.approx(0.003)
    assert sample.p95_seconds == pytest.approx(0.03)
    assert sample.longest_seconds == pytest.approx(100)
    counts = dict(zip([*STEP_BUCKETS, "above"], sample.histogram))
    assert {bound: count for bound, count in counts.items() if count} == {0.004: 18, 0.032: 1, "above": 1}
    assert sample.histogram_seconds == pytest.approx(18 * 0.003 + 0.03 + 100)
    assert training.steps.take_interval() == pb.StepSample(histogram=[0] * (len(STEP_BUCKETS) + 1))


def test_a_bucket_has_the_times_up_to_its_bound():
    interval = Interval()
    for bound in STEP_BUCKETS:
        interval.add(bound)
    assert list(interval.sample(0).histogram) == [1] * len(STEP_BUCKETS) + [0]


def test_a_process_that_is_never_asked_keeps_a_bounded_number_of_times():
    interval = Interval()
    for _ in range(3 * TIMES_MAX):
        interval.add(0.001)
    assert len(interval._times) == TIMES_MAX and interval.sample(0).steps == 3 * TIMES_MAX


def test_the_pause_of_a_lost_ps_is_not_that_of_the_scaling_it_falls_into():
    training = Training()
    training.train(10)
    training.steps.begin_scaling(7)
    training.train(5, seconds=0.12)
    training.steps.lost()
    training.steps.lost()  # another PS, before a step
    training.train(1, seconds=3.0)
    training.steps.end_scaling(7)  # rolled back
    training.train(2 * STEPS_AFTER_COMMIT)
    told = [(one.scaling_id, one.loss, one.pause_seconds) for one in training.steps.take_pauses(flush=True)]
    assert told == [(7, False, pytest.approx(0.02)), (0, True, pytest.approx(2.9, abs=0.05))]


def test_a_scaling_that_had_seen_no_step_when_a_ps_was_lost_has_no_pause():
    training = Training()
    training.train(10)
    training.steps.begin_scaling(7)
    training.steps.lost()
    assert not training.steps.changing
    training.train(1, seconds=2.0)
    training.steps.end_scaling(7)
    training.train(STEPS_AFTER_COMMIT)
    assert [one.loss for one in training.steps.take_pauses(flush=True)] == [True]
    training.steps.begin_scaling(8)
    training.train(1, seconds=0.4)
    assert [one.scaling_id for one in training.steps.take_pauses(flush=True)] == [8]


def test_a_session_that_is_made_anew_after_a_loss_has_no_pause_to_tell():
    training = Training()
    training.train(10)
    training.steps.lost()
    training.steps.begin_session()
    training.train(10)
    assert not training.steps.take_pauses(flush=True)


def test_what_of_a_step_is_spent_in_sums_is_told_apart():
    now, spent = 0.0, {}
    steps = StepClock(clock=lambda: now, spent=lambda: spent)
    for number, summing in enumerate((0.5, 0.02, 0.04, 0.03, 9.0), 1):
        now, spent = now + 0.1, {SUM: summing, STEP: 0.05}
        steps.completed(number)
    assert steps.take_interval().sum_seconds == pytest.approx(0.03), (
        "no gap lies before the first, and 9 s are not in 0.1"
    )
    assert steps.take_interval().sum_seconds == 0
