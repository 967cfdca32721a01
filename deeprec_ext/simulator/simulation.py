"""The simulation: arrivals, looks of the policy, changes, failures and reclaims, one event after the other."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deeprec_ext.autoscaler.observe.building import before_the_start
from deeprec_ext.autoscaler.observe.observed import Loss, Size
from deeprec_ext.autoscaler.policy.decide import decide
from deeprec_ext.autoscaler.policy.decision import Decision
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.simulator import execution
from deeprec_ext.simulator.luck import Luck
from deeprec_ext.simulator.observing import observe, working
from deeprec_ext.simulator.pool import Pool
from deeprec_ext.simulator.simulated_job import Account, Pod, SimulatedJob
from deeprec_ext.simulator.trace import Trace, Workload
from deeprec_ext.simulator.virtual_clock import Clock, Event

LOOKS = (26.0, 46.0, 66.0, 126.0, 306.0, 906.0)
"""Seconds after the last change or disturbance at which the policy is asked: when it has two windows, and when one of its
waits is over. A real AIMaster asks it every ten seconds; in between nothing changes but noise."""
LOOK_SECONDS = 1800.0
"""Between looks after that."""
SOON = 10.0
"""Until the look after a notice, or after a PS has run out of memory."""
KILLS_MAX = 20
"""A job one of whose PS runs out of memory so often has failed."""
SECONDS_MAX = 30 * 86400.0
"""A job that takes longer has failed: so every simulation ends."""


@dataclass
class Running:
    """A job with what the simulation keeps about it."""

    job: SimulatedJob
    decisions: list[Decision] = field(default_factory=list)
    quiet_at: float = 0.0  # time of the last change or disturbance
    change: execution.Change | None = None  # under way
    turns: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(frozen=True)
class Ended:
    """What became of a job."""

    work: Workload
    started: float
    seconds: float  # from its start to its end
    account: Account
    decisions: tuple[Decision, ...]  # with times since the start of the job; those that keep are left out
    losses: tuple[Loss, ...]
    failed: bool
    last: Size


class Simulation:
    """Args:
    policy: None: no job changes its size.
    sizes: instead of the trace's start sizes.
    watch: is called with (jobs ended, jobs in all, virtual seconds) now and then.
    """

    def __init__(
        self, trace: Trace, policy: Policy | None, seed: int = 0, sizes: Mapping[str, Size] | None = None,
        watch: Callable[[int, int, float], None] | None = None,
    ) -> None:  # fmt: skip
        self.trace, self.cluster, self._policy, self._seed = trace, trace.cluster, policy, seed
        self._sizes, self._watch = sizes or {}, watch
        self.pool, self.clock = Pool(trace.cluster), Clock()
        self.running: dict[str, Running] = {}
        self.ended: list[Ended] = []
        self._line: list[Workload] = []
        self._works = {work.name: work for work in trace.jobs}

    def run(self) -> list[Ended]:
        """To the end of all jobs; in the order in which they ended."""
        for work in self.trace.jobs:
            self.clock.at(work.arrives, Event(work.name, "arrive"))
        while (event := self.clock.next()) is not None:
            entry = self.running.get(event.job)
            if event.kind == "arrive":
                self._line.append(self._works[event.job])
                self._admit()
            elif entry is not None and (not event.turn or entry.turns[event.kind] == event.turn):
                getattr(self, f"_on_{event.kind}")(entry, event.about)
        return self.ended

    # ------------------------------------------------------------------------------------------------ coming and going

    def _admit(self) -> None:
        """Jobs start in the order in which they came, as soon as their first pods fit."""
        while self._line:
            work = self._line[0]
            number_0 = self._decision_0(work)
            size = number_0.size if number_0 is not None else self._sizes.get(work.name, work.start)
            alone = not self.running
            if not self.pool.fits(size.cpu, size.memory_bytes) and not alone:
                return
            self._line.pop(0)
            self.pool.take(size.cpu, size.memory_bytes)
            job = SimulatedJob(work, size, Luck(self._seed, work, self.cluster), self.clock.now)
            entry = self.running[work.name] = Running(job, [number_0] if number_0 is not None else [])
            self._after(entry, "started", job.luck.start_seconds(size.ps + size.trainers))

    def _decision_0(self, work: Workload) -> Decision | None:
        if self._policy is None:
            return None
        size = self._sizes.get(work.name, work.start)
        observed = before_the_start(
            size=size, limits=work.limits, objective=work.objective, deadline_seconds=work.deadline_seconds,
            backups=work.model.backups, start="",
        )  # fmt: skip
        return decide(observed, self._policy)

    def _on_started(self, entry: Running, _: Any) -> None:
        for pod in (*entry.job.ps, *entry.job.trainers):
            pod.ready = self.clock.now
        entry.job.pause_until = self.clock.now
        self._schedule_bad_luck(entry)
        self.changed(entry)
        self._after(entry, "late", SECONDS_MAX)
        work = entry.job.work
        if work.neighbour_cores:
            begins = max(0.0, entry.job.started + work.neighbour_after - self.clock.now)
            self._after(entry, "neighbour", begins, work.neighbour_cores)
            self._after(entry, "neighbour", begins + work.neighbour_seconds, 0.0)

    def _on_finish(self, entry: Running, _: Any) -> None:
        self._end(entry, failed=False)

    def _on_late(self, entry: Running, _: Any) -> None:
        self._end(entry, failed=True)

    def _end(self, entry: Running, failed: bool) -> None:
        job, now = entry.job, self.clock.now
        job.advance(now)
        self.pool.take(-job.allocated[0], -job.allocated[1])
        del self.running[job.work.name]
        self.ended.append(
            Ended(
                job.work, job.started, now - job.started, job.account, tuple(entry.decisions), tuple(job.losses), failed,
                job.size,
            )
        )  # fmt: skip
        if self._watch is not None:
            self._watch(len(self.ended), len(self.trace.jobs), now)
        self._admit()

    # ------------------------------------------------------------------------------------------------ scheduling

    def _after(self, entry: Running, kind: str, seconds: float, about: Any = None, *, only: bool = False) -> None:
        """Args: only: in place of an earlier event of this kind."""
        if only:
            entry.turns[kind] += 1
        self.clock.at(
            self.clock.now + seconds, Event(entry.job.work.name, kind, about, entry.turns[kind] if only else 0)
        )

    def changed(self, entry: Running) -> None:
        """Something about a job is not as it was: its pace, its end and the next look are worked out anew."""
        now = self.clock.now
        entry.job.refresh(now)
        self._after(entry, "finish", entry.job.seconds_left(), only=True)
        self._after(entry, "memory", entry.job.seconds_to_memory(), only=True)
        entry.quiet_at = now
        self._next_look(entry)

    def _next_look(self, entry: Running) -> None:
        if self._policy is None or entry.change is not None:
            return
        since = self.clock.now - entry.quiet_at
        wait = next((at - since for at in LOOKS if at - since > 1.0), LOOK_SECONDS)
        self._after(entry, "look", wait, only=True)

    def _schedule_bad_luck(self, entry: Running) -> None:
        job, cluster = entry.job, self.cluster
        pods = (*job.ps, *job.trainers)
        self._after(entry, "failure", job.luck.until(cluster.failures_per_hour * len(pods)), only=True)
        spot = sum(pod.spot for pod in pods)
        self._after(entry, "reclaim", job.luck.until(cluster.reclaims_per_hour * spot), only=True)

    # ------------------------------------------------------------------------------------------------ the policy

    def _on_look(self, entry: Running, _: Any) -> None:
        job, now = entry.job, self.clock.now
        if self._policy is None or entry.change is not None:
            return
        job.advance(now)
        job.measure(now)
        decision = decide(observe(job, len(entry.decisions), now), self._policy)
        if decision.action == "keep":
            self._next_look(entry)
            return
        entry.decisions.append(decision)
        change, seconds = execution.begin(job, decision, self.pool, now)
        if change.bytes:
            self.changed(entry)
        entry.change = change
        self._after(entry, "change", seconds)

    def _on_change(self, entry: Running, _: Any) -> None:
        """The pods of a change are there, or its time is over."""
        change, entry.change = entry.change, None
        if change is not None:
            if pause := execution.end(entry.job, change, self.pool, self.clock.now):
                self.pause(entry, pause)
            else:
                self.changed(entry)
            self._schedule_bad_luck(entry)

    def pause(self, entry: Running, seconds: float) -> None:
        entry.job.advance(self.clock.now)
        entry.job.pause_until = self.clock.now + seconds
        self.changed(entry)
        self._after(entry, "resume", seconds, only=True)

    def _on_resume(self, entry: Running, _: Any) -> None:
        self.changed(entry)

    # ------------------------------------------------------------------------------------------------ bad luck

    def _on_neighbour(self, entry: Running, cores: Any) -> None:
        """Another program begins or ends on the host of the job."""
        entry.job.others = cores
        self.changed(entry)

    def _on_failure(self, entry: Running, _: Any) -> None:
        pods = working([*entry.job.ps, *entry.job.trainers], self.clock.now)
        if pods:
            self._lose(entry, pods[entry.job.luck.pick(len(pods))], "killed")
        self._schedule_bad_luck(entry)

    def _on_reclaim(self, entry: Running, _: Any) -> None:
        job = entry.job
        pods = [pod for pod in (*job.ps, *job.trainers) if pod.spot and pod.name not in job.reclaimed]
        if pods:
            pod = pods[job.luck.pick(len(pods))]
            job.reclaimed[pod.name] = self.clock.now + self.cluster.reclaim_notice_seconds
            self._after(entry, "reclaimed", self.cluster.reclaim_notice_seconds, pod)
            if self._policy is not None and entry.change is None:
                self._after(entry, "look", SOON, only=True)
        self._schedule_bad_luck(entry)

    def _on_reclaimed(self, entry: Running, pod: Pod) -> None:
        """The host is taken away. Whoever was replaced before is not on it any more."""
        job = entry.job
        if any(pod is one for one in (*job.ps, *job.trainers)):
            job.reclaimed.pop(pod.name, None)
            pod.speed, pod.spot = job.luck.speed(), job.luck.spot()
            self._lose(entry, pod, "preempted")

    def _on_memory(self, entry: Running, _: Any) -> None:
        """The fullest PS reaches its limit."""
        job = entry.job
        job.advance(self.clock.now)
        kills = sum(loss.cause == "oom" for loss in job.losses)
        if kills >= KILLS_MAX:
            self._end(entry, failed=True)
        else:
            self._lose(entry, job.ps[0], "oom")
            self._after(entry, "look", SOON)

    def _lose(self, entry: Running, pod: Pod, cause: str) -> None:
        """A process dies and is started again; without a PS nobody trains until its slots are recovered."""
        job, now = entry.job, self.clock.now
        job.advance(now)
        limit = job.size.ps_memory_bytes if pod.name.startswith("ps-") else job.size.worker_memory_bytes
        job.losses.append(Loss(round(now - job.started, 3), pod.name, cause, limit))
        pod.ready = math.inf
        self._after(entry, "back", job.luck.start_seconds(1), pod)
        if pod.name.startswith("ps-"):
            self.pause(entry, self.cluster.recovery_seconds)
        else:
            self.changed(entry)

    def _on_back(self, entry: Running, pod: Pod) -> None:
        pod.ready = self.clock.now
        self.changed(entry)


def total(accounts: list[Account]) -> Account:
    """Of several jobs."""
    sums = Account()
    for account in accounts:
        for one in dataclasses.fields(Account):
            setattr(sums, one.name, getattr(sums, one.name) + getattr(account, one.name))
    return sums
