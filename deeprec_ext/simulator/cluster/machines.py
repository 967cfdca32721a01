"""Nodes with cores and memory, pods on them, and the scheduler's part: which pod that waits gets which room."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from deeprec_ext.arbiter.observed import Resources

ROUNDING = 1e-6


@dataclass(eq=False)
class Pod:
    """`owner`: name of a job, or of the Deployment. `ready`: since when it works; infinite while it starts."""

    owner: str
    role: str  # "chief", "worker", "ps", "other", "serving"
    request: Resources
    priority: int
    created: float
    number: int  # in the order of their making
    machine: Machine | None = None
    ready: float = math.inf
    leaving: bool = False  # it does not train any more, and has its room for some seconds yet
    doomed: bool = False  # its node will be taken away, as was said; until then it trains
    evicts_until: float = 0.0  # others were preempted for it; until then it waits for their room


@dataclass(eq=False)
class Machine:
    name: str
    whole: Resources
    spot: bool
    up: bool = True
    open: bool = True  # takes pods: not while it is drained
    turn: int = 0  # how often it came back: what was foreseen of it before is void
    cores: float = 0.0  # free
    memory: int = 0
    pods: dict[Pod, None] = field(default_factory=dict)  # in the order of their coming
    first_to_go: list[Pod] | None = None  # those in the order of `_victim_order`; None: not known

    def has_room(self, request: Resources) -> bool:
        return self.cores + ROUNDING >= request.cpu and self.memory >= request.memory_bytes


class Machines:
    """All nodes of the cluster."""

    def __init__(self, count: int, whole: Resources, spot_share: float) -> None:
        spot = round(count * spot_share)
        self.all = [
            Machine(f"node-{number:03}", whole, number >= count - spot, cores=whole.cpu, memory=whole.memory_bytes)
            for number in range(count)
        ]
        self.used = 0.0  # cores
        self.freed = 0  # how often there has come to be more room, or more that could be made
        self.capacity = count * whole.cpu  # of those that are up

    def take(self, pod: Pod, machine: Machine) -> None:
        """Raises AssertionError: it does not fit."""
        assert machine.up and machine.open and pod.machine is None and machine.has_room(pod.request), pod
        machine.cores -= pod.request.cpu
        machine.memory -= pod.request.memory_bytes
        machine.pods[pod] = machine.first_to_go = None
        pod.machine = machine
        self.used += pod.request.cpu

    def give_back(self, pod: Pod) -> None:
        if (machine := pod.machine) is not None:
            machine.cores += pod.request.cpu
            machine.memory += pod.request.memory_bytes
            del machine.pods[pod]
            machine.first_to_go = pod.machine = None
            self.freed += 1
            self.used -= pod.request.cpu

    def place(self, pod: Pod) -> bool:
        """Where it leaves the fewest cores, as schedulers of batch jobs are set."""
        best = None
        for machine in self.all:
            if (
                machine.up and machine.open and machine.has_room(pod.request)
                and (best is None or machine.cores < best.cores)
            ):  # fmt: skip
                best = machine
        if best is None:
            return False
        self.take(pod, best)
        return True

    def place_together(self, pods: Iterable[Pod]) -> bool:
        """All of them, or none."""
        placed: list[Pod] = []
        for pod in pods:
            if not self.place(pod):
                for one in placed:
                    self.give_back(one)
                return False
            placed.append(pod)
        return True

    def down(self, machine: Machine) -> list[Pod]:
        """Its pods, which are lost."""
        lost = list(machine.pods)
        for pod in lost:
            self.give_back(pod)
        machine.up = machine.open = False
        self.capacity -= machine.whole.cpu
        return lost

    def back(self, machine: Machine) -> None:
        machine.up = machine.open = True
        machine.turn += 1
        self.freed += 1
        self.capacity += machine.whole.cpu

    def victims(self, pod: Pod) -> list[Pod]:
        """Pods of lower priority on one node whose room it needs: of the lowest priorities, and as few as there are.

        Who is leaving has been asked by somebody else. Empty: no node has them.
        """
        priority, need, much = pod.priority, pod.request.cpu - ROUNDING, pod.request.memory_bytes
        best: list[Pod] = []
        score = priority, 0
        for machine in self.all:
            if not (machine.up and machine.open):
                continue
            if machine.first_to_go is None:
                machine.first_to_go = sorted(machine.pods, key=_victim_order)
            found: list[Pod] = []
            cores, memory = machine.cores, machine.memory
            for one in machine.first_to_go:
                if one.leaving:
                    continue
                if one.priority >= priority or (one.priority, len(found) + 1) >= score:
                    break
                found.append(one)
                cores, memory = cores + one.request.cpu, memory + one.request.memory_bytes
                if cores >= need and memory >= much:
                    best, score = found, (one.priority, len(found))
                    break
        return best


def _victim_order(pod: Pod) -> tuple[int, int]:
    """The lowest priority first; of one priority the youngest."""
    return pod.priority, -pod.number
