"""Hosts, from what their processes tell. Numbers of cores are written as they are measured, per second."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.metrics.hosts import HostUse, OnHost, hosts_of
from deeprec_ext.gazer.values import host_values
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.aimaster.collected import HandClock, flush, make_job, tell


def on(
    host: str = "a", *, ps: bool = False, used: float = 0.5, processors: Iterable[int] = (), **told: float
) -> OnHost:
    return OnHost(host, ps, used, told, frozenset(processors))


def kept_to(processors: Iterable[int], used: float, busy: float) -> OnHost:
    numbers = frozenset(processors)
    return on(used=used, processors=numbers, cores=len(numbers), busy_cores=busy)


def test_what_the_job_does_not_use_others_do():
    found = hosts_of([on(ps=True, used=0.2, cores=2, busy_cores=1.7), on(used=0.5, cores=2, busy_cores=1.7)])
    assert found == {"a": HostUse(cores=2, job_cores=0.7, others_cores=pytest.approx(1.0), ps=1, trainers=1)}


def test_each_host_is_counted_by_itself():
    found = hosts_of([on("a", cores=2, busy_cores=0.5), on("b", used=1.0, cores=8, busy_cores=7.0)])
    assert (found["a"].others_cores, found["b"].others_cores, found["b"].cores) == (0, 6, 8)


def test_processes_that_are_kept_to_processors_of_their_own_have_those_of_all_of_them():
    """Static CPU management of a node gives each container its own; `taskset` does it by hand."""
    found = hosts_of([kept_to({0, 1}, 1.5, 1.5), kept_to({2}, 0.5, 1.0), kept_to({2}, 0.5, 1.0)])["a"]
    assert (found.cores, found.job_cores, found.others_cores) == (3, 2.5, 0)


def test_processors_that_several_may_use_count_once():
    within = hosts_of([kept_to(range(4), 1.0, 2.0), kept_to({0, 1}, 0.5, 1.0), kept_to({0, 1}, 0.0, 1.0)])["a"]
    assert (within.cores, within.others_cores) == (4, 0.5)
    overlapping = hosts_of([kept_to({0, 1}, 0.5, 1.0), kept_to({1, 2}, 0.5, 1.0)])["a"]
    assert (overlapping.cores, overlapping.others_cores) == (3, 0.5)


def test_where_one_does_not_say_to_which_it_is_kept_the_most_of_them_are_all():
    found = hosts_of([kept_to({0, 1}, 0.5, 1.0), on(used=0.5, cores=1, busy_cores=1.0)])["a"]
    assert (found.cores, found.others_cores) == (2, 0)


def test_processes_that_are_measured_a_moment_apart_never_make_others_negative():
    assert hosts_of([on(used=1.9, cores=2, busy_cores=1.8)])["a"].others_cores == 0


def test_who_tells_nothing_of_its_host_is_of_the_job_all_the_same():
    """What it uses is known by its heartbeats; nothing of a host is known of which nobody tells."""
    found = hosts_of([on(used=0.5, cores=2, busy_cores=1.5), on(used=0.7)])["a"]
    assert (found.cores, found.job_cores, found.others_cores) == (2, 1.2, pytest.approx(0.3))
    assert hosts_of([on(used=0.5), on(used=0.7)]) == {}


def test_a_quota_counts_where_it_leaves_less_than_the_machine():
    quota = {"cores": 64.0, "busy_cores": 30.0, "quota_cores": 2.0, "quota_busy_cores": 1.2}
    found = hosts_of([on(used=0.5, **quota), on(used=0.6, **quota)])["a"]
    assert (found.cores, found.others_cores) == (2.0, pytest.approx(0.1))
    crowded = {**quota, "busy_cores": 63.5}
    found = hosts_of([on(used=0.5, **crowded), on(used=0.6, **crowded)])["a"]
    assert (found.cores, found.others_cores) == (64.0, pytest.approx(62.4))


def test_quotas_of_several_containers_on_one_machine_are_not_the_quota_of_all():
    each = {"cores": 8.0, "busy_cores": 3.0, "quota_cores": 2.0, "quota_busy_cores": 1.5}
    assert hosts_of([on(used=1.5, **each), on(used=1.5, **each)])["a"].cores == 8.0


def test_the_quota_of_the_one_that_does_nearly_all_is_not_the_quota_of_all():
    """A trainer that is busy and a PS that is not, in a container each."""
    machine = {"cores": 64.0, "busy_cores": 3.0, "quota_cores": 2.0}
    found = hosts_of([on(used=1.9, quota_busy_cores=1.9, **machine), on(used=0.2, quota_busy_cores=0.2, **machine)])[
        "a"
    ]
    assert (found.cores, found.job_cores) == (64.0, pytest.approx(2.1))


def test_totals_become_rates_and_what_is_no_number_is_not_known():
    before = pb.HostSample(cores=2, busy_seconds=100, quota_cores=1, quota_seconds=4)
    after = pb.HostSample(cores=2, busy_seconds=103, quota_cores=1, quota_seconds=4.5)
    assert host_values(after, before, 2.0) == {
        "cores": 2, "busy_cores": 1.5, "quota_cores": 1, "quota_busy_cores": 0.25
    }  # fmt: skip
    assert host_values(after, None, 0.0) == {"cores": 2, "quota_cores": 1}
    assert host_values(before, after, 2.0) == {"cores": 2, "quota_cores": 1}  # the machine has booted
    assert host_values(pb.HostSample(cores=float("nan"), busy_seconds=1), before, 2.0) == {}


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def job(tmp_path: Path, clock: HandClock) -> Iterator[Job]:
    job = make_job(tmp_path, clock)
    yield job
    job.close()


def test_the_collector_keeps_hosts_and_writes_their_series(job: Job, clock: HandClock) -> None:
    for member in job.members:
        member.machine = "boot id"
    for at in (0, 1):
        for name, used in (("ps-0", 0.25), ("ps-1", 0.25), ("chief-0", 0.5), ("worker-0", 0.5)):
            sample = pb.ProcessSample(cpu_seconds=10 + 2 * at * used, rss_bytes=1)
            host = pb.HostSample(cores=1, busy_seconds=500 + 1.8 * at, processors=[int(name.startswith("ps"))])
            tell(job, name, interval_seconds=2.0 * at, process=sample, host=host)
    flush(job, clock)
    assert job.metrics.hosts == {"host-0": HostUse(2, pytest.approx(1.5), pytest.approx(0.3), ps=2, trainers=2)}
    assert dict(job.metrics.latest("host-0")) == {
        "cores": 2, "job_cores": pytest.approx(1.5), "others_cores": pytest.approx(0.3)
    }  # fmt: skip
    assert "host-0" in job.metrics.series.subjects()
