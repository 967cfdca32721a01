"""The capacity of the cluster: one pool. Jobs wait in line for their first pods, later ones take what is free."""

from __future__ import annotations

from deeprec_ext.simulator.trace import SimulatedCluster
from deeprec_ext.simulator.virtual_clock import Clock


class Pool:
    """Cores and bytes that are taken."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster, self.cores, self.memory = cluster, 0.0, 0.0

    def fits(self, cores: float, memory: float) -> bool:
        return self.cores + cores <= self.cluster.cores * (1 + 1e-9) and self.memory + memory <= self.cluster.memory

    def take(self, cores: float, memory: float) -> None:
        """Or give back, with negative amounts."""
        self.cores += cores
        self.memory += memory


class Unbounded(Pool):
    """Room for all, with notes of what was taken when, and of the most that was asked for at once."""

    def __init__(self, cluster: SimulatedCluster, clock: Clock) -> None:
        super().__init__(cluster)
        self._clock = clock
        self.taken: list[tuple[float, float, float]] = []
        self.cores_asked = self.bytes_asked = 0.0

    def fits(self, cores: float, memory: float) -> bool:
        self.cores_asked, self.bytes_asked = max(self.cores_asked, cores), max(self.bytes_asked, memory)
        return True

    def take(self, cores: float, memory: float) -> None:
        super().take(cores, memory)
        self.taken.append((self._clock.now, cores, memory))
