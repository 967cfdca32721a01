"""What Prometheus reads: every metric of the table, by its conventions, with few labels, and counters that only grow."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.metrics.collector import MetricsCollector
from deeprec_ext.aimaster.metrics.tally import CAUSES, KINDS, OTHER, OUTCOMES, ROLES, Tally
from deeprec_ext.aimaster.reporting.exporting import collect
from deeprec_ext.gazer.metrics import PAUSE_BUCKETS
from deeprec_ext.gazer.prometheus import COUNTER, EXPORTED, GAUGE, HISTOGRAM, exposition
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.collected import (
    HandClock,
    arrive,
    declare_data,
    flush,
    make_events,
    make_job,
    make_scalings,
    report_everything,
    steps,
    tell,
)  # fmt: skip


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def job(tmp_path: Path, clock: HandClock) -> Iterator[Job]:
    job = make_job(tmp_path, clock)
    yield job
    job.close()


async def page(job: Job) -> bytes:
    return exposition(await collect(job, make_scalings(job)))


def scrape(job: Job) -> dict[str, Metric]:
    """By the name in the table: the parser calls a counter's family by its name without `_total`."""
    families = text_string_to_metric_families(asyncio.run(page(job)).decode())
    return {family.name + ("_total" if family.type == "counter" else ""): family for family in families}


def value(job: Job, name: str, **labels: str) -> float:
    found = [sample.value for family in scrape(job).values() for sample in family.samples
             if sample.name == name and labels.items() <= sample.labels.items()]  # fmt: skip
    assert len(found) == 1, f"{name} {labels}: {found}"
    return found[0]


def everything(job: Job, clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of which each metric is known."""
    asyncio.run(_declare(job))
    report_everything(job)
    make_events(job)
    monkeypatch.setattr(
        job.peer_backups, "status", lambda message: message.MergeFrom(type(message)(peer=True, oldest_seconds=2))
    )
    monkeypatch.setattr(
        job.disk, "status", lambda message: message.MergeFrom(type(message)(disk_cut=3, disk_seconds=9))
    )
    job.members.last_step = 1000
    flush(job, clock)


async def _declare(job: Job) -> None:
    declare_data(job)


def test_every_metric_of_the_table_is_exported_and_no_other(
    job: Job, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything(job, clock, monkeypatch)
    found = scrape(job)
    assert found.keys() == {exported.name for exported in EXPORTED}
    for exported in EXPORTED:
        family = found[exported.name]
        assert family.type == exported.kind and family.documentation == exported.help
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        assert labels == set(exported.labels), exported.name


@pytest.mark.parametrize("exported", EXPORTED, ids=lambda exported: exported.name)
def test_names_keep_to_the_conventions_of_prometheus(exported: SimpleNamespace) -> None:
    assert re.fullmatch(r"deeprec(_[a-z]+)+", exported.name) and exported.help and exported.help[0] != " "
    assert exported.kind in (GAUGE, COUNTER, HISTOGRAM)
    assert (exported.kind == COUNTER) == exported.name.endswith("_total")
    assert not re.search(r"_(milliseconds|kilobytes|megabytes|percent|minutes|count|sum|bucket)$", exported.name)
    assert bool(exported.buckets) == (exported.kind == HISTOGRAM) and list(exported.buckets) == sorted(exported.buckets)
    assert all(
        re.fullmatch(r"[a-z]+(_[a-z]+)*", label) and label not in ("le", "job", "instance") for label in exported.labels
    )
    if exported.kind == HISTOGRAM:
        assert exported.name.endswith("_seconds")
    for word in ("seconds", "bytes"):  # a unit is the last word, before `_total` and `_per_second`
        if word in exported.name.split("_"):
            assert re.search(rf"_{word}(_total|_per_second)?$", exported.name)


def test_names_are_in_the_table_once() -> None:
    names = [exported.name for exported in EXPORTED]
    assert len(names) == len(set(names))


def test_the_page_is_what_prometheus_accepts(job: Job, clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    everything(job, clock, monkeypatch)
    for family in scrape(job).values():
        seen = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
        assert len(seen) == len(set(seen)), family.name
        if family.type == "histogram":
            _check_histogram(family)
        if family.type == "counter":
            assert all(sample.value >= 0 for sample in family.samples)


def _check_histogram(family: Metric) -> None:
    by_labels: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for sample in family.samples:
        labels = tuple(sorted((name, text) for name, text in sample.labels.items() if name != "le"))
        by_labels.setdefault(labels, {})[sample.name + sample.labels.get("le", "")] = sample.value
    for found in by_labels.values():
        buckets = [number for name, number in found.items() if "_bucket" in name]
        assert buckets == sorted(buckets) and found[f"{family.name}_bucket+Inf"] == found[f"{family.name}_count"]
        assert f"{family.name}_sum" in found


def test_labels_take_few_values_whatever_happens(job: Job, clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    everything(job, clock, monkeypatch)
    for number in range(300):
        job.event("failure", f"{'x' * 50}-{number}", cause=f"cause {number} of many")
        job.event("scaling_ended", kind=f"kind {number}", target=f"t{number}", outcome=["no", "word"])
        job.event("recovered", f"role{number}-1", seconds=float(number), steps_lost=0)
    series: dict[str, int] = {}
    values: dict[str, set[str]] = {}
    for name, family in scrape(job).items():
        series[name] = len(family.samples)
        for sample in family.samples:
            for label, text in sample.labels.items():
                values.setdefault(label, set()).add(text)
    assert values["role"] <= {*ROLES, OTHER, "aimaster"} and values["cause"] <= {*CAUSES, OTHER}
    assert values["kind"] <= {*KINDS, OTHER} and values["outcome"] <= {*OUTCOMES, OTHER}
    assert values["name"] == {"ps-0", "ps-1", "chief-0", "worker-0", "aimaster"}
    assert values["slot"] == {str(slot) for slot in range(job.spec.slots)}
    histograms = {exported.name: len(exported.buckets) + 3 for exported in EXPORTED if exported.kind == HISTOGRAM}
    for name, count in series.items():
        assert count <= 6 * histograms.get(name, 10), name


def test_of_who_is_gone_only_what_was_counted_is_shown(job: Job, clock: HandClock) -> None:
    tell(job, "worker-0", **steps(10))
    job.members.drop("worker-0", "scaled away")
    job.members.update("worker-0", wanted=False, state="exited")
    flush(job, clock)
    samples = [sample for family in scrape(job).values() for sample in family.samples]
    found = {sample.name for sample in samples if "worker-0" in sample.labels.values()}
    assert found == {"deeprec_steps_total", "deeprec_gate_wait_seconds_total", "deeprec_input_wait_seconds_total"}


def test_counters_of_what_happened_go_on_in_the_next_aimaster(tmp_path: Path, clock: HandClock) -> None:
    job = make_job(tmp_path, clock)
    make_events(job)
    flush(job, clock)
    make_events(job)  # after the last flush: counted again from the log, not lost
    before = scrape(job)
    job.close()
    again = asyncio.run(_made(tmp_path, clock))
    make_events(again)
    after = scrape(again)
    again.close()
    for name in ("deeprec_scalings_total", "deeprec_failures_total", "deeprec_lost_steps_total", "deeprec_warnings_total",
                 "deeprec_scaling_pause_seconds", "deeprec_recovery_seconds", "deeprec_scaling_moved_bytes_total"):  # fmt: skip
        old = {(sample.name, str(sample.labels)): sample.value for sample in before[name].samples}
        new = {(sample.name, str(sample.labels)): sample.value for sample in after[name].samples}
        assert new.keys() == old.keys()
        for key, number in new.items():
            assert number == pytest.approx(1.5 * old[key]), key


async def _made(workdir: Path, clock: HandClock) -> Job:
    """In Python 3.9 a job wants a loop to be made in."""
    return make_job(workdir, clock)


def test_records_trained_again_after_a_restore_count_again(
    job: Job, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pb.DataStatus(purpose="train", records=5000, repeated=90, repeated_at_least=30)
    monkeypatch.setattr(job.ledger, "status", lambda: [data])
    seen = []
    for data.trained in (1000, 1200, 700, 900):  # a restore took the ledger back to 700
        flush(job, clock)
        seen.append(value(job, "deeprec_trained_records_total"))
    assert seen == [0, 200, 200, 400]
    assert value(job, "deeprec_data_records", state="trained") == 900
    assert value(job, "deeprec_data_records", state="repeated") == 90
    assert value(job, "deeprec_data_records", state="repeated_at_least") == 30


def test_the_step_histogram_is_of_all_trainers_of_a_kind(
    job: Job, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrive(job, "worker-1")
    everything(job, clock, monkeypatch)
    assert value(job, "deeprec_step_seconds_count", role="worker") == 32
    assert value(job, "deeprec_step_seconds_sum", role="worker") == 8
    assert value(job, "deeprec_step_seconds_bucket", role="worker", le="0.016") == 0
    assert value(job, "deeprec_step_seconds_bucket", role="worker", le="0.032") == 28
    assert value(job, "deeprec_step_seconds_count", role="chief") == 16


def test_pauses_and_recoveries_are_observed_once_each(job: Job) -> None:
    make_events(job)
    assert value(job, "deeprec_scaling_pause_seconds_bucket", le="0.1") == 1
    assert value(job, "deeprec_scaling_pause_seconds_bucket", le="0.5") == 2
    assert value(job, "deeprec_scaling_pause_seconds_count") == 3
    assert value(job, "deeprec_scaling_pause_seconds_sum") == pytest.approx(100.47)
    assert value(job, "deeprec_recovery_seconds_count", role="ps") == 1
    assert value(job, "deeprec_failures_total", role="ps", cause="killed") == 1
    assert value(job, "deeprec_scalings_total", kind="scale-up", outcome="committed", role="ps") == 1


def test_a_tally_of_other_buckets_begins_anew_from_the_log(job: Job, clock: HandClock) -> None:
    make_events(job)
    stored = Tally(after=10**6).to_dict()
    stored["pauses"]["counts"] = [5, 5]
    job.store.put(gazer_tally=stored)
    again = MetricsCollector(job, job.ledger)
    again.tally.catch_up(job.store)
    assert sum(again.tally.pauses.counts) == 3 and len(again.tally.pauses.counts) == len(PAUSE_BUCKETS) + 1
