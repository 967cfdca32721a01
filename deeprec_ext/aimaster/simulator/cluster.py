"""The capacity of the cluster: one pool. Jobs wait in line for their first pods, later ones take what is free."""

from __future__ import annotations

from dataclasses import dataclass, field

from deeprec_ext.aimaster.simulator.trace import Cluster


@dataclass
class Pool:
    """Cores and bytes that are taken; `peak` of each."""

    cluster: Cluster
    cores: float = 0.0
    memory: float = 0.0
    peak_cores: float = 0.0
    core_seconds: float = 0.0
    _at: float = field(default=0.0, repr=False)

    def fits(self, cores: float, memory: float) -> bool:
        return self.cores + cores <= self.cluster.cores * (1 + 1e-9) and self.memory + memory <= self.cluster.memory

    def take(self, cores: float, memory: float, now: float) -> None:
        """Or give back, with negative amounts."""
        self.core_seconds += self.cores * (now - self._at)
        self._at = now
        self.cores += cores
        self.memory += memory
        self.peak_cores = max(self.peak_cores, self.cores)
