"""How many examples a second the free cores of the job's hosts can pay for: no prediction exceeds it, whatever a formula says.

What an example costs is measured, by size: CPU seconds of trainers and of PS. A larger size does the same work and more of what
only several processes have to do (dirty marks, peer backups, requests), so it costs no less than the sizes below it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deeprec_ext.autoscaler.observe.observed import Host, Size, Window

Counts = tuple[int, int]
"""PS, trainers."""


@dataclass(frozen=True)
class Cost:
    """CPU seconds per example, of all trainers and of all PS together."""

    trainers: float
    ps: float

    @property
    def both(self) -> float:
        return self.trainers + self.ps


def costs_of(windows: Sequence[Window]) -> dict[Counts, Cost]:
    """By counts, the median of the windows that know it."""
    grouped: dict[Counts, list[Window]] = {}
    for window in windows:
        served = window.ps_cpu_cores > 0 or window.size.ps == 0
        if window.trainer_cpu_cores > 0 and served and window.examples_per_second > 0:
            grouped.setdefault((window.size.ps, window.size.trainers), []).append(window)
    return {
        counts: Cost(
            statistics.median(w.trainer_cpu_cores * w.size.trainers / w.examples_per_second for w in group),
            statistics.median(w.ps_cpu_cores / w.examples_per_second for w in group),
        )
        for counts, group in grouped.items()
    }


def least_cost(costs: Mapping[Counts, Cost], size: Size) -> Cost | None:
    """What an example costs at a size at least; None: no size as small was measured.

    That is what it costs at the nearest sizes below, between which and this one none was measured; of several the least.
    """
    below = {
        (ps, trainers): cost for (ps, trainers), cost in costs.items() if ps <= size.ps and trainers <= size.trainers
    }
    nearest = [
        cost for (ps, trainers), cost in below.items()
        if not any(other != (ps, trainers) and other[0] >= ps and other[1] >= trainers for other in below)
    ]  # fmt: skip
    return min(nearest, key=lambda cost: cost.both, default=None)


def of_one_host(cost: Cost, free_cores: float) -> float:
    """Examples per second, where all processes share these cores."""
    return free_cores / cost.both if cost.both > 0 else math.inf


def of_hosts(cost: Cost, hosts: Sequence[Host], size: Size) -> float:
    """Examples per second at most, where processes to come get hosts of their own: the first that is full rules.

    Each process does its share of the work, so a host pays for those that it has; when there are more, each does less.
    """
    found = math.inf
    for host in hosts:
        trainers = min(host.trainers, size.trainers) / size.trainers
        each = cost.trainers * trainers + (cost.ps * min(host.ps, size.ps) / size.ps if size.ps else 0.0)
        if each > 0:
            found = min(found, host.free_cores / each)
    return found
