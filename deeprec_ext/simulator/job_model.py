"""The job that is simulated: how long a step takes, what it uses, by the laws of queues and not by the formula the policy fits.

A trainer's step is a closed loop: it computes (`think` time), asks all PS at once, and waits for the slowest answer. PS are
queueing stations; with W trainers in the loop the time at a station with demand d is, by Schweitzer's approximation of mean
value analysis (Schweitzer 1979; Lazowska et al., Quantitative System Performance, 1984, ch. 6), the positive root of

    R = d (1 + (W - 1) R / (Z + R))        Z: time of the loop spent elsewhere

which goes from d (nobody else) to W d - Z (the station is the bottleneck). Only the PS with the largest demand is looked at,
since the step waits for the slowest, and the more PS answer the later the last one (the mean maximum of P answers, `SPREAD`).
A second station, which more PS do not relieve, is what all trainers share: the network, a common file system.

Of a job without PS all trainers make each step together: it is as long as the slowest computes, and their ring sums. The ring
sends 2 (n - 1) / n of what there is to sum over each link, in 2 (n - 1) rounds, each with its latency (Patarasuk and Yuan,
"Bandwidth optimal all-reduce algorithms", 2009): not the line that the policy fits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from deeprec_ext.autoscaler.observe.observed import Size

SPREAD = 0.15
"""Relative scatter of a PS's answers; the largest of P exponential ones is H(P) ~ ln P scatters above the mean."""
LEFT_CORES = 0.1
"""Of a host whose cores others use: nobody is starved altogether."""
ROUNDS = 6
"""Of the fixed point over the two stations; the third digit stands after four."""


@dataclass(frozen=True)
class JobModel:
    """What a job needs per step, and how far it can use what it is given. Core seconds are those of a sound host."""

    batch: float = 512.0  # examples per step of one trainer; without PS of all together, unless `local_batch`
    fixed_seconds: float = 0.004  # per step: round trips, kernel launches, reading
    compute_core_seconds: float = 0.2  # per step, of the trainer
    parallelism: float = 4.0  # cores a trainer's computing can use
    fan_out_core_seconds: float = 0.0004  # per step and PS, of the trainer
    ps_core_seconds: float = 0.02  # per step, over all PS
    ps_parallelism: float = 8.0  # cores one PS can use
    shared_seconds: float = 0.0  # per step, of what all trainers share
    variable_bytes: float = 4e9  # values and optimizer slots of all variables, once
    variable_growth: float = 0.0  # bytes per example trained: tables that grow
    ps_bytes: float = 350e6  # of a PS without variables
    worker_bytes: float = 900e6
    backups: bool = True  # every variable is held twice
    host_cores: float = 0.0  # shared by all processes of the job, which run on one host; 0: each has a host of its own
    input_per_second: float = 0.0  # examples that the input yields at most; 0: as many as are asked for
    sum_seconds: float = 0.0  # without PS: to send all there is to sum over one link
    round_seconds: float = 0.0005  # without PS: of a round of the ring, however small
    local_batch: bool = False  # without PS: each trainer has a batch of its own


@dataclass(frozen=True)
class Pace:
    """How a job trains at one moment."""

    examples_per_second: float
    step_seconds: tuple[float, ...]  # per trainer
    trainer_cores: tuple[float, ...]  # used, per trainer
    ps_cores: tuple[float, ...]  # used, per PS
    ps_busy: tuple[float, ...]  # share of time, per PS
    compute_share: float  # of a step, of the mean trainer
    input_wait_share: float = 0.0  # of the time of trainers
    sum_seconds: tuple[float, ...] = ()  # of a step, per trainer, waiting for the slowest included; without PS


def cores(request: float, host: float = 0.0) -> float:
    """No request: all of a shared host, else one core, as the estimator has it."""
    return request if request > 0 else host or 1.0


def wait(demand: float, elsewhere: float, customers: float) -> float:
    """R of the module's text, in seconds."""
    half = (elsewhere - demand * customers) / 2
    return -half + math.sqrt(half * half + demand * elsewhere)


def pace(
    model: JobModel, size: Size, trainer_speeds: Sequence[float], ps_speeds: Sequence[float], shares: Sequence[float],
    others: float = 0.0,
) -> Pace:  # fmt: skip
    """Args:
    others: cores of a shared host that other programs use.
    trainer_speeds, ps_speeds: [W], [P] of the processes that run; 1: a sound host.
    shares: [P] of the load of all slots; they sum to 1.
    """
    if trainer_speeds and not size.ps:
        return _in_step(model, size, trainer_speeds, others)
    if not trainer_speeds or not ps_speeds:
        return Pace(0.0, (), (), (), (), 0.0)
    own = min(cores(size.worker_cpu, model.host_cores), model.parallelism)
    ps_own = min(cores(size.ps_cpu, model.host_cores), model.ps_parallelism)
    fan_out = model.fan_out_core_seconds * len(ps_speeds) / min(cores(size.worker_cpu, model.host_cores), 1.0)
    computing = [(model.compute_core_seconds / own + fan_out) / speed for speed in trainer_speeds]
    demands = [model.ps_core_seconds * share / (ps_own * speed) for share, speed in zip(shares, ps_speeds)]
    waiting = _waiting(model, sum(computing) / len(computing), max(demands), len(ps_speeds), len(computing))
    steps = [model.fixed_seconds + one + waiting for one in computing]
    per_second = sum(1 / step for step in steps)
    work = model.compute_core_seconds + model.fan_out_core_seconds * len(ps_speeds)
    host, fed = _held_up(model, per_second, per_second * (work + model.ps_core_seconds), others)
    steps, per_second = [step / (host * fed) for step in steps], per_second * host * fed
    return Pace(
        model.batch * per_second, tuple(steps),
        tuple(min(work / step, cores(size.worker_cpu, model.host_cores)) for step in steps),
        tuple(min(per_second * model.ps_core_seconds * share, ps_own) for share in shares),
        tuple(min(1.0, per_second * demand) for demand in demands),
        min(1.0, sum(computing) / len(computing) / (sum(steps) / len(steps))), 1 - fed,
    )  # fmt: skip


def _in_step(model: JobModel, size: Size, speeds: Sequence[float], others: float) -> Pace:
    """Without PS. `compute_core_seconds` are of `batch` records."""
    count = len(speeds)
    part = 1.0 if model.local_batch else 1 / count
    own = min(cores(size.worker_cpu, model.host_cores), model.parallelism)
    work = model.compute_core_seconds * part
    computing = [model.fixed_seconds + work / own / speed for speed in speeds]
    ring = 2 * (count - 1) * (model.sum_seconds / count + model.round_seconds)
    step = max(computing) + ring
    host, fed = _held_up(model, 1 / step, count * work / step, others)  # a step has a batch, or a part of it each
    slower = 1 / (host * fed)
    step *= slower
    return Pace(
        model.batch * part * count / step, (step,) * count,
        tuple(min(work / step, cores(size.worker_cpu, model.host_cores)) for _ in speeds), (), (),
        min(1.0, sum(computing) / count * slower / step), 1 - fed,
        tuple(step - slower * one for one in computing),
    )  # fmt: skip


def _held_up(model: JobModel, steps_per_second: float, cores_used: float, others: float) -> tuple[float, float]:
    """Factors on the pace: of the host whose cores are all used, and of the input that yields no more."""
    host = 1.0
    if model.host_cores:
        host = min(1.0, max(LEFT_CORES, model.host_cores - others) / max(1e-9, cores_used))
    examples = model.batch * steps_per_second * host
    fed = min(1.0, model.input_per_second / examples) if model.input_per_second and examples else 1.0
    return host, fed


def throughput(model: JobModel, size: Size, slots: int = 0) -> float:
    """Examples per second on sound hosts with evenly loaded slots (0: as many as divide evenly)."""
    if not size.ps:
        return _in_step(model, size, [1.0] * size.trainers, 0.0).examples_per_second
    share = 1 / size.ps if slots < size.ps else math.ceil(slots / size.ps) / slots
    own = min(cores(size.worker_cpu, model.host_cores), model.parallelism)
    ps_own = min(cores(size.ps_cpu, model.host_cores), model.ps_parallelism)
    fan_out = model.fan_out_core_seconds * size.ps / min(cores(size.worker_cpu, model.host_cores), 1.0)
    computing = model.compute_core_seconds / own + fan_out
    waiting = _waiting(model, computing, model.ps_core_seconds * share / ps_own, size.ps, size.trainers)
    per_second = size.trainers / (model.fixed_seconds + computing + waiting)
    work = model.compute_core_seconds + model.fan_out_core_seconds * size.ps + model.ps_core_seconds
    host, fed = _held_up(model, per_second, per_second * work, 0.0)
    return model.batch * per_second * host * fed


def _waiting(model: JobModel, computing: float, demand: float, ps: int, trainers: int) -> float:
    """Seconds of a step at the slowest PS and at what is shared."""
    demand *= 1 + SPREAD * math.log(ps)
    think = model.fixed_seconds + computing
    if not model.shared_seconds:
        return wait(demand, think, trainers)
    at_ps, shared = demand, model.shared_seconds
    for _ in range(ROUNDS):
        at_ps = wait(demand, think + shared, trainers)
        shared = wait(model.shared_seconds, think + at_ps, trainers)
    return at_ps + shared


def ps_bytes(model: JobModel, ps: int, share: float, trained: float) -> float:
    """Memory of the PS that holds so much of all variables after so many examples."""
    copies = 2 if model.backups and ps > 1 else 1
    return model.ps_bytes + copies * share * (model.variable_bytes + model.variable_growth * trained)
