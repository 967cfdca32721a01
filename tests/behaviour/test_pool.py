"""Real jobs that share the cores of one pool: without PS and TensorFlow, whose processes are there at once, and with."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from deeprec_ext.launch.pool.places import PoolDirectory
from deeprec_ext.launch.pool.seen import look
from tests.behaviour import test_allreduce as in_step
from tests.behaviour import test_data_ledger as with_ps
from tests.behaviour.jobs import LONG, RealJob

pytestmark = pytest.mark.slow

POOL = ("--pool", "ads", "--pool-cores", "4", "--backup", "off")


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PoolDirectory:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return PoolDirectory(tmp_path / "state" / "deeprec-ext" / "pools" / "ads")


def cores(pool: PoolDirectory) -> dict[str, int]:
    """That the processes of each job count for, by the name of its run directory."""
    return {Path(one.job).name: one.chief + one.ps + one.workers for one in look(pool, time.time()).entries}


def gives_way(pool: PoolDirectory, low: RealJob, high: RealJob) -> None:
    """The low one has all four cores until the high one gets two of them, and has four again after its end."""
    began, most = time.monotonic(), 0
    while cores(pool).get("run1", 0) == 0:
        most = max(most, sum(cores(pool).values()))
        high.until(lambda: True, "its launcher")  # fails if that has ended
        assert time.monotonic() - began < LONG, high.output
        time.sleep(0.02)
    assert cores(pool) == {"run0": 2, "run1": 2} and most == 4
    assert high.end() == 0, high.tails()
    low.until(lambda: cores(pool) == {"run0": 4}, "what it gave")
    low.until(lambda: len(low.events("scaling_ended")) == 2, "the end of the change")
    assert look(pool, time.time()).bids


def check_scalings(low: RealJob, sizes: list[int]) -> None:
    ended = [one for one in low.events("scaling_ended") if one["outcome"] == "committed"]
    assert [(one["to_count"], one["requested_by"]) for one in ended] == [(size, "arbiter") for size in sizes]


@pytest.mark.timeout(200)
def test_a_job_gives_way_to_another_and_takes_back_what_it_gave(begin, pool, tmp_path):
    hurry = tmp_path / "hurry"
    slowly = ("--records", "80000", "--epochs", "1", "--seconds", "0.1", "--hurry", str(hurry))
    low = begin(*POOL, "--strategy", "allreduce", "--workers", "3", command=(*in_step.COUNTED, *slowly))
    low.until(lambda: in_step.step(low) > 5, "first steps")
    in_step.wait_together(low, "chief-0", "worker-0", "worker-1", "worker-2", count=2, batch=24)
    assert cores(pool) == {"run0": 4}
    quickly = ("--records", "2400", "--epochs", "1")
    flags = ("--strategy", "allreduce", "--workers", "1", "--min-workers", "1", "--priority", "10")
    high = begin(*POOL, *flags, command=(*in_step.COUNTED, *quickly))
    gives_way(pool, low, high)
    in_step.wait_together(low, "chief-0", "worker-0", "worker-1", "worker-2", count=2, batch=24)
    hurry.touch()
    assert low.end() == 0, low.output
    check_scalings(low, [1, 3])
    for job, records in ((low, 80_000), (high, 2400)):
        in_step.check(job, every=False)
        assert (in_step.counts(job)[0] == 1).all(), "the chief's; who comes after the last record has none"
        data = job.summary()["data"]
        assert data["trained"] == records and data["repeated"] == data["lost"] == 0, data
    assert look(pool, time.time()).entries == ()


@pytest.mark.timeout(200)
def test_while_the_launcher_that_leads_is_stopped_another_job_gives_way_and_starts(begin, pool, tmp_path):
    hurry = tmp_path / "hurry"
    slowly = ("--records", "80000", "--epochs", "1", "--seconds", "0.1", "--hurry", str(hurry))
    flags = ("--strategy", "allreduce", "--workers")
    leads = begin(*POOL, *flags, "0", command=(*in_step.COUNTED, *slowly))
    leads.until(lambda: in_step.step(leads) > 1, "first steps")
    low = begin(*POOL, *flags, "2", command=(*in_step.COUNTED, *slowly))
    low.until(lambda: cores(pool) == {"run0": 1, "run1": 3} and in_step.step(low) > 1, "all four cores")
    assert int(pool.lock(pool.term()).read_text()) == leads.process.pid
    term = pool.term()
    leads.process.send_signal(signal.SIGSTOP)
    try:
        quickly = ("--records", "2400", "--epochs", "1")
        high = begin(*POOL, *flags, "0", "--priority", "10", command=(*in_step.COUNTED, *quickly))
        high.until(lambda: cores(pool).get("run2"), "its start", every=0.02)
        assert pool.term() > term and cores(pool)["run1"] == 2
        assert high.end() == 0, high.tails()
    finally:
        leads.process.send_signal(signal.SIGCONT)
    low.until(lambda: cores(pool) == {"run0": 1, "run1": 3}, "what it gave")
    hurry.touch()
    assert leads.end() == 0 and low.end() == 0, (leads.output, low.output)
    assert look(pool, time.time()).entries == ()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_job_with_ps_gives_way_to_another_and_takes_back_what_it_gave(begin, pool):
    slowly = ("--records", "40000", "--epochs", "2", "--sleep", "0.05")
    low = begin(*POOL, "--ps", "1", "--workers", "2", command=(*with_ps.SCRIPT, *slowly))
    with_ps.until_trained(low, 1000)
    low.until(lambda: cores(pool) == {"run0": 4}, "all four cores")
    flags = ("--ps", "1", "--workers", "0", "--priority", "10")
    high = begin(*POOL, *flags, command=(*with_ps.SCRIPT, "--records", "4000", "--sleep", "0.02"))
    gives_way(pool, low, high)
    with_ps.finish(low)
    check_scalings(low, [0, 2])
    for job, records, epochs in ((high, 4000, 1), (low, 40_000, 2)):
        times = with_ps.check(job, records, epochs)
        assert times.max() == epochs and with_ps.data(job)["repeated"] == 0
