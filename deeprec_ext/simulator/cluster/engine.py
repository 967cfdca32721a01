"""The week on a virtual clock: pods find room, start, fail and are taken away; jobs train with those that they have.

What differs between the ways to share a cluster (`ways.py`) is asked of the `Way`: when jobs start, what size they have, and
who gives way. All else, and all chance, is the same for each of them.
"""

from __future__ import annotations

import math
import random
from typing import Any, Protocol

from deeprec_ext.arbiter.observed import Count
from deeprec_ext.simulator.cluster.cluster_job import ClusterJob
from deeprec_ext.simulator.cluster.line import Line, Refused
from deeprec_ext.simulator.cluster.machines import Machine, Machines, Pod
from deeprec_ext.simulator.cluster.week import SERVING_PRIORITY, WEEK, Week
from deeprec_ext.simulator.virtual_clock import Clock, Event

LOOK_SECONDS = (60.0, 600.0)
"""After a change of size, until its windows are looked at for the first time, and again."""
EVICTION_SECONDS = 30.0
"""A pod that others were preempted for waits for their room so long before it looks for others."""
GIVEN_UP = 6 * WEEK
"""Jobs that have not ended by then never do."""
SERVING = "serving"


class Way(Protocol):
    """How a cluster is shared."""

    gang: bool

    def arrived(self, job: ClusterJob) -> None: ...
    def looked(self, job: ClusterJob) -> None:
        """Its AIMaster has measured windows of the present size."""

    def room(self) -> None:
        """Something has changed: pods came, went or found no room. After pods that wait were placed."""

    def preempts(self, pod: Pod) -> bool:
        """Whether the scheduler takes pods of lower priority away for it."""

    def tick(self, about: Any) -> None:
        """An event of the way's own."""


class Cluster:
    """Args: error: see `Learner`."""

    def __init__(self, week: Week, error: float = 0.0) -> None:
        self.week, self.costs, self.error = week, week.costs, error
        self.clock = Clock()
        self.machines = Machines(week.nodes, week.node, week.mishaps.spot_share)
        self.jobs: dict[str, ClusterJob] = {}  # that are there and have not ended
        self.ended: list[ClusterJob] = []
        self.serving: list[Pod] = []
        self.serving_waits: list[float] = []
        self.line = Line()
        self.evictions = 0
        self.used_seconds = self.there_seconds = 0.0  # core seconds of the week
        self.way: Way
        self._unsettled = False
        self._number = 0
        self._freed = 0  # `Machines.freed`, as it was when these two were begun
        self._no_room, self._no_victims = Refused(), Refused()
        self._accounted = 0.0
        self._starts = random.Random(f"{week.seed}/starts")
        self._luck = {one.name: random.Random(f"{week.seed}/{one.name}") for one in self.machines.all}

    @property
    def now(self) -> float:
        return self.clock.now

    def run(self, way: Way) -> None:
        """Until all jobs have ended."""
        self.way = way
        for number, asked in enumerate(self.week.jobs):
            self.clock.at(asked.arrives, Event(asked.name, "arrive", number))
        self.clock.at(0.0, Event(SERVING, "serve"))
        for machine in self.machines.all:
            self._foresee(machine)
        while len(self.ended) < len(self.week.jobs) and (event := self.clock.next()) is not None:
            if self.now > GIVEN_UP:
                break
            self._integrate()
            getattr(self, f"_{event.kind}")(event)
            self._settle()

    # ------------------------------------------------------------------------------------------------ for ways

    def start(self, job: ClusterJob, size: Count) -> None:
        """Its pods begin to wait for room."""
        job.account(self.now)
        job.target = size
        job.restore |= job.done > 0
        self._fill(job)

    def resize(self, job: ClusterJob, size: Count) -> None:
        if size != job.target:
            job.account(self.now)
            job.target = size
            job.changes += 1
            self._fill(job)
            self._trim(job)
            self.foresee(job)

    def park(self, job: ClusterJob) -> None:
        """All of it is kept on disk, and all pods are given back."""
        job.account(self.now)
        seconds = self.costs.worker_leaves_seconds + job.asked.model.variable_bytes / self.costs.bytes_per_second
        for pod in list(job.pods):
            self._leave(job, pod, seconds)
        job.target, job.since = None, self.now
        job.parks += 1
        self.foresee(job)

    def start_together(self, job: ClusterJob, size: Count) -> bool:
        """With all pods at once, or not."""
        job.target = size
        pods = self._missing(job)
        if not self.machines.place_together(pods):
            job.target = None
            return False
        job.account(self.now)
        job.pods += pods
        for pod in pods:
            self._starting(pod)
        return True

    def drop_waiting(self, job: ClusterJob, before: Count) -> None:
        """Growth that has found no room is not wanted any more; what it had before still is."""
        assert job.target is not None
        counts = []
        for role, had in (("ps", before.ps), ("worker", before.workers)):
            pods = job.of(role)
            waiting = [pod for pod in pods if pod.machine is None]
            for pod in waiting[: max(0, len(pods) - had)]:
                self._forget(job, pod)
            counts.append(len(job.of(role)))
        job.target = Count(*counts)

    def tick_at(self, time: float, about: Any = None) -> None:
        self.clock.at(time, Event("", "tick", about))

    def foresee(self, job: ClusterJob) -> None:
        """The end, and the next look at its windows."""
        job.account(self.now)
        job.foresee(self.now)
        self.clock.at(job.ends, Event(job.asked.name, "end", turn=job.turn))
        if job.rate > 0 and not job.gang:
            if job.looked_at != job.count:
                job.looked_at, job.looks = job.count, 0
            self._next_look(job)

    # ------------------------------------------------------------------------------------------------ events

    def _arrive(self, event: Event) -> None:
        job = ClusterJob(self.week.jobs[event.about], self.week.seed, self.way.gang, self.error)
        self.jobs[event.job] = job
        self._unsettled = True
        self.way.arrived(job)

    def _end(self, event: Event) -> None:
        job = self._of(event)
        if job is None:
            return
        job.account(self.now)
        job.done, job.ended = job.asked.examples, self.now
        for pod in list(job.pods):
            self._forget(job, pod)
        del self.jobs[event.job]
        self.ended.append(job)

    def _look(self, event: Event) -> None:
        job = self._of(event)
        if job is not None and job.rate > 0:
            job.account(self.now)
            job.looks += 1
            job.learner.look(job.count, self.now)
            self._next_look(job)
            self.way.looked(job)

    def _look_for_room(self, event: Event) -> None:
        self._unsettled = True

    def _tick(self, event: Event) -> None:
        self.way.tick(event.about)

    def _ready(self, event: Event) -> None:
        pod: Pod = event.about
        job = self.jobs.get(event.job)
        if pod.machine is None or pod.leaving or pod.ready < math.inf:
            return
        pod.ready = self.now
        if job is None:
            return
        if (rate := self.week.mishaps.pod_failures) > 0:
            self.clock.at(self.now + job.chance.expovariate(rate / 3600), Event(event.job, "pod_fails", pod))
        if pod.role == "other":
            return
        self._joins(job, pod)
        doomed = [one for one in job.pods if one.doomed and one.role == pod.role]
        if doomed:
            self._leave(job, doomed[0])
        self.foresee(job)
        self._unsettled = True

    def _gone(self, event: Event) -> None:
        pod: Pod = event.about
        self.machines.give_back(pod)
        if (job := self.jobs.get(event.job)) is not None and pod in job.pods:
            job.pods.remove(pod)
        self._unsettled = True

    def _pod_fails(self, event: Event) -> None:
        pod, job = event.about, self.jobs.get(event.job)
        if job is not None and pod in job.pods and not pod.leaving:
            self.lose(pod)

    def _node_fails(self, event: Event) -> None:
        machine: Machine = event.about
        if machine.up and machine.turn == event.turn:
            self._down(machine, self.week.mishaps.node_away_seconds)

    def _notice(self, event: Event) -> None:
        """A reclaim, with or without notice."""
        machine, noticed = event.about
        if not machine.up or machine.turn != event.turn:
            return
        if not noticed:
            self._down(machine, self.week.mishaps.reclaimed_seconds)
            return
        machine.open = False
        self.clock.at(self.now + self.week.mishaps.notice_seconds, Event(SERVING, "taken", machine, machine.turn))
        for pod in list(machine.pods):
            job = self.jobs.get(pod.owner)
            if job is not None and not job.gang and not pod.leaving:
                pod.doomed = True
                self._fill(job)
        self._unsettled = True

    def _taken(self, event: Event) -> None:
        if event.about.up and event.about.turn == event.turn:
            self._down(event.about, self.week.mishaps.reclaimed_seconds)

    def _comes_back(self, event: Event) -> None:
        self.machines.back(event.about)
        self._foresee(event.about)
        self._unsettled = True

    def _serve(self, event: Event) -> None:
        serving = self.week.serving
        number = round(self.now / serving.period_seconds)
        if number + 1 < len(serving.replicas):
            self.clock.at(self.now + serving.period_seconds, Event(SERVING, "serve"))
        self._serve_with(serving.replicas[number] if serving.replicas else 0)

    # ------------------------------------------------------------------------------------------------ pods

    def lose(self, pod: Pod, frees_after: float = 0.0) -> None:
        """A pod dies: failed, preempted, or with its node. Its job wants another."""
        job = self.jobs.get(pod.owner)
        self._unsettled = True
        if job is None:
            self.machines.give_back(pod)
            if pod in self.serving:
                self.serving.remove(pod)
                self._serve_with(len(self.serving) + 1)
            return
        job.account(self.now)
        trained = pod.ready < math.inf and not pod.leaving
        doomed, pod.leaving = pod.doomed, True
        if frees_after and pod.machine is not None:
            self.clock.at(self.now + frees_after, Event(pod.owner, "gone", pod))
        else:
            self.machines.give_back(pod)
            job.pods.remove(pod)
        if trained and pod.role != "other":
            self._damage(job, pod, doomed)
        if job.target is not None:
            self._fill(job)
        self.foresee(job)

    def _damage(self, job: ClusterJob, pod: Pod, doomed: bool) -> None:
        costs, ps, trainers = self.costs, job.training("ps"), job.trainers
        if job.gang:
            if not job.asked.with_ps or pod.role in ("ps", "chief"):  # a worker of a job with PS comes back by itself
                job.redo(job.since_kept(self.now, costs.checkpoint_seconds))
                job.restore = True
            return
        if doomed and ps + (not job.asked.with_ps) and trainers:  # what it had was handed on in time
            if pod.role == "ps":
                self._moves(job, ps + 1)
            elif not job.asked.with_ps:
                job.pause(self.now, costs.leave_pause_seconds)
            return
        if trainers == 0 and (ps == 0 or not job.asked.with_ps):
            job.redo(job.since_kept(self.now, costs.checkpoint_seconds))
            job.restore = True
        elif pod.role == "ps":
            job.redo(costs.stale_seconds / (ps + 1))
            job.pause(self.now, costs.ps_loss_seconds)
            job.restore |= ps == 0
        elif not job.asked.with_ps:
            job.pause(self.now, costs.member_loss_seconds)

    def _joins(self, job: ClusterJob, pod: Pod) -> None:
        """What a pod that begins to work costs the others; and those who begin anew."""
        job.account(self.now)
        if job.rate == 0 and job._rate_now() > 0:
            job.began = self.now
            if job.restore:
                read = job.asked.model.variable_bytes / self.costs.bytes_per_second
                job.pause(self.now, self.costs.restart_seconds + read)
                job.restore = False
        elif job.rate > 0 and not job.gang:
            if pod.role == "ps":
                self._moves(job, job.training("ps"))
            elif not job.asked.with_ps:
                job.pause(self.now, self.costs.join_pause_seconds)

    def _moves(self, job: ClusterJob, ps: int) -> float:
        """Slots of one of so many PS move. Seconds that they are on their way."""
        seconds = job.bytes_of(ps) / self.costs.bytes_per_second
        job.pause(self.now, self.costs.ps_pause_seconds + self.costs.moving * seconds)
        return seconds

    def _leave(self, job: ClusterJob, pod: Pod, seconds: float = 0.0) -> None:
        """In good order: what it has is handed on first."""
        if pod.leaving:
            return
        if pod.machine is None:
            self._forget(job, pod)
            return
        seconds = seconds or self.costs.worker_leaves_seconds
        if pod.ready < math.inf and job.rate > 0:
            if pod.role == "ps":
                seconds += self._moves(job, job.training("ps"))
            elif not job.asked.with_ps and pod.role != "other":
                job.pause(self.now, self.costs.leave_pause_seconds)
        pod.leaving = True
        self.clock.at(self.now + seconds, Event(pod.owner, "gone", pod))

    def _forget(self, job: ClusterJob, pod: Pod) -> None:
        """At once."""
        if pod.machine is None:
            self.line.drop(pod)
        self.machines.give_back(pod)
        if pod in job.pods:
            job.pods.remove(pod)
        self._unsettled = True

    def _missing(self, job: ClusterJob) -> list[Pod]:
        """Pods that its target wants and that are not there."""
        assert job.target is not None
        wanted = {"other": int(not job.gang), "chief": 1, "ps": job.target.ps, "worker": job.target.workers}
        return [
            self._pod(job.asked.name, role, job.request(role), job.asked.priority)
            for role, count in wanted.items()
            for _ in range(count - len(job.of(role)))
        ]

    def _pod(self, owner: str, role: str, request: Any, priority: int) -> Pod:
        self._number += 1
        return Pod(owner, role, request, priority, self.now, self._number)

    def _fill(self, job: ClusterJob) -> None:
        for pod in self._missing(job):
            job.pods.append(pod)
            self._waits(pod)

    def _trim(self, job: ClusterJob) -> None:
        """Those first that have no room yet, are doomed or start; then the youngest. PS after workers."""
        assert job.target is not None
        for role, count in (("worker", job.target.workers), ("ps", job.target.ps)):
            pods = job.of(role)
            pods.sort(key=lambda pod: (pod.machine is not None, pod.ready < math.inf, -pod.number))
            for pod in pods[: max(0, len(pods) - count)]:
                self._leave(job, pod)
            if len(job.of(role)) >= count:  # nobody is to come in place of those who have to go
                waiting = [pod for pod in job.of(role) if pod.ready == math.inf]
                for pod in [one for one in job.pods if one.role == role and one.doomed][len(waiting) :]:
                    self._leave(job, pod)

    def _waits(self, pod: Pod) -> None:
        self.line.add(pod)
        self._unsettled = True

    def _starting(self, pod: Pod) -> None:
        costs = self.costs
        seconds = costs.pod_start_seconds * math.exp(self._starts.gauss(0.0, costs.pod_start_scatter))
        self.clock.at(self.now + seconds, Event(pod.owner, "ready", pod))

    def _serve_with(self, count: int) -> None:
        while len(self.serving) > count:
            pod = next((one for one in reversed(self.serving) if one.machine is None), self.serving[-1])
            self.serving.remove(pod)
            if pod.machine is None:
                self.line.drop(pod)
                self.serving_waits.append(self.now - pod.created)
            self.machines.give_back(pod)
            self._unsettled = True
        for _ in range(count - len(self.serving)):
            pod = self._pod(SERVING, SERVING, self.week.serving.pod, SERVING_PRIORITY)
            self.serving.append(pod)
            self._waits(pod)

    def _evict_for(self, pod: Pod) -> bool:
        """False: nobody's going would help."""
        victims = self.machines.victims(pod)
        if not victims:
            return False
        pod.evicts_until = self.now + EVICTION_SECONDS
        self.clock.at(pod.evicts_until, Event(pod.owner, "look_for_room"))
        for victim in victims:
            self.evictions += 1
            if (job := self.jobs.get(victim.owner)) is not None:
                job.evicted += 1
            self.lose(victim, self.costs.evict_seconds)
        return True

    # ------------------------------------------------------------------------------------------------ internals

    def _settle(self) -> None:
        while self._unsettled:
            self._unsettled = False
            if self._freed != self.machines.freed:  # else what had no room then has none now
                self._freed = self.machines.freed
                self._no_room, self._no_victims = Refused(), Refused()
            self.line.look(self._number, self._tries)
            self.way.room()

    def _tries(self, pod: Pod) -> bool:
        """To find room, or to make some; whether others like it, which are younger, are to try as well."""
        request = pod.request
        if not self._no_room.has(0, request):
            if self.machines.place(pod):
                self.line.drop(pod)
                if pod.role == SERVING:
                    self.serving_waits.append(self.now - pod.created)
                self._starting(pod)
                return True
            self._no_room.add(0, request)
        if not self.way.preempts(pod):
            return False
        if self.clock.now < pod.evicts_until:
            return True
        if self._no_victims.has(pod.priority, request):
            return False
        if self._evict_for(pod):
            return True
        self._no_victims.add(pod.priority, request)
        return False

    def _next_look(self, job: ClusterJob) -> None:
        if job.looks < len(LOOK_SECONDS):
            time = max(self.now, job.paused_until) + LOOK_SECONDS[job.looks]
            self.clock.at(time, Event(job.asked.name, "look", turn=job.turn))

    def _of(self, event: Event) -> ClusterJob | None:
        """The job that the event is about, unless it was foreseen before something changed."""
        job = self.jobs.get(event.job)
        return job if job is not None and job.turn == event.turn else None

    def _down(self, machine: Machine, seconds: float) -> None:
        for pod in self.machines.down(machine):
            self.lose(pod)
        self.clock.at(self.now + seconds, Event(SERVING, "comes_back", machine))

    def _foresee(self, machine: Machine) -> None:
        """What will happen to it next."""
        mishaps, luck = self.week.mishaps, self._luck[machine.name]
        if mishaps.node_failures > 0:
            self.clock.at(
                self.now + luck.expovariate(mishaps.node_failures / 3600),
                Event(SERVING, "node_fails", machine, machine.turn),
            )
        if machine.spot and mishaps.reclaims > 0:
            noticed = luck.random() < mishaps.noticed
            self.clock.at(
                self.now + luck.expovariate(mishaps.reclaims / 3600),
                Event(SERVING, "notice", (machine, noticed), machine.turn),
            )

    def _integrate(self) -> None:
        """Use of cores, while jobs arrive."""
        until = min(self.now, self.week.seconds)
        if until > self._accounted:
            self.used_seconds += self.machines.used * (until - self._accounted)
            self.there_seconds += self.machines.capacity * (until - self._accounted)
            self._accounted = until
