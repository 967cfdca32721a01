"""Requests of CPU and memory per pod, where the backend can change them: more where a limit binds, less where nothing does.

Whether less CPU makes a role slower cannot be read off its mean use (a worker that computes half of the time with 4 cores
uses 2); but a process that is never throttled never had its limit in its way.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from deeprec_ext.autoscaler.observe.observed import RoleUse, Size
from deeprec_ext.autoscaler.outcomes.measured import key_of
from deeprec_ext.autoscaler.policy import cost, hysteresis, memory
from deeprec_ext.autoscaler.policy.decision import Answer, Proposal, Remark
from deeprec_ext.autoscaler.policy.evidence import Evidence
from deeprec_ext.autoscaler.policy.limits import describe, fits

LADDER = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
"""Times powers of ten: the requests of CPU that are made. Few values, so that what was measured at one is met again."""

CPU_SETTLED_SECONDS = 60.0
"""Means are over a minute: a younger process has no mean yet."""


def rounded(cores: float) -> float:
    """The next value of the ladder, from 0.01 core on; itself if it is one."""
    power = 10.0 ** math.floor(math.log10(max(cores, 0.01)))
    found = next((step for step in LADDER if step * power >= cores * (1 - 1e-9)), 10.0)
    return float(f"{found * power:.3g}")


def larger(evidence: Evidence, size: Size) -> Iterator[Size]:
    """Sizes with more CPU per pod, for the roles whose limit binds at present: whether a larger one binds is not known."""
    if not evidence.limits.resizable:
        return
    for index, role, most in ((2, "ps", evidence.limits.max_ps_cpu), (3, "worker", evidence.limits.max_worker_cpu)):
        if evidence.exhausted(index):
            continue
        present = getattr(evidence.size, f"{role}_cpu")
        more = rounded(present * evidence.policy.cpu_factor)
        more = min(more, most) if most > 0 else more
        if present > 0 and more > getattr(size, f"{role}_cpu") and evidence.pressed(role):
            yield dataclasses.replace(size, ps_cpu=more) if role == "ps" else dataclasses.replace(size, worker_cpu=more)


# ------------------------------------------------------------------------------------------------------------ rule


def unused(evidence: Evidence) -> Answer:
    """Gives back CPU and memory that no process of a role needs."""
    if not evidence.limits.resizable or evidence.present is None:
        return None
    if evidence.present.windows < evidence.policy.windows_min:
        return None
    values = {**_cpu(evidence), **_memory(evidence)}
    size = evidence.with_size(**values)
    if not values or not fits(size, evidence.limits):
        return None
    saved = 1 - _price(evidence, size) / _price(evidence, evidence.size)
    if saved * evidence.share_left < evidence.policy.saving_min * evidence.stake:
        return None
    what = f"{describe(size)} is all that is used of {describe(evidence.size)}, {saved:.0%} less"
    if why := hysteresis.blocked(evidence, size):
        return Remark(f"{what}; {why}")
    if not cost.pays(evidence, saved, cost.Cost(0.0, evidence.policy.pause_seconds, 0.0)):
        return Remark(f"{what}; it would not pay in the time that is left")
    return Proposal("resize", size, what)


def _price(evidence: Evidence, size: Size) -> float:
    per_core = evidence.policy.bytes_per_core
    return size.cpu + size.memory_bytes / per_core or 1.0


def _settled(evidence: Evidence, role: str) -> tuple[RoleUse, ...]:
    """The processes of a role if all are old enough to be judged by; else none."""
    uses = evidence.of_role(role)
    young = any(use.age_seconds < CPU_SETTLED_SECONDS for use in uses)
    return () if young or evidence.now - evidence.changed_at < CPU_SETTLED_SECONDS else uses


def _cpu(evidence: Evidence) -> dict[str, float]:
    found: dict[str, float] = {}
    policy = evidence.policy
    for role in ("ps", "worker"):
        uses, now = _settled(evidence, role), getattr(evidence.size, f"{role}_cpu")
        if not uses or now <= 0 or any(use.cpu_cores <= 0 for use in uses):
            continue
        if max(use.throttled_share for use in uses) > policy.throttled_share / 5:
            continue
        headroom = policy.ps_cpu_headroom if role == "ps" else policy.worker_cpu_headroom
        need = max(headroom * max(use.cpu_cores for use in uses), now / policy.cpu_factor**2)
        less = rounded(max(need, 1.01 * _too_little(evidence, role)))
        if less <= policy.shrink_below * now:
            found[f"{role}_cpu"] = less
    return found


def _too_little(evidence: Evidence, role: str) -> float:
    """The most CPU per process of a role with which the job ran slower than now, at the same counts; 0: never."""
    present = key_of(evidence.size)
    index = 2 if role == "ps" else 3
    slow = (1 - evidence.policy.marginal_loss) * evidence.rate
    return max(
        (key[index] for key, measured in evidence.measured.items()
         if key[:2] == present[:2] and key[index] < present[index] and measured.rate < slow), default=0.0
    )  # fmt: skip


def _memory(evidence: Evidence) -> dict[str, float]:
    found: dict[str, float] = {}
    policy = evidence.policy
    for role in ("ps", "worker"):
        uses, now = _settled(evidence, role), memory.request_of(evidence.size, role)
        if not uses or now <= 0 or any(use.working_set_bytes <= 0 for use in uses):
            continue
        horizon = min(evidence.seconds_to_last, policy.horizon_seconds)
        need = max(use.working_set_bytes + max(0.0, use.memory_slope_bytes_per_second) * horizon for use in uses)
        if role == "worker" and evidence.size.ps == 1:
            need = max(need, memory.trainer_with_copies(evidence))
        need *= max(policy.memory_headroom, _after_a_loss(evidence) if role == "ps" else 1.0)
        if need <= policy.shrink_below * now and not memory.killed_lately(evidence, role):
            found[f"{role}_memory_bytes"] = memory.rounded(need)
    return found


def _after_a_loss(evidence: Evidence) -> float:
    """The survivors of a lost PS hold its slots, and backups of theirs anew; of two the other one has it all already."""
    count = evidence.size.ps
    return count / (count - 1) if evidence.observed.backups and count > 2 else 1.0
