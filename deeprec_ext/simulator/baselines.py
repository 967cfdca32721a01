"""Static sizes to compare with: the best one, found by a sweep over the true model, and twice that.

The sweep goes over counts (steps of one up to ten, of a tenth beyond) and CPU per pod (the policy's ladder), with as much
memory as the job needs at its end and the policy's headroom on it. It knows what no policy knows, the model itself on sound
hosts without noise. For `fastest`, the best size is where one more step of workers, PS or CPU adds less than the policy's
`marginal_gain`, and the fastest of all is told beside it; for `cheapest` and `deadline` it is what the objective says,
without margin.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deeprec_ext.autoscaler.observe.observed import Size
from deeprec_ext.autoscaler.policy.cpu import rounded as rounded_cores
from deeprec_ext.autoscaler.policy.limits import fits, nearest
from deeprec_ext.autoscaler.policy.memory import rounded as rounded_bytes
from deeprec_ext.autoscaler.policy.search import ladder, price, step_of
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.errors import UsageError
from deeprec_ext.simulator.job_model import ROUNDS, SPREAD, JobModel, ps_bytes, throughput
from deeprec_ext.simulator.trace import Workload

LEAST_CORES = 0.25


class Sweep:
    """Over the sizes of one job."""

    def __init__(self, work: Workload, policy: Policy) -> None:
        self.work, self.policy = work, policy
        self.slots = max(8, 2 * work.limits.max_ps)

    def rate(self, size: Size) -> float:
        return throughput(self.work.model, size, self.slots)

    def price(self, size: Size) -> float:
        return price(size, self.policy.bytes_per_core)

    def with_memory(self, size: Size) -> Size | None:
        """With the memory it needs at the end of the job; None where the limits have no room for it."""
        size = self._given_memory(size)
        return size if fits(size, self.work.limits) else None

    def _given_memory(self, size: Size) -> Size:
        return dataclasses.replace(
            size, ps_memory_bytes=int(self._memory(size.ps)), worker_memory_bytes=int(self._worker_memory())
        )

    def best(self) -> Size:
        if self.work.objective == "cheapest":
            grid = self.grid()
            good = grid.per_cost >= (1 - self.policy.cheapest_share) * grid.per_cost.max()
            return self._given_memory(grid.size(good, grid.rate))
        if self.work.objective == "deadline" and self.work.deadline_seconds > 0:
            grid = self.grid()
            in_time = grid.rate >= self.work.examples / self.work.deadline_seconds
            if in_time.any():
                return self._given_memory(grid.size(in_time, -grid.price))
        return self.walk(self.policy.marginal_gain)

    def fastest(self) -> Size:
        """Whatever it costs."""
        return self.walk(0.001)

    def walk(self, gain: float) -> Size:
        """From the smallest size, the step that brings most per cost, while one brings so much."""
        limits, start = self.work.limits, self.work.start
        size = nearest(dataclasses.replace(start, ps=1, workers=0), limits)
        if limits.resizable:
            size = dataclasses.replace(
                size, ps_cpu=min(start.ps_cpu, LEAST_CORES), worker_cpu=min(start.worker_cpu, LEAST_CORES)
            )
        size = self.with_memory(size) or size
        while (larger := self._larger(size, gain)) is not None:
            size = larger
        return size

    def _larger(self, size: Size, gain: float) -> Size | None:
        best: tuple[float, Size] | None = None
        rate, now = self.rate(size), self.price(size)
        for option, steps in self._steps(size):
            larger = self.rate(option)
            if larger < rate * (1 + gain) ** steps or (found := self.with_memory(option)) is None:
                continue
            worth = (larger / rate - 1) / max(1e-9, self.price(found) / now - 1)
            if best is None or worth > best[0]:
                best = worth, found
        return best[1] if best else None

    def _steps(self, size: Size) -> Iterator[tuple[Size, int]]:
        limits = self.work.limits
        ps = min(size.ps + step_of(size.ps), limits.max_ps)
        workers = min(size.workers + step_of(size.trainers), limits.max_workers)
        if workers > size.workers:
            yield dataclasses.replace(size, workers=workers), 1
        if ps > size.ps:
            yield dataclasses.replace(size, ps=ps), 1
        if workers > size.workers and ps > size.ps:
            yield dataclasses.replace(size, ps=ps, workers=workers), 2
        if limits.resizable and size.worker_cpu:
            yield dataclasses.replace(size, worker_cpu=rounded_cores(1.2 * size.worker_cpu)), 1
        if limits.resizable and size.ps_cpu:
            yield dataclasses.replace(size, ps_cpu=rounded_cores(1.2 * size.ps_cpu)), 1

    def grid(self) -> Grid:
        """All sizes of the sweep that are within the limits."""
        import numpy as np

        limits, start, model = self.work.limits, self.work.start, self.work.model
        axes = (
            ladder(max(1, limits.min_ps), limits.max_ps, start.ps),
            ladder(limits.min_workers, limits.max_workers, start.workers),
            self._cores(start.ps_cpu, model.ps_parallelism, limits.max_ps_cpu),
            self._cores(start.worker_cpu, model.parallelism, limits.max_worker_cpu),
        )  # fmt: skip
        others = [axis.ravel() for axis in np.meshgrid(*axes[1:], indexing="ij")]
        fit, rate, price = (np.concatenate(columns) for columns in zip(*(self._with(ps, *others) for ps in axes[0])))
        if not fit.any():
            raise UsageError(f"job {self.work.name}: no size within its limits has the memory it needs")
        return Grid(axes, np.flatnonzero(fit), rate, price)

    def _with(self, ps: int, workers: Any, ps_cpu: Any, worker_cpu: Any) -> tuple[Any, Any, Any]:
        """[n] whether so many PS with these are within the limits; rate and price of those that are.

        One PS count at a time: so many numbers stay in a core's cache.
        """
        limits, per_core, trainers = self.work.limits, self.policy.bytes_per_core, workers + 1
        memory, worker_memory = self._memory(ps), self._worker_memory()
        cores, held = ps * ps_cpu + trainers * worker_cpu, ps * memory + trainers * worker_memory
        fit = (limits.total_cpu <= 0) | (cores <= limits.total_cpu)
        fit &= (limits.total_memory_bytes <= 0) | (held <= limits.total_memory_bytes)
        fit &= limits.max_ps_memory_bytes <= 0 or memory <= limits.max_ps_memory_bytes
        fit &= limits.max_worker_memory_bytes <= 0 or worker_memory <= limits.max_worker_memory_bytes
        if not fit.all():
            trainers, ps_cpu, worker_cpu = trainers[fit], ps_cpu[fit], worker_cpu[fit]
        rate = throughputs(self.work.model, ps, trainers, ps_cpu, worker_cpu, self.slots)
        price = ps * (ps_cpu + memory / per_core) + trainers * (worker_cpu + worker_memory / per_core)
        return fit, rate, price

    def _memory(self, ps: int) -> float:
        """Per PS, with headroom, at the end of the job."""
        if not self.work.limits.resizable:
            return float(self.work.start.ps_memory_bytes)
        share = -(-self.slots // ps) / self.slots
        return float(
            rounded_bytes(self.policy.memory_headroom * ps_bytes(self.work.model, ps, share, self.work.examples))
        )

    def _worker_memory(self) -> float:
        if not self.work.limits.resizable:
            return float(self.work.start.worker_memory_bytes)
        return float(rounded_bytes(self.policy.memory_headroom * self.work.model.worker_bytes))

    def _cores(self, request: float, parallelism: float, limit: float) -> list[float]:
        if not self.work.limits.resizable or not request:
            return [request]
        most = min(rounded_cores(parallelism), limit or math.inf)
        found = [min(LEAST_CORES, most)]
        while found[-1] < most:
            found.append(min(rounded_cores(1.2 * found[-1]), most))
        return found


@dataclass(frozen=True)
class Grid:
    """[n] sizes with what they bring and cost."""

    axes: tuple[Sequence[Any], ...]  # PS, workers, cores of a PS, of a worker
    places: Any  # in the product of the axes
    rate: Any
    price: Any

    @property
    def per_cost(self) -> Any:
        return self.rate / self.price

    def size(self, allowed: Any, score: Any) -> Size:
        """The allowed one with the highest score, without memory; of equal ones the cheaper."""
        import numpy as np

        best = np.flatnonzero(allowed & (score == score[allowed].max()))
        best = best[self.price[best].argmin()]
        place = np.unravel_index(self.places[best], [len(axis) for axis in self.axes])
        return Size(*(axis[at] for axis, at in zip(self.axes, place)))


def throughputs(model: JobModel, ps: Any, trainers: Any, ps_cpu: Any, worker_cpu: Any, slots: int) -> Any:
    """`model.throughput` of many sizes at once; [n] arrays of float, or one PS count for all."""
    import numpy as np

    def wait(demand: Any, load: Any, elsewhere: Any) -> Any:
        half = (elsewhere - load) / 2
        return np.sqrt(half * half + demand * elsewhere) - half

    ps_cpu, worker_cpu = np.where(ps_cpu > 0, ps_cpu, 1.0), np.where(worker_cpu > 0, worker_cpu, 1.0)
    share = np.where(ps > slots, 1 / ps, np.ceil(slots / ps) / slots)
    fan_out = model.fan_out_core_seconds * ps / np.minimum(worker_cpu, 1.0)
    think = model.fixed_seconds + model.compute_core_seconds / np.minimum(worker_cpu, model.parallelism) + fan_out
    demand = model.ps_core_seconds * share / np.minimum(ps_cpu, model.ps_parallelism) * (1 + SPREAD * np.log(ps))
    load, shared_load = demand * trainers, model.shared_seconds * trainers
    shared: Any = model.shared_seconds
    at_ps = wait(demand, load, think + shared)
    if shared:
        for _ in range(ROUNDS - 1):
            shared = wait(model.shared_seconds, shared_load, think + at_ps)
            at_ps = wait(demand, load, think + shared)
        shared = wait(model.shared_seconds, shared_load, think + at_ps)
    return trainers * model.batch / (think + at_ps + shared)


def doubled(size: Size) -> Size:
    """Twice the pods: what a cautious user asks for beforehand."""
    return dataclasses.replace(size, ps=2 * size.ps, workers=2 * size.trainers - 1)


def static_sizes(jobs: tuple[Workload, ...], policy: Policy, size_of: Callable[[Sweep], Size]) -> dict[str, Size]:
    return {work.name: size_of(Sweep(work, policy)) for work in jobs}
