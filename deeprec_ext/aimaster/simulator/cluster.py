"""The capacity of the cluster: one pool. Jobs wait in line for their first pods, later ones take what is free."""

from __future__ import annotations

from dataclasses import dataclass

from deeprec_ext.aimaster.simulator.trace import Cluster


@dataclass
class Pool:
    """Cores and bytes that are taken."""

    cluster: Cluster
    cores: float = 0.0
    memory: float = 0.0

    def fits(self, cores: float, memory: float) -> bool:
        return self.cores + cores <= self.cluster.cores * (1 + 1e-9) and self.memory + memory <= self.cluster.memory

    def take(self, cores: float, memory: float) -> None:
        """Or give back, with negative amounts."""
        self.cores += cores
        self.memory += memory
