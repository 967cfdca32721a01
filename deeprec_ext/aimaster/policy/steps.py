"""How far one decision goes: straight to the best size where much is known, else a step, in one dimension at a time."""

from __future__ import annotations

import dataclasses
import math

from deeprec_ext.aimaster.policy.evidence import Evidence
from deeprec_ext.aimaster.policy.observed import Size
from deeprec_ext.aimaster.policy.search import Search

FIELDS = ("ps", "workers", "ps_cpu", "worker_cpu")

MOST = 0.5
"""Share of what a change in several dimensions is worth, from which one of them alone is tried first."""


def towards(evidence: Evidence, search: Search, target: Size, sure: bool) -> Size:
    """The size one decision may go to on the way to `target`; the target itself if it is near enough.

    Only growth leaps: where a role becomes too small, queues build up that no model of the other side has seen.
    """
    up, down = evidence.policy.leap_factor if sure else evidence.policy.step_factor, evidence.policy.step_factor
    size = evidence.size
    near = dataclasses.replace(
        target,
        ps=_limited(size.ps, target.ps, up, down),
        workers=_limited(size.trainers, target.trainers, up, down) - 1,
    )
    if not sure:
        near = _one_dimension(evidence, search, near)
    return search.allowed(near) or size


def _limited(now: int, target: int, up: float, down: float) -> int:
    """Counts of at least 1."""
    if target > now:
        return min(target, max(now + 1, math.floor(now * up)))
    return max(target, min(now - 1, math.ceil(now / down))) if target < now else now


def _one_dimension(evidence: Evidence, search: Search, near: Size) -> Size:
    """The one change of `near` that brings most by itself. All of it, where they need each other."""
    size = evidence.size
    changed = [name for name in FIELDS if getattr(near, name) != getattr(size, name)]
    if len(changed) < 2:
        return near
    saves = search.price(near) < search.price(size)
    options = [dataclasses.replace(size, **{name: getattr(near, name)}) for name in changed]
    allowed = [found for option in options if (found := search.allowed(option)) is not None]

    def worth(option: Size) -> float:
        if saves:
            return (1 - search.price(option) / search.price(size)) - max(
                0.0, 1 - search.rate(option) / search.rate(size)
            )
        return search.rate(option) / search.rate(size) - 1

    best = max(allowed, key=worth, default=near)
    return best if allowed and worth(best) > max(0.0, MOST * worth(near)) else near
