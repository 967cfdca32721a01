"""The best size for an objective, by the throughput model, within limits and memory.

`fastest` walks from the present size: it adds the pod (or core) that brings most per cost while one more brings at least
`marginal_gain`, and then gives back what brings less than `marginal_loss`; between the two nothing moves, so that a size is
not left and entered in turns. `cheapest` and `deadline` look at all counts of a ladder (steps of one up to ten, of a tenth
beyond). What a step is grows with the role for the same reason: of 100 workers one more always adds less than 5 %.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from deeprec_ext.aimaster.policy import balance, cpu, memory
from deeprec_ext.aimaster.policy.evidence import Evidence, Key, key_of
from deeprec_ext.aimaster.policy.limits import fits
from deeprec_ext.aimaster.policy.observed import Limits, Size

STEPS_MAX = 400
"""Of one walk; from 1 to a million pods it takes fewer."""


@dataclass(frozen=True)
class Found:
    """The best size. `shortfall`: how late the deadline would be met at best, in seconds; 0: in time, or no deadline."""

    size: Size
    shortfall: float = 0.0


def step_of(count: int) -> int:
    return max(1, round(0.1 * count))


def ladder(low: int, high: int, present: int) -> list[int]:
    """Counts to look at from low to high, ascending; the present one is among them."""
    counts, count = {min(max(present, low), high), high}, low
    while count < high:
        counts.add(count)
        count += step_of(count)
    return sorted(counts)


def price(size: Size, bytes_per_core: float) -> float:
    """What a size costs, in cores; a pod without requests counts as one core."""

    def pod(cpu: float, memory_bytes: int) -> float:
        return (cpu + memory_bytes / bytes_per_core) or 1.0

    return size.ps * pod(size.ps_cpu, size.ps_memory_bytes) + size.trainers * pod(
        size.worker_cpu, size.worker_memory_bytes
    )


class Search:
    """Args: hopeful: give sizes that were not tried the benefit of the doubt."""

    def __init__(self, evidence: Evidence, hopeful: bool) -> None:
        self.evidence, self.policy, self.limits = evidence, evidence.policy, evidence.limits
        self._model: Callable[[Size], float] = evidence.hoped if hopeful else evidence.modelled
        self._rates: dict[Key, float] = {}
        self._more_ps_may_help = not _slot_bound(evidence) and evidence.starved < evidence.policy.starved_share

    def rate(self, size: Size) -> float:
        key = key_of(size)
        if key not in self._rates:
            self._rates[key] = self._model(size)
        return self._rates[key]

    def price(self, size: Size) -> float:
        return price(size, self.policy.bytes_per_core)

    def allowed(self, size: Size) -> Size | None:
        """The size with the memory it needs; None when it is outside of the limits or lacks memory."""
        if size.ps > self.evidence.size.ps and not self._more_ps_may_help:
            return None
        roomy = memory.with_memory_for(self.evidence, size) if fits(size, self.limits) else None
        return roomy if roomy is not None and fits(roomy, self.limits) else None

    # ------------------------------------------------------------------------------------------------ objectives

    def best(self) -> Found:
        observed = self.evidence.observed
        if observed.objective == "cheapest":
            return Found(self.cheapest())
        if observed.objective == "deadline" and observed.deadline_seconds > 0 and self.evidence.end_known:
            return self.in_time(observed.deadline_seconds - self.evidence.now)
        return Found(self.fastest())

    def fastest(self) -> Size:
        size = self._walk(self.evidence.size, self._up)
        return self._walk(size, self._down) if size == self.evidence.size else size

    def cheapest(self) -> Size:
        """The fastest among those within `cheapest_share` of the best throughput per cost."""
        sizes = list(self._sizes())
        best = max((self.rate(size) / self.price(size) for size in sizes), default=0.0)
        good = [size for size in sizes if self.rate(size) / self.price(size) >= (1 - self.policy.cheapest_share) * best]
        return max(good, key=lambda size: (self.rate(size), -self.price(size)), default=self.evidence.size)

    def in_time(self, seconds: float) -> Found:
        """The cheapest size that makes it with the margin; without one, the fastest.

        The present size need only make it with half the margin, so that a little noise changes nothing.
        """
        left, margin = self.evidence.examples_left, self.policy.deadline_margin
        needed = left / seconds if seconds > 0 else math.inf
        sizes = [
            size for size in self._sizes()
            if self.rate(size) * (1 - margin / (2 if size == self.evidence.size else 1)) >= needed
        ]  # fmt: skip
        if sizes:
            return Found(min(sizes, key=lambda size: (self.price(size), -self.rate(size))))
        size = self.fastest()
        rate = self.rate(size)
        late = left / rate / (1 - margin) - seconds if rate > 0 else 0.0
        return Found(size, max(1.0, late))

    # ------------------------------------------------------------------------------------------------ ways

    def _sizes(self) -> Iterator[Size]:
        limits, size = self.limits, self.evidence.size
        for ps in ladder(max(1, limits.min_ps), limits.max_ps, size.ps):
            for workers in ladder(limits.min_workers, limits.max_workers, size.workers):
                for ps_cpu, worker_cpu in cpu.choices(self.evidence):
                    found = self.allowed(
                        dataclasses.replace(size, ps=ps, workers=workers, ps_cpu=ps_cpu, worker_cpu=worker_cpu)
                    )
                    if found is not None and self.rate(found) > 0:
                        yield found

    def _walk(self, size: Size, step: Callable[[Size], Size | None]) -> Size:
        for _ in range(STEPS_MAX):
            following = step(size)
            if following is None:
                break
            size = following
        return size

    def _up(self, size: Size) -> Size | None:
        """The growth that brings most per cost, of those that bring enough; more PS and more workers may need each other."""
        rate, now = self.rate(size), self.price(size)
        best: tuple[float, Size] | None = None
        for larger, pods in self._larger(size):
            found = self.allowed(larger)
            if found is None or rate <= 0 or self.rate(found) < rate * (1 + self.policy.marginal_gain) ** pods:
                continue
            worth = math.log(self.rate(found) / rate) / max(1e-9, self.price(found) / now - 1)
            if best is None or worth > best[0]:
                best = worth, found
        return best[1] if best else None

    def _larger(self, size: Size) -> Iterator[tuple[Size, int]]:
        """(size, how many steps it is away)."""
        ps = min(size.ps + step_of(size.ps), self.limits.max_ps)
        workers = min(size.workers + step_of(size.trainers), self.limits.max_workers)
        if workers > size.workers:
            yield dataclasses.replace(size, workers=workers), 1
        if ps > size.ps:
            yield dataclasses.replace(size, ps=ps), 1
        if workers > size.workers and ps > size.ps:
            yield dataclasses.replace(size, ps=ps, workers=workers), 2
        for larger in cpu.larger(self.evidence, size):
            yield larger, 1

    def _down(self, size: Size) -> Size | None:
        """The shrinking that costs least throughput per saving, of those that cost little."""
        rate, now = self.rate(size), self.price(size)
        best: tuple[float, Size] | None = None
        for smaller in self._smaller(size):
            found = self.allowed(smaller)
            if found is None or self.rate(found) < rate * (1 - self.policy.marginal_loss) or self.price(found) >= now:
                continue
            worth = (1 - self.price(found) / now) / max(1e-9, 1 - self.rate(found) / rate)
            if best is None or worth > best[0]:
                best = worth, found
        return best[1] if best else None

    def _smaller(self, size: Size) -> Iterator[Size]:
        ps = max(size.ps - step_of(size.ps), 1, self.limits.min_ps)
        workers = max(size.workers - step_of(size.trainers), self.limits.min_workers)
        if ps < size.ps:
            yield dataclasses.replace(size, ps=ps)
        if workers < size.workers:
            yield dataclasses.replace(size, workers=workers)


def _slot_bound(evidence: Evidence) -> bool:
    """Whether one hot slot is the load of the busiest PS: it stays so with more PS."""
    spread = balance.spread_of(evidence)
    return spread is not None and spread.imbalance >= evidence.policy.imbalance and spread.one_slot_rules


def limits_reached(size: Size, limits: Limits) -> str:
    """`the limit of 4 PS and 8 workers`, of those limits that a size has reached."""
    reached = [
        f"{high} {name}" for value, high, name in (
            (size.ps, limits.max_ps, "PS"), (size.workers, limits.max_workers, "workers"),
        ) if value >= high
    ]  # fmt: skip
    return f"the limit of {' and '.join(reached)}" if reached else ""
