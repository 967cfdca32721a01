"""Chance of one job: reproducible from the seed and the job's name, and the same whatever the policy asks for first."""

from __future__ import annotations

import math
import random

from deeprec_ext.simulator.trace import SimulatedCluster, Workload


class Luck:
    """Separate streams, so that a policy that looks more often does not get other hosts."""

    def __init__(self, seed: int, work: Workload, cluster: SimulatedCluster) -> None:
        self._cluster, self._work = cluster, work
        self._noise = random.Random(f"{seed}/{work.name}/noise")
        self._hosts = random.Random(f"{seed}/{work.name}/hosts")
        self._events = random.Random(f"{seed}/{work.name}/events")

    def window(self) -> float:
        """Factor on the throughput that a ten-second window shows."""
        factor = math.exp(self._noise.gauss(0.0, self._work.noise))
        return factor * (0.5 if self._noise.random() < self._work.bursts else 1.0)

    def reading(self) -> float:
        """Factor on a mean over a minute: of CPU, of step time."""
        return 0.97 + 0.06 * self._noise.random()

    def speed(self) -> float:
        """Of the host a new pod lands on."""
        slow = self._hosts.random() < self._cluster.slow_share
        return (self._cluster.slow_speed if slow else 1.0) * math.exp(
            self._hosts.gauss(0.0, self._cluster.speed_scatter)
        )

    def spot(self) -> bool:
        return self._hosts.random() < self._cluster.spot_share

    def start_seconds(self, pods: int) -> float:
        """Until the last of so many new pods works."""
        draws = (self._hosts.gauss(0.0, self._cluster.pod_start_scatter) for _ in range(pods))
        return self._cluster.pod_start_seconds * math.exp(max(draws, default=0.0)) if pods else 0.0

    def until(self, per_hour: float) -> float:
        """Seconds until the next event of such a rate; infinite for 0."""
        return self._events.expovariate(per_hour / 3600) if per_hour > 0 else math.inf

    def pick(self, count: int) -> int:
        return self._events.randrange(count)
