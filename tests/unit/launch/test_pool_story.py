"""Jobs in one pool from their coming to their end, decided by the arbiter itself. Time is told; an AIMaster is a few lines."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from deeprec_ext.arbiter.observed import Allowance, Bid, Count, Worth
from deeprec_ext.launch.pool.leading import Leader
from deeprec_ext.launch.pool.membership import TURN_SECONDS, Membership
from deeprec_ext.launch.pool.places import PoolDirectory, put
from deeprec_ext.launch.resources import Resources
from tests.unit.launch.test_pool import Clock, an_entry

CHANGE_SECONDS = 3.0
"""Until a process has come, or has gone."""


class Job:
    """Launcher and AIMaster of one job: does what it is allowed, after a while."""

    def __init__(
        self, pool: PoolDirectory, clock: Clock, name: str, workers: int, priority: int = 0, cores: float = 0.0
    ) -> None:
        self.pool, self.clock, self.name, self.wanted = pool, clock, name, workers
        entry = an_entry(name, workers=workers, priority=priority, now=clock())
        self.member = Membership(pool, entry, leader=Leader(pool), now=clock)
        self.began: float | None = None
        self.ps = self.workers = 0
        self._going: tuple[float, int] | None = None  # when it will have come to how many workers
        self.member.join(cores)

    def rate(self, workers: int) -> float:
        return 10.0 * (1 + workers)

    @property
    def cores(self) -> int:
        return 0 if self.began is None else 1 + self.ps + self.workers

    def turn(self) -> None:
        self.member.turn()
        may = self.member.allowance
        if may is None:
            return
        if self.began is None:
            if may.runs:
                self.member.start(may)
                self.began, self.ps, self.workers = self.clock(), may.ps, min(may.workers, self.wanted)
            return
        aim = min(may.workers, self.wanted)
        if self._going is not None and self.clock() >= self._going[0]:
            self.workers, self._going = self._going[1], None
        if self._going is None and aim != self.workers:
            self._going = self.clock() + CHANGE_SECONDS, aim
            self.workers = max(aim, self.workers)  # who comes takes its core at once, who goes has it until it is gone
        there = [("chief", Resources()), *[("ps", Resources())] * self.ps, *[("worker", Resources())] * self.workers]
        self.member.tell(there, 0.2)
        size = Count(self.ps, self.workers)
        worth = tuple(Worth(1, count, self.rate(count)) for count in range(5))
        bid = Bid(
            self.clock(), size, Count(1, self.wanted), worth, left=1e6, change_seconds=3.0, pause_seconds=0.1, training=True,
            busy=self._going is not None,
        )  # fmt: skip
        put(self.pool.bid(self.name), dataclasses.asdict(bid))


class Machine:
    def __init__(self, path: Path, cores: float) -> None:
        self.pool, self.clock, self.cores = PoolDirectory(path / "pools" / "ads"), Clock(), cores
        self.jobs: list[Job] = []
        self.most = 0

    def comes(self, name: str, workers: int, priority: int = 0) -> Job:
        self.jobs.append(Job(self.pool, self.clock, name, workers, priority, self.cores if not self.jobs else 0.0))
        return self.jobs[-1]

    def ends(self, job: Job) -> None:
        self.jobs.remove(job)
        job.member.leave()

    def passes(self, seconds: float) -> None:
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.clock.now += TURN_SECONDS
            for job in list(self.jobs):
                job.turn()
            self.most = max(self.most, sum(job.cores for job in self.jobs))

    def until(self, condition: object, seconds: float) -> float:
        """How long it took."""
        began = self.clock.now
        while not condition():  # type: ignore[operator]
            if self.clock.now - began > seconds:
                pytest.fail(f"not within {seconds:g} s: {[(job.name, job.cores, self.told(job)) for job in self.jobs]}")
            self.passes(TURN_SECONDS)
        return self.clock.now - began

    @staticmethod
    def told(job: Job) -> Allowance | None:
        return job.member.allowance


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, 4.0)


def test_a_job_gives_way_to_one_of_higher_priority_and_takes_back_what_falls_idle(machine: Machine) -> None:
    low = machine.comes("/runs/low", 2)
    assert machine.until(lambda: low.workers == 2, 5) <= 3
    machine.passes(30)
    high = machine.comes("/runs/high", 0, priority=10)
    waited = machine.until(lambda: high.began is not None, 10)
    assert waited <= 2 * CHANGE_SECONDS and (low.workers, high.cores) == (0, 2)
    machine.passes(20)
    assert low.cores + high.cores == 4
    machine.ends(high)
    assert machine.until(lambda: low.workers == 2, 15) <= 12
    assert machine.most == 4, "never more than there is"


def test_what_was_given_comes_back_where_a_model_sees_no_gain_in_it_too(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured on a machine that others had filled, all sizes are alike."""
    monkeypatch.setattr(Job, "rate", lambda self, workers: 50.0)
    low = machine.comes("/runs/low", 2)
    machine.until(lambda: low.workers == 2, 5)
    high = machine.comes("/runs/high", 0, priority=10)
    machine.until(lambda: high.began is not None, 10)
    machine.ends(high)
    machine.until(lambda: low.workers == 2, 25)


def test_of_two_equals_each_has_its_part(machine: Machine) -> None:
    machine.cores = 8.0
    one = machine.comes("/runs/one", 4)
    machine.until(lambda: one.workers == 4, 10)
    other = machine.comes("/runs/other", 4)
    machine.until(lambda: other.began is not None, 15)
    machine.passes(90)
    assert {one.workers, other.workers} == {2} and machine.most <= 8


def test_nobody_who_runs_is_ended_for_whomever_and_who_waits_starts_when_it_may(machine: Machine) -> None:
    machine.cores = 3.0
    low = machine.comes("/runs/low", 1)
    machine.until(lambda: low.workers == 1, 5)
    high = machine.comes("/runs/high", 1, priority=1000)
    machine.passes(60)
    assert low.cores == 3 and high.began is None, "nor does it give back what would help nobody"
    told = machine.told(high)
    assert told is not None and not told.runs and "2.0 cores" in told.why
    machine.ends(low)
    machine.until(lambda: high.workers == 1, 5)


def test_a_pool_whose_leader_goes_in_the_middle_of_a_change_goes_on(machine: Machine) -> None:
    first = machine.comes("/runs/first", 0)
    low = machine.comes("/runs/low", 2)
    machine.until(lambda: first.began is not None and low.began is not None, 5)
    high = machine.comes("/runs/high", 0, priority=5)
    machine.passes(1.0)
    assert first.member._leader.leads
    machine.ends(first)
    machine.until(lambda: high.began is not None, 10)
    machine.passes(30)
    assert (low.cores, high.cores) == (2, 2) and machine.most <= 4
