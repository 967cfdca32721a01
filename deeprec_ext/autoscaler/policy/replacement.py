"""A new process for one whose host goes away, that hangs, or that is slower than the others for long."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from deeprec_ext.autoscaler.policy import cost, exploring, hysteresis
from deeprec_ext.autoscaler.policy.decision import Answer, Proposal, Remark
from deeprec_ext.autoscaler.policy.evidence import HOUR, Evidence
from deeprec_ext.autoscaler.policy.memory import role_of
from deeprec_ext.units import format_busy, format_seconds

OTHERS_MIN = 2
"""A process is compared with at least so many others: of two nobody knows which one is the odd one."""

DEVIATIONS = 4.0
"""And must be so many robust standard deviations off, where the others scatter much."""

HUNG_STEPS = 10
"""A trainer that makes no step for fewer of the others' steps is slow, not hung."""

SHARE_PER_HOUR = 0.1
"""Of the processes that are replaced for slowness within an hour, at least 2: when many are slow, the reason is another."""

DOUBLED_MAX = 6
"""That hour is twice as long each time so many have been replaced, at most this often: whoever is still slow in a new process
has a reason that no new process takes away."""


def reclaimed(evidence: Evidence) -> Answer:
    """A process whose host is about to be taken away moves while it can."""
    for name in sorted(evidence.observed.reclaimed):
        if not name.startswith(("ps-", "worker-")):
            continue  # the chief cannot be replaced while it lives; its replacement attaches to the model
        if why := hysteresis.failed(evidence, role_of(name), ("replace",)):
            return Remark(f"{name} will lose its host; {why}", grave=True)
        return Proposal("replace", evidence.size, f"{name} will lose its host: a new process takes over before", name)
    return None


def hung(evidence: Evidence) -> Answer:
    """A worker that makes no step while the others do."""
    policy = evidence.policy
    for use in evidence.trainers:
        waits = use.input_wait_share >= policy.starved_share  # for data, which a new process would wait for too
        if use.stepless_seconds < policy.hung_seconds or waits or not use.name.startswith("worker-"):
            continue
        others = [other for other in evidence.trainers if other.name != use.name]
        if len(others) < OTHERS_MIN:
            continue
        long = max(policy.hung_seconds, HUNG_STEPS * statistics.median(other.step_seconds for other in others))
        if use.stepless_seconds >= long > 2 * statistics.median(other.stepless_seconds for other in others):
            rate = statistics.median(other.steps_per_second for other in others)
            why = f"{use.name} has made no step for {format_seconds(use.stepless_seconds)}, the others make {rate:.2g} a second"
            return _replace(evidence, use.name, why, share=1 / len(evidence.trainers), sure=True)
    return None


def straggler(evidence: Evidence) -> Answer:
    """The slowest worker, if it is slow by far, and has been for minutes.

    Without PS all make each step together, so what counts of it is what a worker does by itself (`own_seconds`).
    """
    policy = evidence.policy
    grown = [use for use in evidence.trainers if use.age_seconds >= policy.straggler_seconds and use.own_seconds > 0]
    workers = [use for use in grown if use.name.startswith("worker-") and use.input_wait_share < policy.starved_share]
    if workers:
        use = min(workers, key=lambda use: (-use.own_seconds, use.name))
        others = [other.own_seconds for other in grown if other.name != use.name]
        if not _far_off(min(use.own_seconds, use.step_seconds_lasting), others, policy.straggler_factor):
            return None
        middle = statistics.median(others)
        if evidence.limits.sums:
            why = (
                f"{use.name} needs {format_seconds(use.own_seconds)} of a step before its sum, "
                f"{use.own_seconds / middle:.1f} times as long as the median worker, and has for minutes: all wait for it"
            )
            return _replace(evidence, use.name, why, share=(use.own_seconds - max(others)) / use.step_seconds)
        why = (
            f"a step of {use.name} takes {format_seconds(use.step_seconds)}, {use.step_seconds / middle:.1f} times as long as "
            f"the median trainer's, and has for minutes"
        )
        return _replace(evidence, use.name, why, share=(1 - middle / use.step_seconds) / len(evidence.trainers))
    return None


def slow_ps(evidence: Evidence) -> Answer:
    """A PS that is busy for much longer per CPU second than the others: its host is short of CPU."""
    policy = evidence.policy
    working = [use for use in evidence.ps if use.cpu_cores > 0.01 and use.busy_share > 0]
    per_core = {use.name: use.busy_share / use.cpu_cores for use in working}
    if working:
        use = min(working, key=lambda use: (-per_core[use.name], use.name))
        others = [ratio for name, ratio in per_core.items() if name != use.name]
        at_its_limit = use.throttled_share >= policy.throttled_share  # more CPU helps, another host does not
        if (
            use.busy_share < policy.busy_share
            or at_its_limit
            or use.busy_share < max(one.busy_share for one in working)
        ):
            return None
        if use.age_seconds < policy.straggler_seconds or not _far_off(
            per_core[use.name], others, policy.slow_ps_factor
        ):
            return None
        times = per_core[use.name] / statistics.median(others)
        why = f"{use.name} ({format_busy(use.busy_share)}) is busy for {times:.1f} times as long per CPU second as other PS"
        return _replace(evidence, use.name, why, share=min(0.5, use.busy_share * (1 - 1 / times)))
    return None


def _far_off(value: float, others: Sequence[float], factor: float) -> bool:
    if len(others) < OTHERS_MIN:
        return False
    middle = statistics.median(others)
    deviation = 1.4826 * statistics.median(abs(other - middle) for other in others)
    return value > factor * middle and value > middle + DEVIATIONS * deviation


def _replace(evidence: Evidence, name: str, why: str, share: float, sure: bool = False) -> Answer:
    """Args:
    share: of the job's throughput that a sound process in its place would add.
    sure: it will be one. Who is slow may be so in a new process as well: that is a trial, whose price is limited.
    """
    role, policy = role_of(name), evidence.policy
    if wait := hysteresis.failed(evidence, role, ("replace",)):
        return Remark(f"{why}; {wait}")
    made = [one for one in evidence.past(seconds=math.inf) if one.kind == "replace" and not one.manual]
    most = max(2, int(SHARE_PER_HOUR * len(evidence.observed.roles)))
    span = HOUR * 2 ** min(DOUBLED_MAX, len(made) // most)
    recent = [one for one in made if one.time >= evidence.now - span]
    if len(recent) >= most:
        return Remark(f"{why}; {len(recent)} were replaced within {format_seconds(span)} already")
    since = evidence.now - max((one.time for one in recent), default=-HOUR)
    if since < policy.up_cooldown_seconds:
        return Remark(f"{why}; the last replacement was {format_seconds(since)} ago")
    left = evidence.seconds_left - cost.duration(evidence, role)
    lost = cost.duration(evidence, role) / max(1, len(evidence.trainers))  # the new process costs as much as an old one
    if role == "ps":
        seconds, pause = cost.of_ps_change(evidence, 0.0)
        lost = pause + policy.disturbance * seconds
    dear = lost
    if exploring.full(evidence):
        dear = cost.duration(evidence, role)  # its start takes from all who share its cores
    if share * left < policy.payback * lost:
        return Remark(f"{why}; replacing it would not pay in the {format_seconds(max(0.0, left))} that are left")
    if not sure and dear > policy.explore_share * left:
        return Remark(
            f"{why}; a new process may be as slow, and to try it may cost {format_seconds(dear)}, more than "
            f"{policy.explore_share:.1%} of the {format_seconds(max(0.0, left))} that are left"
        )
    return Proposal("replace", evidence.size, f"{why}: a new process in its place", name)
