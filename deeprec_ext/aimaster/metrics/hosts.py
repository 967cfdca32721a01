"""The hosts that the job runs on: what each has, what the job uses of it, and what others do. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

COVERED = 0.8
"""Share of what the job uses on a host that a quota must have counted, as each process of it tells, to be the quota of all:
where each is held to its own, that of the one that does nearly all has counted as much, and those of the others have not."""


@dataclass(frozen=True)
class OnHost:
    """A PS or a trainer, and what it has told."""

    host: str  # what ends with its machine (`Member.place`)
    ps: bool
    cpu_cores: float
    told: Mapping[str, float]  # `gazer.values.host_values`
    processors: frozenset[int] = frozenset()  # that it may use; empty: not known


@dataclass(frozen=True)
class HostUse:
    """One host, over the last interval. The AIMaster, an evaluator and the launcher are others: they train nothing."""

    cores: float  # that processes of the job may use together: processors, or a lower quota
    job_cores: float
    others_cores: float
    ps: int
    trainers: int


def hosts_of(processes: Iterable[OnHost]) -> dict[str, HostUse]:
    """By host, those of which a process tells. What each uses is known of all: who tells nothing else has a heartbeat."""
    placed: dict[str, list[OnHost]] = {}
    for process in processes:
        placed.setdefault(process.host, []).append(process)
    return {host: use for host, there in placed.items() if (use := _use(there)) is not None}


def _use(there: list[OnHost]) -> HostUse | None:
    tell = [one for one in there if "busy_cores" in one.told]
    if not tell:
        return None
    told = [one.told for one in tell]
    job = sum(one.cpu_cores for one in there)
    cores, busy = _together(tell)
    others = max(0.0, busy - job)
    counted = [one.get("quota_busy_cores", -1.0) for one in told]
    if 0 <= min(counted) >= COVERED * job:  # else there are several containers
        quota = min(told, key=lambda one: one["quota_cores"])
        beside = max(0.0, quota["quota_busy_cores"] - job)
        if quota["quota_cores"] - beside < cores - others:
            cores, others = quota["quota_cores"], beside
    servers = sum(one.ps for one in there)
    return HostUse(cores, job, others, servers, len(there) - servers)


def _together(there: list[OnHost]) -> tuple[float, float]:
    """(cores, busy cores) of the processors that they may use together: each may be kept to some of them.

    Where sets overlap in part, what a set did is taken as spread evenly over it.
    """
    kept: dict[frozenset[int], list[float]] = {}
    for one in there:
        kept.setdefault(one.processors, []).append(one.told["busy_cores"])
    if frozenset() in kept:  # some do not say which
        return max(one.told["cores"] for one in there), statistics.median(one.told["busy_cores"] for one in there)
    counted: set[int] = set()
    busy = 0.0
    for processors in sorted(kept, key=lambda numbers: (-len(numbers), sorted(numbers))):
        busy += statistics.median(kept[processors]) * len(processors - counted) / len(processors)
        counted |= processors
    return float(len(counted)), busy
