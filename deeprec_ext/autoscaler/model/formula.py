"""The time of one step as a function of a job's size: ten non-negative coefficients, each with its meaning.

In asynchronous PS training w trainers make their steps independently, so a job trains X = w·B / t examples per second, where B
is the batch size of a trainer and t the time of one of its steps. Four things can bound t:

    A  the trainer itself:     A = fixed + (compute + fan_out (p - 1)) / cores'(worker_cpu, trainer_idle)
    P  the fullest PS, in which w steps are served in the time of one:
                               P = w ((serve + guard [p > 1]) share + per_ps) / cores'(ps_cpu, ps_idle)
    M  what all have in common: M = w · shared
    H  the host, where all processes run on one:
                               H = w (compute + fan_out (p - 1) + serve + guard [p > 1] + p·per_ps)
                                   / cores'(free, w·trainer_idle + p·ps_idle)

    t = (A^s + P^s + M^s + H^s)^(1/s),   s = 1 + sharpness

p is the number of PS, `share` the part of their work that the fullest of them does (1/p where slots are even), and `free` the
cores of the host that others leave. H has no coefficient of its own: that processor time is spent which the others say.

Optimus (Peng et al., EuroSys '18, section 3.2) and DLRover-RM (Wang et al., VLDB '24, section 4) add the terms up (s = 1).
That is right where a trainer waits for a PS without doing anything. But under a CPU quota, as pods have it, a
waiting trainer saves its quota for later: the times overlap, and the largest bound rules (s → ∞, the asymptotic bounds of
Denning and Buzen, "The Operational Analysis of Queueing Network Models", 1978). How far they overlap is a property of the job,
so s is fitted, as in Pollux (Qiao et al., OSDI '21, equation 11), which found the same between computing and synchronising.

The coefficients in core seconds are what an operating system measures: a trainer that makes 1/t steps a second uses
trainer_idle + (compute + fan_out (p - 1)) / t cores, and all PS together p·ps_idle + (serve + guard [p > 1] + p·per_ps) w / t
(the utilisation law). So CPU use says how fast a job would be if something else did not hold it up.

A role without a CPU request may use all cores of its host; where those are not known either it counts as one core, and only
ratios say anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Coefficient:
    name: str
    unit: str
    meaning: str


COEFFICIENTS = (
    Coefficient("fixed", "s", "of a step that no CPU shortens: round trips, waiting for input"),
    Coefficient("compute", "core s", "CPU of a trainer per step, with one PS"),
    Coefficient("fan_out", "core s", "CPU of a trainer per step for each further PS it talks to"),
    Coefficient("trainer_idle", "cores", "used by a trainer beside its steps: threads that poll, reports"),
    Coefficient("serve", "core s", "CPU of all PS together per step: look-ups and updates, which spread over the PS"),
    Coefficient("guard", "core s", "the same for dirty marks and peer backups, which there are with more than one PS"),
    Coefficient("per_ps", "core s", "CPU of each PS per step, however many there are: a request, the busiest slot"),
    Coefficient("ps_idle", "cores", "used by a PS beside steps"),
    Coefficient(
        "shared", "s", "of a step that all trainers need in turn and that more PS do not relieve: network, machine"
    ),
    Coefficient("sharpness", "", "s - 1: 0 where the bounds add up, large where the largest one rules"),
)
NAMES = tuple(coefficient.name for coefficient in COEFFICIENTS)

SHARPNESS_MAX = 15.0
"""Beyond, the bounds have a corner to within 4 %."""


CORES_FLOOR = 0.01


def cores(request: Any, idle: Any) -> Any:
    """What a request leaves for steps: the difference, rounded off near zero so that something is always left."""
    left = request - idle
    return (left + (left * left + CORES_FLOOR * request * request) ** 0.5) / 2


class Place(NamedTuple):
    """A size, as the formula sees it. CPU in cores, positive."""

    ps: int
    trainers: int
    ps_cpu: float
    worker_cpu: float
    share: float  # of the PS' work, of the fullest; 1/ps to 1
    free: float = 0.0  # cores of the one host that others leave; 0: not known, or there are several


def bounds(c: Any, at: Place) -> tuple[float, float, float, float]:
    """(A, P, M, H) in seconds; H is 0 where no host is known."""
    fixed, compute, fan_out, trainer_idle, serve, guard, per_ps, ps_idle, shared, _ = c
    ps, trainers, ps_cpu, worker_cpu, share, free = at
    work, load = compute + fan_out * (ps - 1), serve + guard * (ps > 1)
    own = fixed + work / cores(worker_cpu, trainer_idle)
    served = trainers * (load * share + per_ps) / cores(ps_cpu, ps_idle)
    host = 0.0
    if free:
        host = trainers * (work + load + ps * per_ps) / cores(free, trainers * trainer_idle + ps * ps_idle)
    return own, served, trainers * shared, host


def step_seconds(c: Any, at: Place) -> float:
    """t of the module's text."""
    s = 1 + c[9]
    return float(sum(bound**s for bound in bounds(c, at)) ** (1 / s))


def trainer_cores(c: Any, ps: Any, seconds: Any) -> Any:
    """CPU that a trainer uses whose step takes so long."""
    return c[3] + (c[1] + c[2] * (ps - 1)) / seconds


def ps_cores(c: Any, ps: Any, trainers: Any, seconds: Any) -> Any:
    """CPU that all PS together use when a step takes so long."""
    return ps * c[7] + (c[4] + c[5] * (ps > 1) + c[6] * ps) * trainers / seconds
