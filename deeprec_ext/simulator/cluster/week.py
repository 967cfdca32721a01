"""A week of a cluster: which jobs are submitted when, what they are like, and what happens to the nodes.

What is published, and what the numbers here follow of it:

- Philly (Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC '19), counted in its
  82 247 jobs as the artifact of Pollux (OSDI '21) has them: 76.8, 16.8, 4.3 and 2.1 % take less than 1, 10, 100 and more GPU
  hours, and the last 2.1 % take 82 % of all GPU time (`CLASSES`); a weekday has 0.86 to 1.44 times the mean arrivals, a day of
  the weekend 0.6 times; hours of a day 0.64 to 2.09 times; jobs come in sweeps, many within a minute.
- Meta's research clusters (Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", 2024): a
  node of eight GPUs fails about every 47 days.

Everything else is made up, in orders of magnitude: families of jobs are those of `traces/generate.py`, with two that sum
gradients; how often spot nodes are taken; how users guess a size: as many trainers as bring the job home within what they are
ready to wait (`CLASSES`), times a scatter, and PS by habit.
"""

from __future__ import annotations

import dataclasses
import math
import random
from dataclasses import dataclass, field

from deeprec_ext.arbiter.observed import Count, Pods, Resources
from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.simulator.job_model import JobModel, throughput

GB = 10**9
HOUR, DAY = 3600.0, 86400.0
WEEK = 7 * DAY

CLASSES = ((0.768, 0.05, 1.0, 0.5), (0.168, 1.0, 10.0, 2.0), (0.043, 10.0, 100.0, 8.0), (0.021, 100.0, 1000.0, 24.0))
"""Share of the jobs; hours that one trainer would take, from and to (log-uniform between; the published tail is cut at 1 000);
hours that the user is ready to wait for it."""

WITH_PS = {  # core seconds per step of a trainer, of PS; cores of a trainer; batch; GB of variables
    "linear": (0.03, 0.020, 2, 2048, 3),
    "wide-deep": (0.10, 0.025, 4, 1024, 5),
    "deepfm": (0.25, 0.040, 4, 1024, 10),
    "attention": (0.80, 0.030, 8, 512, 4),
}
IN_STEP = {  # core seconds of a step; cores of a worker; records of a step (of each worker where True)
    "vision": (8.0, 4, 512, False),
    "text": (1.0, 8, 64, True),
}
IN_STEP_SHARE = 0.3
PRIORITIES = ((0.2, 1000), (0.6, 100), (0.2, 0))
SERVING_PRIORITY = 100_000
WEEKDAYS = (1.07, 1.1, 1.2, 1.3, 1.2, 0.6, 0.6)
NIGHT, EVENING = 0.65, 1.35
"""Arrivals of the quietest and the busiest hour, ÷ mean."""
SWEEP_SHARE, SWEEP_MEAN = 0.1, 4.0
"""Of submissions, those of several jobs at once, and how many."""
TRAINERS_MAX, PS_MAX = 48, 12


@dataclass(frozen=True)
class Costs:
    """Of changes. Measured ones: docs/benchmarks.md, "Figures" and "Jobs without PS"; the others stand in docs/critiques.md."""

    pod_start_seconds: float = 35.0  # median, assumed: scheduling, image, interpreter, session
    pod_start_scatter: float = 0.25  # of its logarithm
    ps_pause_seconds: float = 0.25  # of a change of PS
    bytes_per_second: float = 200e6  # at which slots move, and a kept model is read
    moving: float = 0.1  # of throughput, while slots move
    worker_leaves_seconds: float = 2.0  # from the word to its core being free
    join_pause_seconds: float = 0.21  # without PS: a worker more
    leave_pause_seconds: float = 0.02
    ps_loss_seconds: float = 0.17
    stale_seconds: float = 2.5  # updates of a lost PS that are lost with it: half of a backup's interval
    member_loss_seconds: float = 0.32  # without PS: a worker dies
    restart_seconds: float = (
        10.0  # stock: read the checkpoint, build the graph; ours, where all pods were given up or lost
    )
    checkpoint_seconds: float = 600.0  # between two of stock's; between two kept models of ours
    evict_seconds: float = 5.0  # preempted pods' cores are free after it


@dataclass(frozen=True)
class Mishaps:
    """Rates are of one node or pod and an hour."""

    node_failures: float = 1 / (47 * 24)
    node_away_seconds: float = 3600.0
    pod_failures: float = 1 / 500
    spot_share: float = 0.3
    reclaims: float = 1 / 24  # of a spot node
    noticed: float = 0.8  # share of reclaims
    notice_seconds: float = 120.0
    reclaimed_seconds: float = 1200.0  # until another node is in its place

    def times(self, factor: float) -> Mishaps:
        return dataclasses.replace(
            self, node_failures=factor * self.node_failures, pod_failures=factor * self.pod_failures,
            reclaims=factor * self.reclaims,
        )  # fmt: skip


@dataclass(frozen=True)
class Submitted:
    """A job, as its user submits it; and its model, which nobody sees."""

    name: str
    arrives: float
    priority: int
    examples: float
    model: JobModel
    written: Count  # what a gang is made of
    least: Count
    most: Count
    pods: Pods
    deadline: float = 0.0  # seconds since the beginning of the week; 0: none
    end_known: bool = True  # its AIMaster can say how many examples are left
    noise: float = 0.04  # of a window
    weight: float = 1.0

    @property
    def with_ps(self) -> bool:
        return self.most.ps > 0

    def size(self, ps: int, workers: int) -> Size:
        pods = self.pods
        return Size(ps, workers, pods.ps.cpu, pods.worker.cpu, pods.ps.memory_bytes, pods.worker.memory_bytes)

    def rate(self, ps: int, trainers: int) -> float:
        """Examples per second, of the truth. 0 without a trainer, or without the PS that it needs."""
        if trainers <= 0 or (self.with_ps and ps <= 0):
            return 0.0
        return throughput(self.model, self.size(ps, trainers - 1), max(8, 2 * self.most.ps) if self.with_ps else 0)

    def cores(self, count: Count, other: bool = True) -> float:
        pods = self.pods
        return (
            pods.chief.cpu + count.ps * pods.ps.cpu + count.workers * pods.worker.cpu + (pods.other.cpu if other else 0)
        )


@dataclass(frozen=True)
class Serving:
    """A Deployment whose need rises and falls with the day."""

    replicas: tuple[int, ...]  # wanted in each period
    period_seconds: float = 300.0
    pod: Resources = field(default_factory=lambda: Resources(4.0, 8 * GB))


@dataclass(frozen=True)
class Week:
    jobs: tuple[Submitted, ...]
    nodes: int
    node: Resources
    serving: Serving
    costs: Costs = field(default_factory=Costs)
    mishaps: Mishaps = field(default_factory=Mishaps)
    seed: int = 0
    seconds: float = WEEK  # in which jobs arrive


def make(
    jobs: int = 1000, seed: int = 0, *, load: float = 0.8, mishaps: Mishaps = Mishaps(), tuned: bool = False,
    serving_share: float = 0.15, days: float = 7.0,
) -> Week:  # fmt: skip
    """Args:
    load: core hours that jobs of the written sizes and serving want in the week ÷ those that there are.
    tuned: users do not guess: the written size is the one that their patience needs, with as many PS as are worth it.
    serving_share: of the cluster's cores, in the mean.
    days: in which jobs arrive, from Monday on: a day with a seventh of the jobs is as full as a week.
    """
    chance = random.Random(f"{seed}/{jobs}/week")
    submitted = tuple(
        _job(chance, number, arrives, tuned) for number, arrives in enumerate(_arrivals(chance, jobs, days))
    )
    node = Resources(32.0, 192 * GB)
    asked = sum(
        one.cores(one.written, other=False) * one.examples / one.rate(one.written.ps, one.written.workers + 1)
        for one in submitted
    )
    largest = max(one.cores(one.written) for one in submitted)
    wanted = max(asked / (1 - serving_share) / (load * days * DAY), 1.5 * largest)
    nodes = max(3, math.ceil(wanted / node.cpu))
    return Week(
        submitted, nodes, node, _serving(chance, nodes * node.cpu, serving_share), Costs(), mishaps, seed, days * DAY
    )


def rhythm(time: float) -> float:
    """Arrivals at a time of the week, ÷ mean. The week begins on a Monday, at midnight."""
    hour = time % DAY / HOUR
    wave = 0.5 - 0.5 * math.cos(2 * math.pi * (hour - 4) / 24)  # quietest at four, busiest at sixteen
    return WEEKDAYS[int(time // DAY) % 7] * (NIGHT + (EVENING - NIGHT) * wave)


# ------------------------------------------------------------------------------------------------------- internals


def _arrivals(chance: random.Random, jobs: int, days: float) -> list[float]:
    times: list[float] = []
    while len(times) < jobs:
        time = chance.uniform(0.0, days * DAY)
        if chance.random() * 2.0 > rhythm(time):
            continue
        count = 1 if chance.random() >= SWEEP_SHARE else 1 + round(chance.expovariate(1 / SWEEP_MEAN))
        times += [time + 5.0 * number for number in range(count)]
    return sorted(round(time, 1) for time in times[:jobs])


def _job(chance: random.Random, number: int, arrives: float, tuned: bool) -> Submitted:
    _, shortest, longest, patience = chance.choices(CLASSES, [share for share, *_ in CLASSES])[0]
    hours = shortest * (longest / shortest) ** chance.random()
    width = min(32.0, max(2.0, _around(chance, 12.0, 0.5)))
    make_model = _in_step if chance.random() < IN_STEP_SHARE else _with_ps
    family, model, pods, most = make_model(chance, width)
    job = Submitted(
        f"{family}-{number}", arrives, chance.choices([p for _, p in PRIORITIES], [share for share, _ in PRIORITIES])[0],
        1.0, model, Count(0, 0), Count(int(most.ps > 0), 0), most, pods,
        end_known=chance.random() < 0.8, noise=chance.choice((0.02, 0.04, 0.08)),
    )  # fmt: skip
    job = dataclasses.replace(job, examples=float(round(hours * HOUR * job.rate(min(1, most.ps), 1))))
    trainers = _patient(job, patience * HOUR)
    ps = _ps_worth(job, trainers)
    guess, habit = _around(chance, 1.0, 0.6), chance.choice((0.5, 1.0, 1.0, 2.0, 3.0))
    if not tuned:
        trainers = min(most.workers + 1, max(1, round(trainers * guess)))
        ps = min(most.ps, max(1, round(ps * habit))) if job.with_ps else 0
    written = Count(ps, trainers - 1)
    job = dataclasses.replace(job, written=written)
    if chance.random() < 0.3:  # who will not begin with less than half
        job = dataclasses.replace(job, least=Count(max(job.least.ps, ps // 2), (trainers - 1) // 2))
    late = chance.uniform(2.0, 4.0)
    if chance.random() < 0.2:
        static = job.examples / job.rate(written.ps, trainers)
        job = dataclasses.replace(job, deadline=round(arrives + 600 + late * static))
    return job


def _around(chance: random.Random, value: float, scatter: float = 0.3) -> float:
    return value * math.exp(chance.gauss(0.0, scatter))


def _with_ps(chance: random.Random, width: float) -> tuple[str, JobModel, Pods, Count]:
    family = chance.choice(sorted(WITH_PS))
    compute, ps, cores, batch, size = WITH_PS[family]
    model = JobModel(
        batch=batch, fixed_seconds=_around(chance, 0.006), compute_core_seconds=_around(chance, compute),
        parallelism=cores, fan_out_core_seconds=_around(chance, 0.0003), ps_core_seconds=_around(chance, ps),
        ps_parallelism=8.0, variable_bytes=_around(chance, size * GB, 0.5), worker_bytes=1.2 * GB,
    )  # fmt: skip
    alone = model.fixed_seconds + model.compute_core_seconds / cores
    model = dataclasses.replace(model, shared_seconds=alone / width / 2)
    worker = Resources(float(cores), 2 * cores * GB)
    served = Resources(4.0, math.ceil(1.3 * (model.ps_bytes + model.variable_bytes) / GB) * GB)
    most = Count(min(PS_MAX, max(2, round(width / 2))), min(TRAINERS_MAX, max(4, round(3 * width))) - 1)
    return family, model, Pods(worker, served, worker, Resources(0.5, GB)), most


def _in_step(chance: random.Random, width: float) -> tuple[str, JobModel, Pods, Count]:
    family = chance.choice(sorted(IN_STEP))
    compute, cores, batch, local = IN_STEP[family]
    model = JobModel(
        batch=batch, fixed_seconds=_around(chance, 0.01), compute_core_seconds=_around(chance, compute),
        parallelism=cores, variable_bytes=_around(chance, 0.3 * GB, 0.8), local_batch=local,
    )  # fmt: skip
    alone = model.compute_core_seconds / cores
    model = dataclasses.replace(model, sum_seconds=alone / width / 2 if not local else alone / 4)
    worker = Resources(float(cores), 3 * cores * GB)
    return (
        family,
        model,
        Pods(worker, Resources(), worker, Resources(0.5, GB)),
        Count(0, min(TRAINERS_MAX, max(4, round(3 * width))) - 1),
    )


def _ps_worth(job: Submitted, trainers: int) -> int:
    """As many as add 5 % each."""
    ps = min(1, job.most.ps)
    while ps < job.most.ps and job.rate(ps + 1, trainers) > 1.05 * job.rate(ps, trainers):
        ps += 1
    return ps


def _patient(job: Submitted, seconds: float) -> int:
    """The fewest trainers that make it in this time; where none do, those up to which a tenth more bring 3 % more."""
    trainers = 1
    while trainers <= job.most.workers:
        rate = job.rate(_ps_worth(job, trainers), trainers)
        more = trainers + max(1, trainers // 10)
        if job.examples / rate <= seconds or job.rate(_ps_worth(job, more), more) < 1.03 * rate:
            break
        trainers = more
    return min(trainers, job.most.workers + 1)


def _serving(chance: random.Random, cores: float, share: float) -> Serving:
    shape, noise, found = Serving(()), 0.0, []
    for number in range(int(2 * WEEK / shape.period_seconds)):
        time = number * shape.period_seconds
        noise = 0.9 * noise + chance.gauss(0.0, 0.04)
        wave = 1 - 0.7 * math.cos(2 * math.pi * (time % DAY / HOUR - 3) / 24)  # least at three, most at fifteen
        found.append(max(1, round(share * cores / shape.pod.cpu * wave * math.exp(noise))))
    return Serving(tuple(found))
