"""Limits: whether they can be met at all, whether a size meets them, and the nearest size that does."""

from __future__ import annotations

import dataclasses
from typing import Any

from deeprec_ext.autoscaler.observe.observed import Limits, Size
from deeprec_ext.autoscaler.observe.sane import sane_number
from deeprec_ext.units import format_bytes, sized

_SLACK = 1e-9
"""Sums of requests are sums of floats: 10 x 0.1 fits a quota of 1."""

_REQUESTS = {name: f"max_{name}" for name in ("ps_cpu", "worker_cpu", "ps_memory_bytes", "worker_memory_bytes")}
"""Of a size, and the limit on it."""


def contradiction(size: Size, limits: Limits) -> str:
    """Why no size meets the limits; empty when one does. `size`: whose requests per pod count."""
    for field in dataclasses.fields(Limits):
        value: Any = getattr(limits, field.name)
        if field.name != "resizable" and not sane_number(value):
            return f"the limit {field.name} is {value!r}, which is no amount"
    for role, low, high in (
        ("PS", limits.least_ps, limits.max_ps), ("workers", limits.min_workers, limits.max_workers)
    ):  # fmt: skip
        if low > high:
            return f"at least {low} {role} and at most {high} cannot both be"
    smallest = dataclasses.replace(_capped(size, limits), ps=limits.least_ps, workers=limits.min_workers)
    if not _in_quota(smallest, limits):
        return (
            f"even the smallest size ({describe(smallest)}: {smallest.cpu:g} cores, {format_bytes(smallest.memory_bytes)}) "
            f"exceeds the quota of {limits.total_cpu or float('inf'):g} cores and "
            f"{format_bytes(limits.total_memory_bytes) if limits.total_memory_bytes else 'any memory'}"
        )
    return ""


def _capped(size: Size, limits: Limits) -> Size:
    """With requests no larger than the limits, where requests can be changed."""
    highs = {name: getattr(limits, limit) for name, limit in _REQUESTS.items()} if limits.resizable else {}
    return dataclasses.replace(
        size, **{name: min(getattr(size, name), high) for name, high in highs.items() if high > 0}
    )


def _in_quota(size: Size, limits: Limits) -> bool:
    cpu = limits.total_cpu <= 0 or size.cpu <= limits.total_cpu * (1 + _SLACK)
    return cpu and (limits.total_memory_bytes <= 0 or size.memory_bytes <= limits.total_memory_bytes)


def fits(size: Size, limits: Limits) -> bool:
    """Whether a size is within limits that do not contradict each other."""
    if not (limits.least_ps <= size.ps <= limits.max_ps and limits.min_workers <= size.workers <= limits.max_workers):
        return False
    if limits.resizable:
        for name, limit in _REQUESTS.items():
            if (high := getattr(limits, limit)) > 0 and getattr(size, name) > high * (1 + _SLACK):
                return False
    return _in_quota(size, limits)


def nearest(size: Size, limits: Limits) -> Size:
    """The size that is within the limits and changes the least: counts and requests cut, then workers, then PS given up."""
    low = limits.least_ps
    ps = min(max(size.ps, low), limits.max_ps)
    workers = min(max(size.workers, limits.min_workers), limits.max_workers)
    size = dataclasses.replace(_capped(size, limits), ps=ps, workers=workers)
    size = dataclasses.replace(size, workers=_most(size, limits, "workers", limits.min_workers, workers))
    return dataclasses.replace(size, ps=_most(size, limits, "ps", low, ps))


def _most(size: Size, limits: Limits, name: str, low: int, high: int) -> int:
    """The largest count that stays in the quota; `low` when none does. By bisection: the sums grow with the count."""
    if _in_quota(size, limits):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if _in_quota(dataclasses.replace(size, **{name: middle}), limits):
            low = middle
        else:
            high = middle
    return low


def describe(size: Size) -> str:
    """`2 PS, 3 workers`, without PS `3 workers`; with requests where there are some."""
    text = sized(size.ps, size.workers)
    for role, cpu, memory in (
        ("PS", size.ps_cpu, size.ps_memory_bytes), ("worker", size.worker_cpu, size.worker_memory_bytes)
    ):  # fmt: skip
        parts = [f"{cpu:g} cores"] * bool(cpu) + [format_bytes(memory)] * bool(memory)
        text += f", {' and '.join(parts)} per {role}" if parts else ""
    return text
