"""What the AIMaster makes of Gazer's reports. The clock is moved by hand."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.metrics.collector import MetricsCollector
from deeprec_ext.aimaster.reporting.reply import status
from deeprec_ext.gazer.metrics import STEP_BUCKETS
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import credentials
from tests.unit.aimaster.collected import SLOTS, HandClock, arrive, flush, make_job, make_scalings, steps, tell, trace
from tests.unit.aimaster.world import SETTINGS, World, world

NAN = math.nan


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def job(tmp_path: Path, clock: HandClock) -> Iterator[Job]:
    job = make_job(tmp_path, clock)
    yield job
    job.close()


def test_totals_become_rates_and_zeros_are_not_known(job: Job, clock: HandClock) -> None:
    tell(job, "ps-0", process=pb.ProcessSample(cpu_seconds=10, rss_bytes=500, threads=7))
    sample = pb.ProcessSample(cpu_seconds=13, rss_bytes=600, received_bytes=4000, throttled_seconds=0)
    tell(job, "ps-0", interval_seconds=2, process=sample)
    flush(job, clock)
    assert dict(job.metrics.latest("ps-0")) == {"cpu_cores": 1.5, "rss_bytes": 600, "received_bytes_per_second": 2000}
    assert job.metrics.latest("ps-1") == {} and job.metrics.latest("nobody-1") == {}


def test_a_new_incarnation_is_not_compared_with_the_old_one(job: Job, clock: HandClock) -> None:
    tell(job, "ps-0", process=pb.ProcessSample(cpu_seconds=10, rss_bytes=1))
    arrive(job, "ps-0", "another")
    tell(job, "ps-0", interval_seconds=2, process=pb.ProcessSample(cpu_seconds=90, rss_bytes=2))
    flush(job, clock)
    assert dict(job.metrics.latest("ps-0")) == {"rss_bytes": 2}


def test_slots_cost_what_a_step_costs_times_the_steps(job: Job, clock: HandClock) -> None:
    """The worker makes 10 steps a second, the chief 5: the slot's load is the sum."""
    use = pb.SlotUse(slot=1, lookup_seconds=0.004, update_seconds=0.001, lookup_rows=100, update_rows=50)
    tell(job, "worker-0", traces=[trace(use)], **steps(10))
    half = pb.SlotUse(slot=1, lookup_seconds=0.002, lookup_rows=50)
    tell(job, "chief-0", traces=[trace(half)], **steps(5))
    flush(job, clock)
    slot = job.metrics.latest("slot-1")
    assert slot["lookup_share"] == pytest.approx(0.05) and slot["update_share"] == pytest.approx(0.01)
    assert slot["lookup_rows_per_second"] == pytest.approx(1250) and slot["update_rows_per_second"] == pytest.approx(
        500
    )
    assert (slot["bytes"], slot["rows"]) == (1000, 9)
    assert job.metrics.latest("slot-0")["lookup_share"] == 0


def test_a_trainer_without_a_trace_counts_as_those_that_have_one(job: Job, clock: HandClock) -> None:
    tell(job, "worker-0", traces=[trace(pb.SlotUse(slot=0, lookup_seconds=0.004))], **steps(10))
    tell(job, "chief-0", **steps(30))
    flush(job, clock)
    assert job.metrics.latest("slot-0")["lookup_share"] == pytest.approx(0.16)


def test_ps_are_busy_with_what_trainers_run_there_until_slots_move(job: Job, clock: HandClock) -> None:
    more = {
        "devices": [pb.DeviceTime(role="ps-1", busy_seconds=0.03), pb.DeviceTime(role="worker-0", busy_seconds=0.09)],
        "edges": [pb.EdgeUse(source="ps-1", target="worker-0", bytes=1000, seconds=0.01),
                  pb.EdgeUse(source="worker-0", target="ps-1", bytes=500, seconds=0.002)],
    }  # fmt: skip
    tell(job, "worker-0", traces=[trace(pb.SlotUse(slot=1, update_seconds=0.01), **more)], **steps(10))
    flush(job, clock)
    ps = job.metrics.latest("ps-1")
    assert (ps["busy_share"], ps["rpc_share"]) == (pytest.approx(0.3), pytest.approx(0.12))
    assert ps["rpc_bytes_per_second"] == pytest.approx(15_000)
    job.advance(slot_map=(1, 0, 1, 0))
    tell(job, "worker-0", **steps(10))
    flush(job, clock)
    assert "busy_share" not in job.metrics.latest("ps-1")
    assert job.metrics.latest("slot-1")["update_share"] == pytest.approx(0.1)  # wherever it lies
    tell(job, "worker-0", traces=[trace(epoch=job.cluster.epoch, devices=more["devices"])], **steps(10))
    flush(job, clock)
    assert job.metrics.latest("ps-1")["busy_share"] == pytest.approx(0.3)


def test_waiting_for_any_input_is_seen_in_traces_and_for_an_elastic_dataset_always(job: Job, clock: HandClock) -> None:
    tell(job, "worker-0", traces=[trace(input_seconds=0.08)], **steps(10))
    elastic = pb.StepSample(steps=20, input_wait_seconds=1.0)
    tell(job, "chief-0", traces=[trace(input_seconds=0.01)], interval_seconds=2, steps=elastic)
    flush(job, clock)
    assert job.metrics.latest("worker-0")["input_wait_share"] == pytest.approx(0.8)
    assert job.metrics.latest("chief-0")["input_wait_share"] == pytest.approx(0.5)


def test_touched_rows_of_all_ps_are_added(job: Job, clock: HandClock) -> None:
    tell(job, "ps-0", interval_seconds=2, touched=[pb.SlotRows(slot=2, rows_touched=40)])
    tell(
        job,
        "ps-1",
        interval_seconds=2,
        touched=[pb.SlotRows(slot=2, rows_touched=2), pb.SlotRows(slot=3, rows_touched=6)],
    )
    flush(job, clock)
    assert job.metrics.latest("slot-2")["touched_rows_per_second"] == 21
    assert job.metrics.latest("slot-3")["touched_rows_per_second"] == 3


def test_the_job_is_the_sum_of_its_trainers(job: Job, clock: HandClock) -> None:
    tell(job, "worker-0", **steps(10, examples=2000))
    tell(job, "chief-0", **steps(5, examples=1000))
    flush(job, clock)
    found = job.metrics.latest("job")
    assert (found["steps_per_second"], found["examples_per_second"]) == (15, 1500)
    assert (found["ps"], found["workers"]) == (2, 2)


def test_values_of_who_is_silent_or_gone_are_not_the_present_ones(job: Job, clock: HandClock) -> None:
    tell(job, "worker-0", **steps(10))
    tell(job, "chief-0", **steps(5))
    job.members.drop("chief-0", "killed")
    flush(job, clock)
    assert job.metrics.latest("chief-0") == {} and job.metrics.latest("worker-0")["steps_per_second"] == 10
    flush(job, clock, 4)
    assert job.metrics.latest("worker-0") == {} and job.metrics.latest("job")["steps_per_second"] == 0


def test_who_reports_less_often_is_not_silent_in_between(job: Job, clock: HandClock) -> None:
    tell(job, "worker-0", **steps(10, seconds=10))
    flush(job, clock, 9)
    assert job.metrics.latest("worker-0")["steps_per_second"] == 10


def test_status_shows_the_newest_values(job: Job, clock: HandClock) -> None:
    scalings = make_scalings(job)
    tell(job, "ps-1", interval_seconds=2, process=pb.ProcessSample(rss_bytes=600, memory_limit_bytes=1000))
    tell(job, "worker-0", traces=[trace(pb.SlotUse(slot=3, lookup_seconds=0.01))], **steps(10))
    flush(job, clock)
    job.dashboard = "http://127.0.0.1:1/"
    found = status(job, scalings)
    roles = {role.name: role for role in found.roles}
    assert roles["ps-1"].process.memory_limit_bytes == 1000 and roles["ps-1"].gazer["rss_bytes"] == 600
    assert roles["worker-0"].gazer["steps_per_second"] == 10 and not roles["ps-0"].HasField("process")
    assert [load.task for load in found.slot_load] == list(found.slot_map)
    assert found.slot_load[3].gazer["lookup_share"] == pytest.approx(0.1) and found.slot_load[3].bytes == 1000
    assert found.dashboard == "http://127.0.0.1:1/"


def test_series_are_asked_for_over_the_wire_and_go_on_in_the_next_aimaster(job: Job, clock: HandClock) -> None:
    for _ in range(3):
        tell(job, "worker-0", **steps(10))
        flush(job, clock)
    again = MetricsCollector(job, job.ledger)  # of the next process, on the same store
    clock.now += 2
    asyncio.run(again.flush())
    reply = asyncio.run(
        again.series_reply(pb.SeriesRequest(subjects=["job", "worker-0"], metrics=["steps_per_second"]))
    )
    lines = {line.subject: line for line in reply.lines}
    assert list(lines["job"].means) == [10, 10, 10, 0] and list(lines["worker-0"].means) == [10, 10, 10]
    assert list(lines["job"].times) == pytest.approx([1.7e9 + 1002 + 2 * number for number in range(4)])
    (line,) = asyncio.run(job.metrics.query(["job"], ["step"], until=1.7e9 + 1003))
    assert len(line.times) == 1


def test_traces_are_kept(job: Job, clock: HandClock) -> None:
    tell(job, "worker-0", traces=[trace(epoch=number) for number in range(1, 5)], **steps(10))
    flush(job, clock)
    assert [(name, kept.epoch) for _, name, kept in job.metrics.series.traces()] == [("worker-0", 1), ("worker-0", 2)]


def test_totals_only_grow_and_histograms_add_up(job: Job, clock: HandClock) -> None:
    counts = [0] * len(STEP_BUCKETS) + [3]
    tell(job, "worker-0", **steps(10, histogram=counts, histogram_seconds=99))
    tell(job, "worker-0", **steps(10, histogram=counts, histogram_seconds=1))
    tell(job, "worker-0", **steps(10, histogram=[1, 2, 3]))  # of another version
    totals = job.metrics.totals["worker-0"]
    assert (totals.steps, totals.histogram[-1], totals.histogram_seconds) == (60, 6, 100)


@pytest.mark.parametrize(
    "report",
    [
        pb.GazerReport(interval_seconds=NAN, process=pb.ProcessSample(cpu_seconds=NAN, rss_bytes=-5)),
        pb.GazerReport(interval_seconds=-1, steps=pb.StepSample(steps=-(2**63), examples=-1, median_seconds=math.inf)),
        pb.GazerReport(interval_seconds=1e300, steps=pb.StepSample(steps=2**62, histogram=[-1] * 17)),
        pb.GazerReport(interval_seconds=2, steps=pb.StepSample(steps=2**63 - 1, histogram=[1] * 100_000)),
        pb.GazerReport.FromString(
            pb.GazerReport(interval_seconds=2, touched=[pb.SlotRows(slot=9, rows_touched=1)]).SerializeToString()
            * 10**6
        ),
        pb.GazerReport(traces=[pb.Trace.FromString(pb.Trace(slots=[pb.SlotUse(slot=3)]).SerializeToString() * 10**6)]),
        pb.GazerReport(interval_seconds=2, touched=[pb.SlotRows(slot=-5), pb.SlotRows(slot=1, rows_touched=-(2**60))]),
        pb.GazerReport(traces=[pb.Trace(slots=[pb.SlotUse(slot=-1, lookup_rows=-1)])]),
        pb.GazerReport(traces=[pb.Trace(seconds=NAN)] * 1000),
        pb.GazerReport(traces=[pb.Trace(ops=[pb.OpTime(name="x" * 10**6)])]),
        pb.GazerReport(traces=[pb.Trace(epoch=2**62, devices=[pb.DeviceTime(role="ps-0" * 10**5, busy_seconds=1)])]),
    ],
    ids=[
        "nan",
        "negative",
        "huge",
        "long",
        "slots",
        "trace of slots",
        "touched",
        "slot -1",
        "nan in a trace",
        "name",
        "epoch",
    ],
)
def test_nonsense_is_bounded_or_ignored(job: Job, clock: HandClock, report: pb.GazerReport) -> None:
    tell(job, "worker-0", **steps(10))
    for name in ("worker-0", "ps-0"):
        member = job.members.get(name)
        assert member is not None
        job.metrics.receive(member, report)
    flush(job, clock)
    for subject in ("worker-0", "ps-0", "job", "slot-0", "slot-3"):
        assert all(0 <= value < 1e30 for value in job.metrics.latest(subject).values())
    assert set(job.metrics.series.subjects()) <= {
        "job",
        "aimaster",
        "worker-0",
        "ps-0",
        *(f"slot-{s}" for s in range(SLOTS)),
    }
    assert job.store.rows("SELECT count(*) FROM gazer_traces") in ([(0,)], [(1,)])
    (size,) = job.store.rows("SELECT coalesce(sum(length(trace)), 0) FROM gazer_traces")[0]
    assert size <= 64 << 10
    assert job.metrics.totals["worker-0"].steps >= 20


def test_a_part_of_gazer_that_is_off_is_a_warning_but_not_for_ever(job: Job) -> None:
    for number in range(10):
        tell(job, "ps-0", trouble=f"cgroup {number}: cannot be read" + "x" * 5000)
    warnings = [json.loads(row[5]) for row in job.store.events(0) if row[2] == "warning"]
    assert len(warnings) == 3 and all(len(warning["text"]) == 500 for warning in warnings)


def test_a_store_that_cannot_be_written_costs_samples_and_not_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real AIMaster; the disk is full for a while."""

    async def play() -> tuple[bool, list[float]]:
        world = World(tmp_path, settings=dataclasses.replace(SETTINGS, gazer_seconds=0.03))
        await world.start()
        await world.training()
        job = world.master.job
        await world.until(lambda: bool(job.metrics.latest("job")))
        original, failed = job.store.write, []

        def full(query: str, rows: object) -> None:
            if "gazer" in query:
                failed.append(query)
                raise sqlite3.OperationalError("database or disk is full")
            original(query, rows)  # type: ignore[arg-type]

        monkeypatch.setattr(job.store, "write", full)
        await world.until(lambda: len(failed) > 3)
        monkeypatch.setattr(job.store, "write", original)
        before = job.store.rows("SELECT count(*) FROM gazer_samples")[0][0]
        await world.until(lambda: job.store.rows("SELECT count(*) FROM gazer_samples")[0][0] > before + 2)
        alive = not world.master.broken.is_set()
        lines = await job.metrics.query(["job"], ["ps"])
        warnings = [row for row in job.store.events(0, 10_000) if row[2] == "warning" and "not recorded" in row[5]]
        assert len(warnings) == 1
        for agent in world.backend.everybody.values():
            agent.stop()
        await world.master.stop()
        return alive, lines[0].means

    alive, ps = asyncio.run(play())
    assert alive and ps[-1] == 2


def test_series_are_served_to_administrators(tmp_path: Path) -> None:
    async def play() -> pb.SeriesReply:
        async with world(tmp_path, settings=dataclasses.replace(SETTINGS, gazer_seconds=0.03)) as it:
            await it.training()
            worker = it.agent("worker-0")
            for number in range(1, 4):
                sample = pb.ProcessSample(cpu_seconds=number, rss_bytes=5000)
                await worker.say(gazer=pb.GazerReport(interval_seconds=2, process=sample))
            await it.until(lambda: "cpu_cores" in it.master.job.metrics.latest("worker-0"))
            async with credentials.open_aio_channel(it.address, "aimaster.job", "admin", None) as channel:
                asked = pb.SeriesRequest(subjects=["worker-0", "job"], metrics=["cpu_cores", "ps"], points=10)
                for _ in range(100):
                    reply = await rpc.AdminStub(channel).Series(asked, timeout=5)
                    if len(reply.lines) == 2:  # written down by the next flush
                        break
                    await asyncio.sleep(0.05)
            roles = {role.name: role for role in (await it.status()).roles}
            assert roles["worker-0"].gazer["cpu_cores"] == 0.5 and roles["worker-0"].process.rss_bytes == 5000
            return reply

    lines = {(line.subject, line.metric): line for line in asyncio.run(asyncio.wait_for(play(), 60)).lines}
    assert lines.keys() == {("worker-0", "cpu_cores"), ("job", "ps")}
    assert set(lines["worker-0", "cpu_cores"].means) == {0.5} and lines["job", "ps"].means[-1] == 2
