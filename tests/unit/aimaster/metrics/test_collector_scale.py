"""Gazer with a thousand roles: what is long runs in threads or in pieces, and everything stays within bounds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deeprec_ext.aimaster.dashboard import http
from deeprec_ext.aimaster.dashboard.http import Metrics
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.metrics import collector
from deeprec_ext.aimaster.reporting import exporting
from deeprec_ext.gazer import loads
from deeprec_ext.gazer.metrics import metrics_of
from deeprec_ext.gazer.series import Merge
from deeprec_ext.gazer.series_lines import VALUES_MAX
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.collected import HandClock, make_job, make_scalings, report_everything

PS, WORKERS, SLOTS = 64, 935, 128
ROLES = PS + WORKERS + 1

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, clock: HandClock) -> Iterator[Job]:
    """Everybody has reported."""
    job = make_job(Path(tmp_path_factory.mktemp("thousand")), clock, slots=SLOTS, ps=PS, workers=WORKERS)
    report_everything(job)
    yield job
    job.close()


def flush(job: Job, clock: HandClock, times: int = 1, seconds: float = 2.0) -> None:
    for _ in range(times):
        clock.now += seconds
        for seen in job.metrics._seen.values():
            seen.at = clock.now
        asyncio.run(job.metrics.flush())


def test_what_is_long_is_computed_beside_the_loop(job: Job, clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loads of PS and slots, the rows of minutes and ten minutes, and the page for Prometheus."""
    threads: dict[str, set[int]] = {}

    def watched(owner: object, name: str) -> None:
        original = getattr(owner, name)

        def call(*args: object, **more: object) -> object:
            threads.setdefault(name, set()).add(threading.get_ident())
            return original(*args, **more)

        monkeypatch.setattr(owner, name, call)

    for owner, name in ((loads, "ps_loads"), (loads, "slot_loads"), (Merge, "row"), (http, "exposition")):
        watched(owner, name)
    flush(job, clock, 5, seconds=20)  # beyond a minute
    asyncio.run(Metrics(job, make_scalings(job)).page())
    assert threads.keys() == {"ps_loads", "slot_loads", "row", "exposition"}
    assert all(threading.main_thread().ident not in found for found in threads.values())


def test_others_have_their_turn_while_the_state_is_read(job: Job, clock: HandClock) -> None:
    async def turns() -> int:
        """Turns of the loop that somebody else had."""
        reading = asyncio.ensure_future(exporting.collect(job, make_scalings(job)))
        count = 0
        while not reading.done():
            await asyncio.sleep(0)
            count += 1
        return count

    assert asyncio.run(turns()) >= ROLES // exporting.ROLES_AT_ONCE


def test_metrics_are_as_many_as_roles_slots_and_words(job: Job, clock: HandClock) -> None:
    flush(job, clock)
    page = asyncio.run(Metrics(job, make_scalings(job)).page())
    counts = {family.name: len(family.samples) for family in text_string_to_metric_families(page.decode())}
    assert counts["deeprec_steps"] == WORKERS + 1 and counts["deeprec_slot_lookup_ratio"] == SLOTS
    assert max(counts.values()) <= ROLES + 1
    assert sum(counts.values()) < 25 * ROLES and len(page) < 2_000_000


def test_a_sample_is_one_row_of_a_bounded_size(job: Job, clock: HandClock) -> None:
    flush(job, clock)
    (size,) = job.store.rows("SELECT max(length(subjects) + length(samples)) FROM gazer_samples")[0]
    assert size <= 4 * sum(1 + len(metrics_of(name)) for name in job.metrics.series.subjects())


def test_a_careless_question_is_answered_within_bounds(job: Job, clock: HandClock) -> None:
    flush(job, clock, 3)
    reply = asyncio.run(job.metrics.series_reply(pb.SeriesRequest(points=100_000)))
    assert len(reply.lines) > 10 * ROLES
    assert sum(len(line.times) for line in reply.lines) <= VALUES_MAX
    assert {line.subject for line in reply.lines} >= {"job", "ps-0", "worker-934", "slot-127"}


def test_traces_that_wait_are_bounded(job: Job, clock: HandClock) -> None:
    for _ in range(3):
        report_everything(job)
    assert len(job.metrics._traces) == collector.TRACES_WAITING_MAX
    before = job.store.rows("SELECT max(id) FROM gazer_traces")[0][0] or 0
    flush(job, clock)
    assert job.store.rows("SELECT max(id) FROM gazer_traces")[0][0] - before == collector.TRACES_WRITTEN_AT_ONCE
