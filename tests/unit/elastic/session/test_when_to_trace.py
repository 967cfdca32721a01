"""When a step is traced: a clock, a gate and a probe that pretend."""

from __future__ import annotations

import threading

import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.agent.background import GivenUpError  # noqa: E402
from deeprec_ext.elastic.session import tracing  # noqa: E402
from deeprec_ext.elastic.session.probe import Recorded  # noqa: E402
from deeprec_ext.elastic.session.tracing import Tracing  # noqa: E402


class Clock:
    steps, global_step, scaling = 0, 0, False

    @staticmethod
    def median_step_seconds():
        return 0.02


class Gate:
    closed = False


class Host:
    """A trainer whose time stands still unless the test moves it."""

    def __init__(self, pool) -> None:
        self.clock, self.gate, self.pool, self.jobs = Clock(), Gate(), pool, []
        self.epoch = 7
        self.lost = threading.Event()

    def dead(self, wanted):
        return self.lost.is_set()

    def pools(self):
        return [self.pool]

    def soon(self, job):
        self.jobs.append(job)

    def where(self):
        return self.epoch, {0: "ps-0", 1: "ps-1"}


class FakeProbe:
    armed = broken = False
    arms = closed = 0

    def close(self):
        self.closed += 1

    def arm(self):
        self.armed, self.arms = True, self.arms + 1


class FakePlaced:
    is_unpacked = False

    def __init__(self, compile_seconds=0.1, optimise_seconds=0.0):
        self.probe, self.compile_seconds, self.optimise_seconds = None, compile_seconds, optimise_seconds

    def attach(self, probe):
        self.probe = probe
        return True


class FakePool:
    def __init__(self, present):
        self.present = present

    def traceable(self):
        return tracing.Traceable(self.present, None, None, None, None, None, None)


class Deciding:
    def __init__(self, monkeypatch, **placed) -> None:
        self.now, self.placed = 100.0, FakePlaced(**placed)
        self.host = Host(FakePool(self.placed))
        self.tracing = Tracing("chief-0", self.host, lambda: self.now)
        self.tracing.seconds, self.tracing.budget = 30.0, 0.001
        monkeypatch.setattr(tracing, "make_probe", lambda found, record: FakeProbe())

    def later(self, seconds: float, steps: int = 1000) -> None:
        self.now += seconds
        self.host.clock.steps += steps
        self.tracing.tick()

    def settle(self) -> FakeProbe:
        self.tracing.tick()
        self.later(60)
        for job in self.host.jobs:
            job()
        return self.placed.probe


def test_a_probe_is_compiled_when_training_is_steady_and_armed_every_thirty_seconds(monkeypatch):
    one = Deciding(monkeypatch)
    one.tracing.tick()
    one.later(1)
    assert not one.host.jobs  # not yet settled
    one.later(60)
    assert len(one.host.jobs) == 1
    one.later(2)
    assert len(one.host.jobs) == 1  # once
    one.host.jobs[0]()
    probe = one.placed.probe
    one.later(2)
    assert probe.arms == 1
    one.later(20)
    assert probe.arms == 1
    one.later(11)
    assert probe.arms == 2


@pytest.mark.parametrize(
    ("compile_seconds", "optimise_seconds", "traced"), [(1, 1, True), (6, 0, False), (1.5, 4, False)]
)
def test_large_graphs_are_not_traced_though_their_sessions_are_made_in_haste(
    monkeypatch, compile_seconds, optimise_seconds, traced
):
    """The probe is optimised as a session by itself would be."""
    one = Deciding(monkeypatch, compile_seconds=compile_seconds, optimise_seconds=optimise_seconds)
    assert (one.settle() is not None) == traced
    assert traced or "takes" in one.tracing.trouble


def test_nothing_is_compiled_or_traced_while_a_scaling_goes_on(monkeypatch):
    one = Deciding(monkeypatch)
    one.tracing.tick()
    one.host.clock.scaling = True
    for _ in range(5):
        one.later(60)
    assert not one.host.jobs
    one.host.clock.scaling, one.host.gate.closed = False, True
    one.later(60)
    one.host.gate.closed = False
    one.later(1)
    assert not one.host.jobs  # it has to be steady for a while
    one.later(60)
    assert one.host.jobs


def test_where_sizes_are_being_tried_a_change_of_any_role_puts_compiling_off(monkeypatch):
    one = Deciding(monkeypatch)
    one.tracing.delay_seconds = 30.0
    one.tracing.tick()
    one.later(20)
    one.host.epoch += 1  # another worker: the sessions stay as they are
    one.later(20)
    one.later(20)
    assert not one.host.jobs
    one.later(20)
    assert len(one.host.jobs) == 1


def test_what_is_going_to_be_packed_is_traced_afterwards_or_in_a_minute(monkeypatch):
    for packed in (True, False):
        one = Deciding(monkeypatch)
        one.placed.is_unpacked = True
        one.tracing.tick()
        one.later(20)
        one.later(20)
        assert not one.host.jobs
        one.placed.is_unpacked = not packed
        one.later(10 if packed else 30)
        assert len(one.host.jobs) == 1


def test_where_trainers_come_and_go_all_the_time_a_step_is_traced_in_the_end(monkeypatch):
    one = Deciding(monkeypatch)
    one.tracing.delay_seconds = 30.0
    one.tracing.tick()
    for _ in range(5):
        assert not one.host.jobs
        one.host.epoch += 1
        one.later(25)
    assert len(one.host.jobs) == 1


def test_another_session_has_to_settle_anew(monkeypatch):
    one = Deciding(monkeypatch)
    one.settle()
    placed = one.host.pool.present = FakePlaced()
    one.later(60)
    assert len(one.host.jobs) == 1
    one.later(60)
    assert len(one.host.jobs) == 2 and placed.probe is None


@pytest.mark.parametrize("setting", ["seconds", "budget"])
def test_zero_means_no_traces(monkeypatch, setting):
    one = Deciding(monkeypatch)
    setattr(one.tracing, setting, 0.0)
    one.tracing.tick()
    one.later(600)
    one.later(600)
    assert not one.host.jobs


def test_a_budget_that_is_taken_away_while_a_trace_waits_loses_neither_it_nor_later_ones(monkeypatch):
    """Another AIMaster's settings may say so at any moment."""
    one = Deciding(monkeypatch)
    probe = one.settle()
    one.later(1)
    one.tracing._record(Recorded(b"", {}, seconds=0.03, ordinary_seconds=0.02))
    one.tracing.budget = 0.0
    assert one.tracing.take() is not None and one.tracing.spacing_seconds == 30.0
    probe.armed = False
    one.later(600)
    assert probe.arms == 1
    one.tracing.budget = 0.001
    one.later(1)
    assert probe.arms == 2


def test_traces_become_rarer_where_they_cost_more_than_the_budget(monkeypatch):
    one = Deciding(monkeypatch)
    probe = one.settle()
    one.later(1)
    one.tracing._record(Recorded(b"", {}, seconds=0.27, ordinary_seconds=0.02))
    assert one.tracing.take() is not None
    assert 250 < one.tracing.spacing_seconds < 260  # a quarter of a second, a thousandth of the time
    probe.armed = False
    one.later(200)
    assert probe.arms == 1
    one.later(60)
    assert probe.arms == 2


def test_a_graph_that_takes_long_to_compile_is_not_traced_and_says_so(monkeypatch):
    one = Deciding(monkeypatch, compile_seconds=17.0)
    one.settle()
    assert one.placed.probe is None and "17 s" in one.tracing.trouble


def test_a_server_that_cannot_do_it_is_said_once_and_nothing_else_happens(monkeypatch):
    one = Deciding(monkeypatch)

    def refuse(*_):
        raise tf.errors.UnimplementedError(None, None, "unknown service")

    monkeypatch.setattr(tracing, "make_probe", refuse)
    one.settle()
    assert one.placed.probe is None and "unknown service" in one.tracing.trouble


def test_a_trace_tells_step_epoch_and_the_usual_time(monkeypatch):
    one = Deciding(monkeypatch)
    one.host.clock.global_step = 1234
    one.tracing._record(Recorded(b"", {}, 0.02, 0.02))
    trace = one.tracing.take()
    assert (trace.step, trace.epoch, trace.usual_seconds) == (1234, 7, 0.02)
    assert one.tracing.take() is None


def test_a_trace_that_nobody_has_read_keeps_its_place(monkeypatch):
    """The queue has one place: the training thread never waits for it."""
    one = Deciding(monkeypatch)
    for step in (1, 2, 3):
        one.host.clock.global_step = step
        one.tracing._record(Recorded(b"", {}, 0.02, 0.02))
    assert one.tracing.take().step == 1
    assert one.tracing.take() is None


def test_a_probe_that_is_compiled_on_a_ps_that_dies_at_this_moment_holds_up_nobody(monkeypatch):
    """The thread that compiles it is the one that prepares sessions for scalings; it waited for two minutes."""
    one, goes_on, probe = Deciding(monkeypatch), threading.Event(), FakeProbe()

    def hangs(found, record):
        one.host.lost.set()
        assert goes_on.wait(30)
        return probe

    monkeypatch.setattr(tracing, "make_probe", hangs)
    with pytest.raises(GivenUpError):
        one.settle()
    assert one.placed.probe is None and not one.tracing.trouble
    goes_on.set()
    for thread in threading.enumerate():
        if thread.name == "deeprec-left-behind":
            thread.join(30)
    assert probe.closed == 1
