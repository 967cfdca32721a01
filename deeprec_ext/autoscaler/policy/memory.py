"""Memory: what a PS needs at another PS count, kills for lack of it, and growth that will reach the limit.

Growth is answered ahead of the kill by the time a change takes and a margin: with a larger request where the backend can
give one, else, for PS, with more PS, between which the slots are spread.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass

from deeprec_ext.autoscaler.model.memory_model import HOLDER_ROOM
from deeprec_ext.autoscaler.observe.observed import Loss, RoleUse, Size
from deeprec_ext.autoscaler.policy import cost, hysteresis
from deeprec_ext.autoscaler.policy.decision import Answer, Proposal, Remark
from deeprec_ext.autoscaler.policy.evidence import HOUR, Evidence
from deeprec_ext.autoscaler.policy.limits import fits
from deeprec_ext.units import format_bytes, format_seconds

GRAIN_BYTES = 16 << 20
"""Requests are rounded up to this."""


def rounded(count: float) -> int:
    return math.ceil(min(count, 1e18) / GRAIN_BYTES) * GRAIN_BYTES


def role_of(name: str) -> str:
    """`ps-1` → `ps`; the chief and workers, which have the same requests → `worker`."""
    return "ps" if name.startswith("ps-") else "worker"


def request_of(size: Size, role: str) -> int:
    return size.ps_memory_bytes if role == "ps" else size.worker_memory_bytes


def limit_of(evidence: Evidence, use: RoleUse, role: str) -> int:
    """What the process may use: its container's limit, else what is requested; 0: not known."""
    return use.memory_limit_bytes or request_of(evidence.size, role)


@dataclass(frozen=True)
class PsMemory:
    """What all PS use together, as far as it matters for another count of them. Bytes."""

    base: float  # of a process without variables
    spread: float  # variables and backups: spread over all PS, counted by the fullest
    slot: float  # the largest slot; it cannot be cut
    limit: float  # of one PS; infinite where none is known

    def need(self, ps: int, backups: bool) -> float:
        """Of the fullest of so many PS."""
        return self.base + max(self.spread / ps, self.slot * (2 if backups and ps > 1 else 1))


def ps_memory(evidence: Evidence) -> PsMemory | None:
    """None where it is not known what the PS use."""
    used = [use.working_set_bytes for use in evidence.ps]
    if not used or not all(used):
        return None
    base = min(evidence.policy.process_bytes, *used)
    limits = [limit for use in evidence.ps if (limit := limit_of(evidence, use, "ps"))]
    largest = float(evidence.observed.model.largest_slot_bytes)
    return PsMemory(base, (max(used) - base) * len(used), largest, min(limits, default=math.inf))


def with_memory_for(evidence: Evidence, known: PsMemory | None, size: Size) -> Size | None:
    """The size, with as much memory per PS as its PS count needs, and per trainer where it leaves one PS; None where that
    cannot be had."""
    if known is None or size.ps >= evidence.size.ps:
        return size
    if size.ps == 1:
        need = trainer_with_copies(evidence) * evidence.policy.memory_headroom
        if not _fits_a_trainer(evidence):
            if not evidence.limits.resizable or not size.worker_memory_bytes:
                return None
            size = dataclasses.replace(size, worker_memory_bytes=max(size.worker_memory_bytes, rounded(need)))
            if not fits(size, evidence.limits):
                return None
    need = known.need(size.ps, evidence.observed.backups) * evidence.policy.memory_headroom
    if need <= known.limit:
        return size
    if not evidence.limits.resizable:
        return None
    larger = dataclasses.replace(size, ps_memory_bytes=max(size.ps_memory_bytes, rounded(need)))
    return larger if fits(larger, evidence.limits) else None


def has_room(evidence: Evidence, known: PsMemory | None, size: Size) -> bool:
    """Whether the host that all share has memory for the processes to come, each as large as the largest of its role."""
    hosts, old = evidence.observed.hosts, evidence.size
    free = hosts[0].free_memory_bytes if evidence.observed.one_host and len(hosts) == 1 else 0
    ps, workers = max(0, size.ps - old.ps), max(0, size.workers - old.workers)
    if not free or not (ps or workers):
        return True
    need = ps * (_grown_to(evidence, known, size.ps) if known is not None else evidence.policy.process_bytes)
    need += workers * max((use.working_set_bytes - use.copies_bytes for use in evidence.of_role("worker")), default=0)
    return need <= evidence.policy.memory_full * free


def _grown_to(evidence: Evidence, known: PsMemory, ps: int) -> float:
    """Bytes of one of so many PS: one that was alone has kept copies of no other."""
    copies = 2 if evidence.size.ps == 1 and evidence.observed.backups else 1
    return dataclasses.replace(known, spread=copies * known.spread).need(ps, evidence.observed.backups)


def lacking(evidence: Evidence, known: PsMemory | None, sizes: Iterable[Size]) -> str:
    """`this machine has 312 MB of memory left, too little for another process`, where that is true of all of these sizes."""
    if not (found := list(sizes)) or any(has_room(evidence, known, size) for size in found):
        return ""
    left = format_bytes(evidence.observed.hosts[0].free_memory_bytes)
    return f"this machine has {left} of memory left, too little for another process"


def trainer_with_copies(evidence: Evidence) -> float:
    """Bytes of the largest trainer once it keeps the copies of a single PS, as each of them may have to."""
    needed = evidence.observed.copies_bytes
    return max(
        (use.working_set_bytes + (0 if use.copies_bytes else needed) for use in evidence.of_role("worker")), default=0
    )


def _fits_a_trainer(evidence: Evidence) -> bool:
    """Whether a trainer has the copies of a single PS, or room for them, or none is needed."""
    needed = evidence.observed.copies_bytes
    return not needed or any(
        use.copies_bytes or not (limit := limit_of(evidence, use, "worker"))
        or use.working_set_bytes + needed <= HOLDER_ROOM * limit
        for use in evidence.of_role("worker")
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- rules


def homeless(evidence: Evidence) -> Answer:
    """The copies of a single PS fit no trainer, so that it has no backup."""
    uses = evidence.of_role("worker")
    if evidence.size.ps != 1 or not evidence.limits.resizable or not uses or not all(u.working_set_bytes for u in uses):
        return None
    if _fits_a_trainer(evidence) or any(use.age_seconds < evidence.policy.memory_age_seconds for use in uses):
        return None
    need, had = trainer_with_copies(evidence) * evidence.policy.memory_headroom, request_of(evidence.size, "worker")
    what = f"no trainer has room for the copies of the single PS ({format_bytes(evidence.observed.copies_bytes)})"
    return _more(evidence, "worker", need, need / had if had else 1.0, what)


def killed(evidence: Evidence) -> Answer:
    """A process that was killed for lack of memory gets more, once per kill."""
    for loss in reversed(_kills(evidence)):
        role = role_of(loss.name)
        if _answered(evidence, role, loss.time):
            continue
        had = loss.memory_limit_bytes or request_of(evidence.size, role)
        what = f"{loss.name} was killed for lack of memory {format_seconds(max(0.0, evidence.now - loss.time))} ago"
        what += f" at a limit of {format_bytes(had)}" if had else ""
        return _more(evidence, role, evidence.policy.memory_factor * had, evidence.policy.memory_factor, what)
    return None


def growing(evidence: Evidence) -> Answer:
    """Growth that reaches the limit before one change and the margin are over."""
    policy = evidence.policy
    for role in ("ps", "worker"):
        ahead = cost.duration(evidence, role) + policy.memory_margin_seconds
        for use in evidence.of_role(role):
            limit, slope = limit_of(evidence, use, role), use.memory_slope_bytes_per_second
            if not limit or not use.working_set_bytes or use.age_seconds < policy.memory_age_seconds:
                continue
            room = policy.memory_full * limit - use.working_set_bytes
            seconds = room / slope if slope > 0 else math.inf
            if seconds >= ahead or (slope <= 0 and room > 0) or evidence.seconds_to_last < max(0.0, seconds):
                continue
            horizon = min(evidence.seconds_to_last, policy.horizon_seconds)
            need = (use.working_set_bytes + max(0.0, slope) * horizon) * policy.memory_headroom
            what = (
                f"{use.name} uses {format_bytes(use.working_set_bytes)} of {format_bytes(limit)}, grows by "
                f"{format_bytes(max(0.0, slope) * 60)} a minute and is full in {format_seconds(max(0.0, seconds))}"
                if slope > 0 else f"{use.name} uses {format_bytes(use.working_set_bytes)} of {format_bytes(limit)}"
            )  # fmt: skip
            return _more(evidence, role, max(need, 1.25 * limit), max(1.25, need / limit), what)
    return None


def killed_lately(evidence: Evidence, role: str) -> bool:
    return any(role_of(loss.name) == role for loss in _kills(evidence))


def _kills(evidence: Evidence) -> list[Loss]:
    """Processes that were killed for lack of memory within the last hour."""
    return [
        loss for loss in evidence.observed.losses if loss.cause.startswith("oom") and evidence.now - loss.time <= HOUR
    ]


def _answered(evidence: Evidence, role: str, time: float) -> bool:
    """Whether memory was added since."""
    return any(
        change.time >= time and change.role == role and change.kind in ("resize", "scale-up")
        for change in evidence.past()
    )


def _more(evidence: Evidence, role: str, wanted: float, factor: float, what: str) -> Answer:
    """A larger request, as large as wanted or as the limits allow; else more PS; else a remark that neither can be."""
    size, limits = evidence.size, evidence.limits
    if why := hysteresis.failed(evidence, role, ("resize", "scale-up")):
        return Remark(f"{what}; {why}", grave=True)
    had = request_of(size, role)
    if limits.resizable and had:
        name = f"{role}_memory_bytes"
        most = getattr(limits, f"max_{name}")
        for share in (1.0, 0.5, 0.25):  # of the growth that is wanted: the quota may have room for some of it
            more = rounded(had + share * (wanted - had))
            larger = evidence.with_size(**{name: min(more, most) if most else more})
            if getattr(larger, name) > had and fits(larger, limits):
                return Proposal(
                    "resize", larger, f"{what}: {format_bytes(getattr(larger, name))} per {_named(role)} instead"
                )
    held = had or any(use.memory_limit_bytes for use in evidence.of_role(role))
    if evidence.observed.one_host and not held:
        return Remark(f"{what}: the machine has no more, and further processes would only want more of it", grave=True)
    if role == "ps" and not hysteresis.manual(evidence, "ps"):
        for count in range(min(math.ceil(size.ps * min(factor, 4.0)), limits.max_ps), size.ps, -1):
            if fits(larger := evidence.with_size(ps=count), limits):
                return Proposal("scale", larger, f"{what}: {count} PS instead of {size.ps} share the slots")
    return Remark(f"{what}, but no more memory can be given within the limits", grave=True)


def _named(role: str) -> str:
    return "PS" if role == "ps" else role
