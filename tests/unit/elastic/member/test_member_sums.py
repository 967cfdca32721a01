"""What a member tells of its sums, and sums that it begins before all is computed."""

from __future__ import annotations

import functools
import threading

import numpy as np
import pytest

from deeprec_ext.allreduce.given import Given
from deeprec_ext.hooks import summed
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.allreduce.members import DEADLINE, Coordinator, all_of, call
from tests.unit.allreduce.test_summing import until
from tests.unit.elastic.member.ringed import announce, closed, ringed


class Nothing:
    def take(self):
        return []

    def put(self, arrays):
        pass


LIKE = [np.zeros(2, np.float32), np.zeros(3, np.float32)]


@pytest.fixture
def two(monkeypatch):
    coordinator = Coordinator()
    members = [ringed(monkeypatch, coordinator, index, Nothing()) for index in range(2)]
    announce(coordinator, members)
    all_of([lambda one=one: one.sum(LIKE, 0.0) for one in members])
    yield coordinator, members
    closed(coordinator, members)


def given() -> Given:
    return Given(LIKE, (0, 1))


def bring(of: Given) -> None:
    of.put(1, [np.ones(3, np.float32)])
    of.put(0, [np.ones(2, np.float32)])


def test_a_sum_that_was_begun_is_ended_by_that_of_the_same(two, monkeypatch):
    _, (a, b) = two
    ofs = given(), given()
    for one, of in zip((a, b), ofs):
        one.begin(of, 2.0)
        bring(of)
    found = all_of([lambda one=one, of=of: one.sum(of, 2.0) for one, of in zip((a, b), ofs)])
    assert [(one.weight, one.step, one.counted) for one in found] == [(4.0, 2, True)] * 2
    assert a.clock.global_step == 2 and a.beat().examples == 2
    assert sum(thread.name == "deeprec-sums" for thread in threading.enumerate()) >= 2


def test_a_step_that_fails_after_its_sum_was_begun_leaves_the_others_to_go_on(two):
    coordinator, (a, b) = two
    of = given()
    b.begin(of, 1.0)
    of.put(1, [np.ones(3, np.float32)])
    found = []
    other = call(lambda: found.append(a.sum(Given.whole([np.ones_like(one) for one in LIKE], (0, 1)), 1.0)))
    b.drop()
    assert not b._ahead.busy
    b.pause()
    announce(coordinator, [a])
    other.join(DEADLINE)
    assert [one.members for one in found] == [1]
    announce(coordinator, [a, b])
    found = all_of([lambda one=one: one.sum(Given.whole(LIKE, (0, 1)), 1.0) for one in (a, b)])
    assert [(one.members, one.step) for one in found] == [(2, 3)] * 2


def test_records_of_a_step_with_several_sums_count_once(two):
    _, members = two
    for _ in range(6):
        all_of([lambda one=one: one.sum(LIKE, 64.0, share=1 / 3) for one in members])
    for one in members:
        assert one.beat().examples == 128
        sample = one.clock.take_interval()
        assert sample.steps == 7 and sample.examples == round(7 * 64 / 3)


def test_who_computes_for_long_tells_since_when_it_is_out_of_sums(two):
    _, (a, b) = two
    now = [1000.0]
    a._clock = b._clock = lambda: now[0]
    all_of([lambda one=one: one.sum(LIKE, 1.0) for one in (a, b)])
    now[0] += 1
    waits = call(lambda: a.sum(LIKE, 1.0))
    until(lambda: a.beat().out_seconds == 0)
    now[0] += 69
    assert a.beat().out_seconds == 0 and b.beat().out_seconds == 70
    b.attend(LIKE)
    assert b.beat().out_seconds == 0
    now[0] += 1
    assert b.beat().out_seconds == 1
    b.sum(LIKE, 1.0)
    waits.join(DEADLINE)


def test_a_member_tells_its_waits_for_input_and_where_its_training_ends(two):
    """Else nobody knows that it is starved, nor when the job is through."""
    _, (a, _) = two
    with a.inputs.waiting:
        threading.Event().wait(0.05)
    report, again = pb.GazerReport(), pb.GazerReport()
    a._steps(report)
    a._steps(again)
    assert report.steps.input_wait_seconds >= 0.05 and again.steps.input_wait_seconds == 0
    assert a.beat().last_step == 0
    sums = summed._Sums()
    sums.ends = lambda: 2000
    a.last_step = functools.partial(sums.last_step, a.step - 1500)  # a session that was restored
    assert a.beat().last_step == 500 + a.step
    sums.ends = None
    assert a.beat().last_step == 0
