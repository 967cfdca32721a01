"""The best size for an objective, by the throughput model, within limits and memory. All walk from the present size.

`fastest` adds the pod (or CPU) that brings most per cost while one more brings at least `marginal_gain`; where nothing does, it
gives back what brings less than `marginal_loss`; between the two nothing moves, so that a size is not left and entered in
turns. `cheapest` and `deadline` climb: the best neighbour, as long as one is better. What a step is grows with the role (one
pod up to ten, a tenth beyond): of 100 workers one more always adds less than 5 %.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from deeprec_ext.autoscaler.observe.observed import Limits, Size
from deeprec_ext.autoscaler.outcomes.measured import Key, key_of
from deeprec_ext.autoscaler.policy import balance, cpu, exploring, hysteresis, memory
from deeprec_ext.autoscaler.policy.evidence import Evidence
from deeprec_ext.autoscaler.policy.limits import fits

STEPS_MAX = 400
"""Of one walk; from 1 to a million pods it takes fewer."""

FIELDS = ("ps", "workers", "ps_cpu", "worker_cpu")

MOST = 0.5
"""Share of what a change in several dimensions is worth, from which one of them alone is tried first."""


@dataclass(frozen=True)
class Found:
    """The best size. `shortfall`: how late the deadline would be met at best, in seconds; 0: in time, or no deadline."""

    size: Size
    shortfall: float = 0.0


def step_of(count: int) -> int:
    return max(1, round(0.1 * count))


def steps_between(small: Size, large: Size) -> float:
    """How many steps of growth lead from a size to another; 0 where it is none."""
    return _steps(small.ps, large.ps) + _steps(small.trainers, large.trainers)


def _steps(low: int, high: int) -> float:
    count = 0.0
    while low < high:
        low, count = low + step_of(low), count + 1
    return count


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
    """Args:
    hopeful: give sizes that were not tried the benefit of the doubt.
    held: the count of a role that was set by hand stays, and the other role's is the best beside it.
    """

    def __init__(self, evidence: Evidence, hopeful: bool, held: bool = True) -> None:
        self.evidence, self.policy = evidence, evidence.policy
        self.limits = _free(evidence) if held else evidence.limits
        self._model: Callable[[Size], float] = evidence.hoped if hopeful else evidence.modelled
        self._memory = memory.ps_memory(evidence)
        self._rates: dict[Key, float] = {}
        best = max(
            (one.rate for one in evidence.measured.values() if one.windows >= self.policy.windows_min), default=0.0
        )
        # examples per second that `fastest` does not go below: nor is a job made slower than its first size
        self._least = max((1 - self.policy.most_given) * best, exploring.least_rate(evidence))
        self._exhausted = (evidence.exhausted(0), evidence.exhausted(1))
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
        if not fits(size, self.limits) or not memory.has_room(self.evidence, self._memory, size):
            return None
        return memory.with_memory_for(self.evidence, self._memory, size)

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
        if size != self.evidence.size:
            return size
        return self._tried_and_cheaper() or self._walk(size, self._down)

    def _tried_and_cheaper(self) -> Size | None:
        """The cheapest size that was tried and trains about as fast: the growth since did not bring what it was made for."""
        evidence, found = self.evidence, []
        for (ps, workers, ps_cpu, worker_cpu), measured in sorted(evidence.measured.items()):
            size = self.allowed(
                dataclasses.replace(evidence.size, ps=ps, workers=workers, ps_cpu=ps_cpu, worker_cpu=worker_cpu)
            )
            if (
                size is None
                or measured.windows < self.policy.windows_min
                or self.price(size) >= self.price(evidence.size)
            ):
                continue
            steps = max(1.0, steps_between(size, evidence.size))
            least = evidence.rate * (1 - self.policy.marginal_loss) ** steps
            if measured.rate >= max(least, self._least):
                found.append(size)
        return min(found, key=self.price, default=None)

    def cheapest(self) -> Size:
        """The fastest within `cheapest_share` of the best throughput per cost."""
        best = self._climb(self.evidence.size, self._per_cost)
        least = (1 - self.policy.cheapest_share) * self._per_cost(best)
        return self._climb(best, lambda size: self.rate(size) if self._per_cost(size) >= least else -1.0)

    def in_time(self, seconds: float) -> Found:
        """The cheapest size that makes it with the margin; without one, the fastest.

        The present size need only make it with half the margin, so that a little noise changes nothing.
        """
        left, margin = self.evidence.examples_left, self.policy.deadline_margin
        needed = left / seconds if seconds > 0 else math.inf

        def score(size: Size) -> float:
            """Of sizes that are in time the cheaper, of others the faster one."""
            spare = margin / 2 if size == self.evidence.size else margin
            in_time = self.rate(size) * (1 - spare) >= needed
            return 1e18 / (1 + self.price(size)) if in_time else min(1.0, self.rate(size) / needed)

        size = self._climb(self.evidence.size, score)
        if score(size) > 1:
            return Found(size)
        size = self.fastest()
        rate = self.rate(size)
        late = left / rate / (1 - margin) - seconds if rate > 0 else 0.0
        return Found(size, max(1.0, late))

    def _per_cost(self, size: Size) -> float:
        return self.rate(size) / self.price(size)

    def _climb(self, size: Size, score: Callable[[Size], float]) -> Size:
        """To the best neighbour, until none is better."""
        value = score(size)
        for _ in range(STEPS_MAX):
            options = [found for option in self._neighbours(size) if (found := self.allowed(option)) is not None]
            best = max(options, key=score, default=size)
            if (most := score(best)) <= value * (1 + 1e-9):
                break
            size, value = best, most
        return size

    # ------------------------------------------------------------------------------------------------ ways

    def _neighbours(self, size: Size) -> Iterator[Size]:
        """One step away in any direction; PS and workers may go together, or one for the other."""
        for larger, _ in self._larger(size):
            yield larger
        yield from self._smaller(size)
        fewer_ps, fewer = self._less(size)
        more_ps, more = size.ps + step_of(size.ps), size.workers + step_of(size.trainers)
        yield dataclasses.replace(size, ps=fewer_ps, workers=fewer)
        yield dataclasses.replace(size, ps=fewer_ps, workers=min(more, self.limits.max_workers))
        yield dataclasses.replace(size, ps=min(more_ps, self.limits.max_ps), workers=fewer)

    def _less(self, size: Size) -> tuple[int, int]:
        """(PS, workers) of a size a step smaller in both."""
        ps = max(size.ps - step_of(size.ps), 1, self.limits.min_ps)
        return ps, max(size.workers - step_of(size.trainers), self.limits.min_workers)

    def _walk(self, size: Size, step: Callable[[Size], Size | None]) -> Size:
        for _ in range(STEPS_MAX):
            following = step(size)
            if following is None:
                break
            size = following
        return size

    def _up(self, size: Size) -> Size | None:
        """The growth that brings most per cost, of those that bring enough; more PS and more workers may need each other."""
        rate, now, gain = self.rate(size), self.price(size), 1 + self.policy.marginal_gain
        if rate <= 0:
            return None
        allowed = ((self.allowed(larger), pods) for larger, pods in self._larger(size))
        worthy = [one for one, pods in allowed if one is not None and self.rate(one) >= rate * gain**pods]
        return max(
            worthy, key=lambda one: math.log(self.rate(one) / rate) / max(1e-9, self.price(one) / now - 1), default=None
        )

    def lacks_memory(self, size: Size) -> str:
        """Why nothing larger is allowed, where it is the machine's memory; else empty."""
        larger = [one for one, _ in self._larger(size) if fits(one, self.limits)]
        return memory.lacking(self.evidence, self._memory, larger)

    def fastest_of_larger(self, size: Size) -> float:
        """Examples per second of the fastest size a step larger that is allowed; 0: none is."""
        allowed = (self.allowed(larger) for larger, _ in self._larger(size))
        return max((self.rate(one) for one in allowed if one is not None), default=0.0)

    def _larger(self, size: Size) -> Iterator[tuple[Size, int]]:
        """(size, how many steps it is away)."""
        ps = min(size.ps + step_of(size.ps), self.limits.max_ps)
        workers = min(size.workers + step_of(size.trainers), self.limits.max_workers)
        if workers > size.workers and not self._exhausted[1]:
            yield dataclasses.replace(size, workers=workers), 1
        if ps > size.ps and not self._exhausted[0]:
            yield dataclasses.replace(size, ps=ps), 1
        if workers > size.workers and ps > size.ps:
            yield dataclasses.replace(size, ps=ps, workers=workers), 2
        for larger in cpu.larger(self.evidence, size):
            yield larger, 1

    def _down(self, size: Size) -> Size | None:
        """The shrinking that costs least throughput per saving, of those that cost little."""
        rate, now = self.rate(size), self.price(size)
        least = max(rate * (1 - self.policy.marginal_loss), self._least)
        allowed = [one for one in map(self.allowed, self._smaller(size)) if one is not None]
        cheap = [one for one in allowed if self.rate(one) >= least and self.price(one) < now]
        return max(
            cheap, key=lambda one: (1 - self.price(one) / now) / max(1e-9, 1 - self.rate(one) / rate), default=None
        )

    def _smaller(self, size: Size) -> Iterator[Size]:
        ps, workers = self._less(size)
        if ps < size.ps:
            yield dataclasses.replace(size, ps=ps)
        if workers < size.workers:
            yield dataclasses.replace(size, workers=workers)


def _free(evidence: Evidence) -> Limits:
    """The limits, with no room in a role that was set by hand: none at all where it was set beyond them."""
    size, limits = evidence.size, evidence.limits
    if hysteresis.manual(evidence, "ps"):
        limits = dataclasses.replace(limits, min_ps=max(limits.min_ps, size.ps), max_ps=min(limits.max_ps, size.ps))
    if hysteresis.manual(evidence, "worker"):
        low, high = max(limits.min_workers, size.workers), min(limits.max_workers, size.workers)
        limits = dataclasses.replace(limits, min_workers=low, max_workers=high)
    return limits


def _slot_bound(evidence: Evidence) -> bool:
    """Whether one hot slot is the load of the busiest PS: it stays so with more PS."""
    spread = balance.spread_of(evidence)
    return spread is not None and spread.imbalance >= evidence.policy.imbalance and spread.one_slot_rules


def limits_reached(size: Size, limits: Limits) -> str:
    """`the limit of 4 PS and 8 workers`, of those limits that a size has reached."""
    reached = [
        f"{high} {name}" for value, high, name in (
            (size.ps, limits.max_ps, "PS"), (size.workers, limits.max_workers, "workers"),
        ) if value >= high and not (name == "PS" and limits.sums)
    ]  # fmt: skip
    return f"the limit of {' and '.join(reached)}" if reached else ""


# ------------------------------------------------------------------------------------------------- how far one decision goes


def step_towards(evidence: Evidence, search: Search, target: Size) -> Size:
    """The next size on the way to `target` by one step of one role, or of its CPU; the present one where none is left.

    Directions that have failed lately are left out.
    """
    size = evidence.size
    options = [
        dataclasses.replace(size, ps=_stepped(size.ps, target.ps)),
        dataclasses.replace(size, workers=_stepped(size.trainers, target.trainers) - 1),
        *(dataclasses.replace(size, **{name: getattr(target, name)}) for name in ("ps_cpu", "worker_cpu")),
    ]
    allowed = [
        found for option in options
        if option != size and (found := search.allowed(option)) is not None and not exploring.barred(evidence, found)
    ]  # fmt: skip
    saves = search.price(target) < search.price(size)
    return max(allowed, key=functools.partial(_worth, search, size, saves), default=size)


def _stepped(now: int, target: int) -> int:
    """Counts of at least 1."""
    return min(target, now + step_of(now)) if target > now else max(target, now - step_of(now))


def towards(evidence: Evidence, search: Search, target: Size, sure: bool) -> Size:
    """The size one decision may go to on the way to `target`; the target itself if it is near enough.

    Only growth leaps: where a role becomes too small, queues build up that no model of the other side has seen.
    """
    up, down = evidence.policy.leap_factor if sure else evidence.policy.step_factor, evidence.policy.step_factor
    size = evidence.size
    near = dataclasses.replace(
        target,
        ps=_limited(size.ps, target.ps, up, down),
        workers=_limited(size.trainers, target.trainers, up, down) - 1,
    )
    if not sure:
        near = _one_dimension(evidence, search, near)
    return search.allowed(near) or size


def _limited(now: int, target: int, up: float, down: float) -> int:
    """Counts of at least 1."""
    if target > now:
        return min(target, max(now + 1, math.floor(now * up)))
    return max(target, min(now - 1, math.ceil(now / down))) if target < now else now


def _one_dimension(evidence: Evidence, search: Search, near: Size) -> Size:
    """The one change of `near` that brings most by itself. All of it, where they need each other."""
    size = evidence.size
    changed = [name for name in FIELDS if getattr(near, name) != getattr(size, name)]
    if len(changed) < 2:
        return near
    options = [dataclasses.replace(size, **{name: getattr(near, name)}) for name in changed]
    allowed = [found for option in options if (found := search.allowed(option)) is not None]
    saves = search.price(near) < search.price(size)
    worth = functools.partial(_worth, search, size, saves)
    best = max(allowed, key=worth, default=near)
    return best if allowed and worth(best) > max(0.0, MOST * worth(near)) else near


def _worth(search: Search, size: Size, saves: bool, option: Size) -> float:
    """What going from a size to another brings: throughput, or where that is what it is for, cost saved."""
    gain = search.rate(option) / search.rate(size) - 1
    return 1 - search.price(option) / search.price(size) - max(0.0, -gain) if saves else gain
