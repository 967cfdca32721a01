"""Clusters for the arbiter's tests, in a few words: a pod has one core and 1 GiB, a node four and 16, unless said otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from deeprec_ext.arbiter.deciding import decide
from deeprec_ext.arbiter.observed import (
    Allowance,
    Bid,
    Cluster,
    Count,
    Decision,
    Job,
    Node,
    Placed,
    Pods,
    Quota,
    Resources,
    Waiting,
    Worth,
)  # fmt: skip
from deeprec_ext.arbiter.rules import Rules

NOW = 10_000.0
GIB = 1 << 30


def cores(count: float) -> Resources:
    return Resources(count, int(count * GIB))


def nodes(count: int, of_cores: float = 4.0) -> tuple[Node, ...]:
    return tuple(Node(f"node-{at:03}", Resources(of_cores, 64 * GIB)) for at in range(count))


def worth(power: float, least: tuple[int, int], most: tuple[int, int]) -> tuple[Worth, ...]:
    """Throughput as a power of the trainers, of all numbers of workers."""
    return tuple(
        Worth(ps, count, 100.0 * (count + 1) ** power)
        for ps in range(least[0], most[0] + 1) for count in range(least[1], most[1] + 1)
    )[:64]  # fmt: skip


def bid(size: tuple[int, int], wanted: tuple[int, int], worth: tuple[Worth, ...], **more: Any) -> Bid:
    values: dict[str, Any] = {"left": 1e9, "change_seconds": 8.0, "pause_seconds": 2.0, "training": True} | more
    return Bid(NOW, Count(*size), Count(*wanted), worth, **values)


def job(
    name: str, least: tuple[int, int] = (0, 1), most: tuple[int, int] = (0, 7), *, priority: int = 0, power: float | None = 0.9,
    allowed: tuple[int, int] | None = None, on: str = "", age: float = 1000.0, pod: float = 1.0, **more: Any,
) -> Job:  # fmt: skip
    """Args: allowed: it has run with this since `age` seconds, and its pods are `on` that node (else on none)."""
    running = allowed is not None
    size = allowed or least
    placed = (
        [Placed("chief", on), *[Placed("ps", on)] * size[0], *[Placed("worker", on)] * size[1]]
        if running and on
        else []
    )
    known = bid(size, most, worth(power, least, most)) if power is not None else None
    given = Allowance(name, True, *size, NOW - age, "before") if running else None
    values: dict[str, Any] = {
        "name": name, "priority": priority, "weight": 1.0, "least": Count(*least), "most": Count(*most),
        "pods": Pods(cores(pod), cores(pod), cores(pod), Resources()), "placed": tuple(placed), "queue": "",
        "arrived": NOW - 2000.0, "started": running, "strict": False, "written": Count(*most), "allowance": given,
        "bid": known, "silent_seconds": 1.0,
    }  # fmt: skip
    return Job(**(values | more))


def pod(name: str, priority: int, of_cores: float = 1.0) -> Waiting:
    return Waiting(name, priority, cores(of_cores), NOW - 5.0)


def cluster(
    jobs: Iterable[Job], on: Sequence[Node], waiting: Iterable[Waiting] = (), quotas: Iterable[Quota] = ()
) -> Cluster:
    return Cluster(NOW, tuple(on), tuple(waiting), tuple(quotas), tuple(jobs))


def given(seen: Cluster, decision: Decision, *, later: float = 0.0) -> Cluster:
    """The same, with what was decided."""
    jobs = tuple(dataclasses.replace(one, allowance=now) for one, now in zip(seen.jobs, decision.allowances))
    return dataclasses.replace(seen, jobs=jobs, time=seen.time + later)


def sizes(seen: Cluster, rules: Rules = Rules()) -> dict[str, tuple[int, int] | None]:  # noqa: B008
    """Job → (PS, workers); None: it waits."""
    return {one.job: (one.ps, one.workers) if one.runs else None for one in decide(seen, rules).allowances}


def workers(seen: Cluster, rules: Rules = Rules()) -> list[int | None]:  # noqa: B008
    """In the order of the jobs."""
    return [one.workers if one.runs else None for one in decide(seen, rules).allowances]


def why(seen: Cluster, name: str) -> str:
    return next(one.why for one in decide(seen).allowances if one.job == name)
