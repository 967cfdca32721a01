"""Ways to share a cluster: gang scheduling of static sizes, every job for itself, and by the arbiter.

Gang: in the order of priority, then arrival; all pods of the written size at once, or none. Whoever is behind the first that
finds no room is started if that one does not start later for it (EASY backfilling: Lifka, "The ANL/IBM SP scheduling system",
1995), with run times known exactly, as no user knows them. Pods of a job that runs are started anew where they are lost; a job
whose PS, chief or (without PS) any worker is lost goes back to its last checkpoint, as with stock TensorFlow; other workers of
a job with PS are missed and come back. Only serving preempts.

Alone: every job is elastic and autoscales for itself; its pods wait by priority, pods of higher priority preempt others.
It begins with the size as written, trains with what has room, and gives up growth that finds none in five minutes.

Arbitrated: every job is elastic and has what the arbiter allows. Nobody preempts: jobs give way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from deeprec_ext.arbiter import observed
from deeprec_ext.arbiter.observed import Bid, Count, Decision
from deeprec_ext.simulator.cluster.cluster_job import ClusterJob
from deeprec_ext.simulator.cluster.engine import SERVING, Cluster
from deeprec_ext.simulator.cluster.machines import Pod

ACQUIRE_SECONDS = 300.0
"""Growth whose pods find no room in this time is given up (the operator's `acquire` limit)."""
TRIED_AGAIN_SECONDS = 1800.0
"""After which it is tried again."""


def order(job: ClusterJob) -> tuple[int, float, str]:
    return (-job.asked.priority, job.asked.arrives, job.asked.name)


class Gang:
    gang = True

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.waiting: list[ClusterJob] = []

    def arrived(self, job: ClusterJob) -> None:
        self.waiting.append(job)
        self.waiting.sort(key=order)

    def looked(self, job: ClusterJob) -> None:
        """It has no AIMaster."""

    def preempts(self, pod: Pod) -> bool:
        return pod.role == SERVING

    def tick(self, about: Any) -> None:
        """There are none."""

    def room(self) -> None:
        cluster, now = self.cluster, self.cluster.now
        until, extra = math.inf, math.inf  # the first that waits is to start then, with so many cores to spare
        for job in list(self.waiting):
            cores = job.asked.cores(job.asked.written, other=False)
            if until < math.inf and now + self._seconds(job) > until and cores > extra:
                continue
            free = cluster.machines.capacity - cluster.machines.used
            if cores <= free and cluster.start_together(job, job.asked.written):
                self.waiting.remove(job)
                if until < math.inf and now + self._seconds(job) > until:
                    extra -= cores
            elif until == math.inf:
                until, extra = self._reserved(cores)

    def _seconds(self, job: ClusterJob) -> float:
        written = job.asked.written
        return 60.0 + job.asked.examples / job.asked.rate(written.ps, written.workers + 1)

    def _reserved(self, cores: float) -> tuple[float, float]:
        """(when there will be so many cores, how many more there will be then)."""
        cluster = self.cluster
        free, until = cluster.machines.capacity - cluster.machines.used, cluster.now
        running = [job for job in cluster.jobs.values() if job.target is not None]
        for job in sorted(running, key=lambda one: one.ends):
            if free >= cores:
                break
            free, until = free + job.asked.cores(job.asked.written, other=False), job.ends
        return (until, free - cores) if free >= cores else (math.inf, math.inf)  # else nodes are away


class Alone:
    gang = False

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def arrived(self, job: ClusterJob) -> None:
        self.cluster.start(job, job.asked.written)

    def preempts(self, pod: Pod) -> bool:
        return True

    def room(self) -> None:
        """Pods have found what there is."""

    def looked(self, job: ClusterJob) -> None:
        now, target = self.cluster.now, job.target
        if target is None or now < job.blocked_until or job.busy:
            return
        wanted = job.learner.wanted
        if wanted != target:
            self.cluster.resize(job, wanted)
            self.cluster.tick_at(now + ACQUIRE_SECONDS, (job, job.changes, target))

    def tick(self, about: Any) -> None:
        """Whether a change has found room."""
        job, change, before = about
        if job.ended is None and job.changes == change and any(pod.machine is None for pod in job.pods):
            self.cluster.drop_waiting(job, before)
            job.blocked_until = self.cluster.now + TRIED_AGAIN_SECONDS


class Arbitrated:
    """Args:
    decide: `arbiter.deciding.decide` with its rules.
    batch_seconds: what happens within this time is decided on together.
    waits_seconds: between two decisions, at least, where serving waits: as the operator's, which such a pod calls at once.
    apart_seconds: the same, where a job has come.
    calm_seconds: the same, where something else has changed.
    at_least_every: seconds between two decisions while jobs are there.
    """

    gang = False

    def __init__(
        self, cluster: Cluster, decide: Callable[[observed.Cluster], Decision], batch_seconds: float = 1.0,
        waits_seconds: float = 1.0, apart_seconds: float = 5.0, calm_seconds: float = 15.0, at_least_every: float = 300.0,
    ) -> None:  # fmt: skip
        self.cluster, self.decide = cluster, decide
        self.batch, self.apart, self.calm, self.every = batch_seconds, apart_seconds, calm_seconds, at_least_every
        self.waits = waits_seconds
        self.decisions, self.changed = 0, 0
        self.decide_seconds: list[float] = []  # of processor time
        self.watch: Callable[[observed.Cluster, Decision], None] | None = None
        self._next = math.inf
        self._last = -math.inf

    def arrived(self, job: ClusterJob) -> None:
        self._soon(self.apart)

    def preempts(self, pod: Pod) -> bool:
        return False

    def room(self) -> None:
        self._soon(self.waits if any(pod.machine is None for pod in self.cluster.serving) else self.calm)

    def looked(self, job: ClusterJob) -> None:
        job.bid = None
        self._obey(job)
        self._soon(self.calm)

    def tick(self, about: Any) -> None:
        if self.cluster.now < self._next:
            return
        self._next, self._last = math.inf, self.cluster.now
        seen = self.observe()
        if not seen.jobs:
            return
        began = time.process_time()
        decision = self.decide(seen)
        self.decide_seconds.append(time.process_time() - began)
        self.decisions += 1
        if self.watch is not None:
            self.watch(seen, decision)
        for allowance in decision.allowances:
            job = self.cluster.jobs[allowance.job]
            if allowance != job.allowance:
                job.allowance = allowance
                self.changed += 1
            self._obey(job)
        self._at(self.cluster.now + self.every)

    def observe(self) -> observed.Cluster:
        cluster, now = self.cluster, self.cluster.now
        nodes = tuple(
            observed.Node(
                machine.name, _without(machine.whole, [pod for pod in machine.pods if pod.role == SERVING]),
                spot=machine.spot,
            )
            for machine in cluster.machines.all
            if machine.up and machine.open
        )  # fmt: skip
        waiting = tuple(
            observed.Waiting(f"{SERVING}-{pod.number}", pod.priority, pod.request, pod.created)
            for pod in cluster.serving
            if pod.machine is None
        )
        return observed.Cluster(now, nodes, waiting, (), tuple(self._seen(job) for job in cluster.jobs.values()))

    # ------------------------------------------------------------------------------------------------ internals

    def _soon(self, apart: float) -> None:
        self._at(max(self.cluster.now + self.batch, self._last + apart))

    def _at(self, when: float) -> None:
        if when < self._next:
            self._next = when
            self.cluster.tick_at(when)

    def _seen(self, job: ClusterJob) -> observed.Job:
        asked = job.asked
        placed = tuple(
            observed.Placed(pod.role, pod.machine.name)
            for pod in job.pods
            if pod.machine is not None and not pod.doomed and not pod.leaving
        )
        return observed.Job(
            name=asked.name, priority=asked.priority, weight=asked.weight, least=asked.least, most=asked.most,
            pods=asked.pods, placed=placed, queue="", arrived=job.since, started=job.first_step is not None,
            strict=False, written=asked.written, allowance=job.allowance, bid=self._bid(job), silent_seconds=0.0,
            deadline=asked.deadline,
        )  # fmt: skip

    def _bid(self, job: ClusterJob) -> Bid | None:
        """As its AIMaster would have published it. None: it has no AIMaster yet."""
        if job.target is None and job.bid is None:
            return None
        job.account(self.cluster.now)
        left = max(1.0, job.asked.examples - job.done) if job.asked.end_known else 0.0
        size = job.target or Count(0, 0)
        training, busy = job.rate > 0, job.busy
        last = job.bid
        if (
            last is not None and last.size == size and last.training == training and last.busy == busy
            and abs(last.left - left) <= 0.05 * last.left
        ):  # fmt: skip
            return last
        at = job.target or job.asked.written
        costs, model = self.cluster.costs, job.asked.model
        moved = model.variable_bytes / max(1, at.ps) / costs.bytes_per_second if at.ps else 0.0
        job.bid = Bid(
            time=self.cluster.now, size=size, wanted=job.learner.wanted, worth=job.learner.worth(at), left=left,
            change_seconds=costs.pod_start_seconds + moved,
            pause_seconds=costs.ps_pause_seconds if at.ps else costs.join_pause_seconds, training=training, busy=busy,
        )  # fmt: skip
        return job.bid

    def _obey(self, job: ClusterJob) -> None:
        allowed = job.allowance
        if allowed is None:
            return
        if not allowed.runs:
            if job.target is not None:
                self.cluster.park(job)
            return
        wanted, least = job.learner.wanted, job.asked.least
        size = Count(
            max(least.ps, min(allowed.ps, wanted.ps)), max(least.workers, min(allowed.workers, wanted.workers))
        )
        if job.target is None:
            self.cluster.start(job, size)
        elif size != job.target:
            self.cluster.resize(job, size)


def _without(whole: observed.Resources, pods: list[Pod]) -> observed.Resources:
    return observed.Resources(
        whole.cpu - sum(pod.request.cpu for pod in pods),
        whole.memory_bytes - sum(pod.request.memory_bytes for pod in pods),
    )
