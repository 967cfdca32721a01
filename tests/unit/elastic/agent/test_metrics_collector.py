"""Gazer in a process: what it reports, and that nothing it does can fail anything."""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace

import pytest

tf = pytest.importorskip("tensorflow")

from deeprec_ext.elastic.agent.agent import CONGESTED_MESSAGES, Agent, Identity  # noqa: E402
from deeprec_ext.elastic.agent.gate import Gate  # noqa: E402
from deeprec_ext.elastic.agent.inputs import Inputs  # noqa: E402
from deeprec_ext.elastic.agent.metrics_collector import ProcessPart, Sampler  # noqa: E402
from deeprec_ext.elastic.agent.steps import StepClock  # noqa: E402
from deeprec_ext.elastic.ps.touched import Touched  # noqa: E402
from deeprec_ext.elastic.session.probe import Recorded  # noqa: E402
from deeprec_ext.elastic.trainer import trainer_gazer  # noqa: E402
from deeprec_ext.elastic.trainer.scalars import FOLDER, WRITE_SECONDS  # noqa: E402
from deeprec_ext.elastic.trainer.trainer_gazer import TrainerGazer  # noqa: E402
from deeprec_ext.gazer.values import trace_is_sound  # noqa: E402
from deeprec_ext.proto import deeprec_ext_pb2 as pb  # noqa: E402

SECONDS = 20.0  # deadline of what should happen at once


class Outlet:
    def __init__(self) -> None:
        self.congested = False
        self.reports: queue.Queue[pb.GazerReport] = queue.Queue()

    def send(self, message: pb.AgentMessage) -> None:
        self.reports.put(message.gazer)


class Host:
    """A trainer on a clock of the test."""

    def __init__(self) -> None:
        self.now, self.epoch, self.chief, self.sessions = 1000.0, 3, True, []
        self.clock = StepClock(clock=lambda: self.now)
        self.gate = Gate(lambda: self.now)
        self.inputs = Inputs(None, threading.Event())
        self.inputs.waiting._clock = lambda: self.now

    def pools(self):
        return self.sessions

    def soon(self, job):
        job()

    def where(self):
        return self.epoch, {0: "ps-0"}

    def size(self):
        return 2, 3

    def train(self, steps: int, seconds: float = 0.1) -> None:
        for _ in range(steps):
            self.now += seconds
            self.clock.completed(self.clock.global_step + 1)


@pytest.fixture
def host():
    return Host()


@pytest.fixture
def gazer(host):
    return TrainerGazer("chief-0", host, Outlet(), lambda: host.now)


# -- the sampler


def count(report: pb.GazerReport) -> None:
    report.process.threads += 1


def fail(report: pb.GazerReport) -> None:
    raise OSError("the disk is broken")


def test_a_part_that_raises_is_off_and_said_once_and_the_others_go_on():
    sampler = Sampler(Outlet(), {"one": count, "bad": fail, "other": count})
    reports = [sampler.report() for _ in range(3)]
    assert [report.process.threads for report in reports] == [2, 2, 2]
    assert reports[0].trouble == "Gazer: bad is off in this process: OSError: the disk is broken"
    assert [report.trouble for report in reports[1:]] == ["", ""]


def test_the_interval_is_the_time_since_the_report_before():
    now = [100.0]
    sampler = Sampler(Outlet(), {}, lambda: now[0])
    assert sampler.report().interval_seconds == 0
    now[0] = 102.5
    assert sampler.report().interval_seconds == 2.5


def test_reports_come_by_themselves_and_end_with_stop():
    outlet = Outlet()
    sampler = Sampler(outlet, {"one": count})
    sampler.follow(0.01)
    assert [outlet.reports.get(timeout=SECONDS).process.threads for _ in range(3)] == [1, 1, 1]
    sampler.stop()
    assert not [thread for thread in threading.enumerate() if thread is sampler._thread]


def test_no_interval_means_no_thread_whatever_the_script_wishes():
    sampler = Sampler(Outlet(), {"one": count})
    sampler.wish = 0.01
    sampler.follow(0.0)
    assert sampler._thread is None
    sampler.stop()


def test_the_wish_of_the_script_is_the_interval():
    outlet = Outlet()
    sampler = Sampler(outlet, {"one": count})
    sampler.wish = 0.01
    sampler.follow(3600.0)
    assert outlet.reports.get(timeout=SECONDS)
    sampler.stop()


@pytest.mark.parametrize("seconds, wish, expected", [
    (2.0, None, 2.0), (2.0, 5.0, 5.0), (0.0, 5.0, 0.0), (-1.0, None, 0.0), (float("nan"), None, 0.0), (2.0, 1e-9, 0.01),
    (2.0, float("inf"), 3600.0),
])  # fmt: skip
def test_times_that_make_no_sense_harm_nothing(seconds, wish, expected):
    sampler = Sampler(Outlet(), {})
    sampler.wish, sampler._seconds = wish, seconds
    assert sampler._interval == expected


def test_nothing_is_measured_for_an_aimaster_that_does_not_listen():
    outlet, asked = Outlet(), threading.Event()
    sampler = Sampler(outlet, {"one": lambda report: asked.set()})
    outlet.congested = True
    sampler.follow(0.01)
    assert not asked.wait(0.1)
    outlet.congested = False
    assert asked.wait(SECONDS)
    sampler.stop()


def test_an_agent_that_raises_ends_the_sampler_and_nothing_else():
    class Broken(Outlet):
        def send(self, message):
            raise RuntimeError("no")

    sampler = Sampler(Broken(), {"one": count})
    sampler.follow(0.01)
    sampler._thread.join(SECONDS)
    assert not sampler._thread.is_alive()
    sampler.stop()


def test_an_agent_is_congested_when_messages_wait():
    agent = Agent(Identity("worker", 0, "", "x"), None)
    assert not agent.congested
    for _ in range(CONGESTED_MESSAGES + 1):
        agent.send(pb.AgentMessage())
    assert agent.congested


def test_an_unreadable_proc_gives_a_report_without_figures(tmp_path):
    report = pb.GazerReport()
    ProcessPart(str(tmp_path))(report)
    assert report.process == pb.ProcessSample(shared_limits=True)


def test_a_reader_that_raises_is_off_but_steps_are_reported(host, gazer, monkeypatch):
    def raises(*_):
        raise PermissionError("/proc")

    monkeypatch.setattr("deeprec_ext.elastic.agent.metrics_collector.ProcessReader", raises)
    host.train(5)
    report = gazer.sampler.report()
    assert not report.HasField("process") and "/proc" in report.trouble and report.steps.steps == 5


# -- a trainer


def test_a_trainer_reports_its_process_its_steps_and_its_waits(host, gazer):
    host.clock.examples_per_step = 64
    gazer.sampler.report()
    host.train(10)
    with host.gate.waiting:
        host.now += 3
    with host.inputs.waiting:
        host.now += 0.5
    host.sessions = [SimpleNamespace(placed=None)]
    report = gazer.sampler.report()
    assert report.interval_seconds == pytest.approx(4.5)
    assert report.process.rss_bytes > 0
    assert (report.steps.steps, report.steps.examples, report.steps.training) == (10, 640, True)
    assert report.steps.gate_wait_seconds == pytest.approx(3) and report.steps.input_wait_seconds == pytest.approx(0.5)
    assert gazer.sampler.report().steps.gate_wait_seconds == 0


def test_metadata_that_make_no_sense_end_traces_and_nothing_else(host, gazer):
    gazer.tracing._record(Recorded(b"\xff\xff\xff", {}, 0.1, 0.1))
    host.train(3)
    report = gazer.sampler.report()
    assert "traces is off" in report.trouble and report.steps.steps == 3 and not report.traces
    host.train(3)
    assert gazer.sampler.report().steps.steps == 3


def test_a_trace_is_sent_with_the_report_after_it(host, gazer):
    gazer.tracing.budget = 0.001
    gazer.tracing._record(Recorded(b"", {}, 0.1, 0.1))
    (trace,) = gazer.sampler.report().traces
    assert trace.epoch == 3 and trace_is_sound(trace, 4)
    assert not gazer.sampler.report().traces


def test_why_there_are_no_traces_is_told_once(gazer):
    gazer.tracing.trouble = "no step is traced: too large"
    assert [gazer.sampler.report().trouble for _ in range(3)] == ["no step is traced: too large", "", ""]


@pytest.mark.parametrize("wish, expected", [(None, 30.0), (0.0, 0.0), (5.0, 5.0)])
def test_the_script_may_ask_for_other_times(gazer, wish, expected):
    gazer.follow(pb.AgentSettings(trace_seconds=30.0, trace_budget=0.001))
    gazer.wish(wish, None, True)
    assert gazer.tracing.seconds == expected
    gazer.follow(pb.AgentSettings(trace_seconds=30.0, trace_budget=0.001))  # the agent has registered again
    assert gazer.tracing.seconds == expected


# -- TensorBoard


def points(directory):
    found = {}
    for path in sorted((directory / FOLDER).glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def test_the_chief_writes_figures_of_the_job(host, gazer, tmp_path):
    host.clock.examples_per_step = 64
    gazer.model_directory = str(tmp_path)
    host.train(1)
    gazer.sampler.report()
    host.train(100)
    with host.gate.waiting:
        host.now += 10
    gazer.note_pause(0.25)
    gazer.sampler.report()
    host.train(10)
    gazer.sampler.report()  # too soon for another point
    found = points(tmp_path)
    assert found["deeprec/steps_per_second"] == [(101, pytest.approx(5.0))]
    assert found["deeprec/examples_per_second"] == [(101, pytest.approx(320.0))]
    assert found["deeprec/step_seconds"] == [(101, pytest.approx(0.1))]
    assert found["deeprec/gate_wait_share"] == [(101, pytest.approx(0.5))]
    assert found["deeprec/input_wait_share"] == [(101, 0.0)]
    assert (found["deeprec/ps"], found["deeprec/workers"]) == ([(101, 2.0)], [(101, 3.0)])
    assert found["deeprec/pause_seconds"] == [(101, pytest.approx(0.25))]


@pytest.mark.parametrize("change", [
    {"chief": False}, {"model_directory": ""}, {"tensorboard": False},
], ids=lambda change: next(iter(change)))  # fmt: skip
def test_nobody_else_writes_anything(host, gazer, tmp_path, change):
    gazer.model_directory = str(tmp_path)
    for name, value in change.items():
        setattr(host if hasattr(host, name) else gazer, name, value)
    for _ in range(3):
        host.train(10, WRITE_SECONDS)
        gazer.sampler.report()
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written_costs_the_figures_only(host, gazer, tmp_path):
    (tmp_path / "file").write_text("")
    gazer.model_directory = str(tmp_path / "file" / "model")  # not even root can make that
    reports = []
    for _ in range(4):
        host.train(10, WRITE_SECONDS)
        reports.append(gazer.sampler.report())
    assert ["TensorBoard is off" in report.trouble for report in reports] == [False, True, False, False]
    assert [report.steps.steps for report in reports] == [10] * 4


def test_a_disk_that_fills_up_costs_the_figures_only(host, gazer, tmp_path, monkeypatch):
    gazer.model_directory = str(tmp_path)
    host.train(1)
    gazer.sampler.report()

    class Full:
        def __init__(self, *_):
            pass

        def write(self, *_):
            raise tf.errors.ResourceExhaustedError(None, None, "no space left")

    monkeypatch.setattr(trainer_gazer, "Scalars", Full)
    host.train(10, WRITE_SECONDS)
    assert "no space left" in gazer.sampler.report().trouble
    host.train(10, WRITE_SECONDS)
    assert gazer.sampler.report().trouble == ""


def test_a_model_restored_from_an_older_checkpoint_begins_a_new_line(host, gazer, tmp_path):
    gazer.model_directory = str(tmp_path)
    host.train(100, 1.0)
    gazer.sampler.report()
    host.clock.begin_session()
    host.train(10, 1.0)
    gazer.sampler.report()
    host.train(20, 1.0)
    gazer.sampler.report()
    assert [step for step, _ in points(tmp_path)["deeprec/ps"]] == [30]


# -- a PS


def test_rows_touched_are_those_of_one_reader_by_slot():
    touched, view = Touched(), pb.View(backup_map=[1, 0])
    touched.follow(view)
    for reader, slot, rows in [("peer", 1, 10), ("peer", 1, 5), ("peer", 0, 7), ("disk", 1, 99), ("move", 1, 99)]:
        touched.add(reader, slot, rows)
    report = pb.GazerReport()
    touched.report(report)
    assert [(one.slot, one.rows_touched) for one in report.touched] == [(0, 7), (1, 15)]
    again = pb.GazerReport()
    touched.report(again)
    assert not again.touched


def test_without_peer_backups_the_disk_backup_tells():
    touched = Touched()
    touched.follow(pb.View())
    touched.add("disk", 2, 9)
    report = pb.GazerReport()
    touched.report(report)
    assert [(one.slot, one.rows_touched) for one in report.touched] == [(2, 9)]
