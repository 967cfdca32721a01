"""What an AIMaster of the cluster knows: windows of the sizes that its job has had, with noise, and the model fitted to them.

The models are those of running jobs (`autoscaler/model/`); what is behind the windows is `simulator/job_model.py`, which is
another formula. The rule by which a job would grow if it were alone is a walk over the model, as the policy has it, without
the policy's many reasons to wait.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

from deeprec_ext.arbiter.observed import WORTH_MAX, Count, Worth
from deeprec_ext.autoscaler.model import synchronous, throughput
from deeprec_ext.autoscaler.model.throughput import SizeModel
from deeprec_ext.autoscaler.observe.observed import Window
from deeprec_ext.autoscaler.policy.search import step_of
from deeprec_ext.autoscaler.policy.thresholds import Policy
from deeprec_ext.simulator.cluster.week import Submitted
from deeprec_ext.simulator.job_model import pace

WINDOW_SECONDS = 10.0
WINDOWS_PER_LOOK = 4
SIZES_MAX = 6
"""Newest ones whose windows are kept."""
DOUBT = 0.05
"""Of a size that was not tried it is hoped that it is better by so much (the policy takes the model's measured error)."""
BURSTS = 0.01
"""Windows in which something else takes half of the throughput."""


BETTER, SMALLER = 0.03, 0.1
"""Of throughput, for which another size is wanted; of cores, for which one that is as good is."""
TURN_SECONDS = 1800.0
"""After which what was left may be wanted again; twice as long after each time."""


class Learner:
    """Args: error: scatter of the logarithm of what is said of each size that was not tried, beyond the model's own error."""

    def __init__(self, job: Submitted, seed: int, error: float = 0.0) -> None:
        self.job, self.error = job, error
        self._chance = random.Random(f"{seed}/{job.name}/windows")
        self._lies = f"{seed}/{job.name}/lies"
        self._windows: dict[Count, list[Window]] = {}
        self._rates: dict[Count, float] = {}
        self._worth: dict[Count, tuple[Worth, ...]] = {}
        self.model: SizeModel | None = None
        self.policy = Policy()
        self.wanted = job.written  # what the job would have if nobody else were there
        self._turned, self._turns, self._grew = -math.inf, 0, True

    def look(self, at: Count, now: float) -> None:
        """Windows of the size that the job has had for a while, and the model with them."""
        found = self._windows.pop(at, [])
        found = [*found, *(self._window(at, now) for _ in range(WINDOWS_PER_LOOK))][-3 * WINDOWS_PER_LOOK :]
        self._windows[at] = found
        while len(self._windows) > SIZES_MAX:
            del self._windows[next(iter(self._windows))]
        windows = [window for group in self._windows.values() for window in group]
        self.model = (throughput.fit if self.job.with_ps else synchronous.fit)(windows)
        self._rates.clear()
        self._worth.clear()
        self._want(self._reached(self._walk(at)), now)

    def tried(self, count: Count) -> bool:
        return count in self._windows

    def rate(self, count: Count) -> float:
        """Examples per second that the AIMaster expects of a size; 0 without a model."""
        if self.model is None:
            return 0.0
        if count not in self._rates:
            rate = self.model.predict(self.job.size(count.ps, count.workers))
            if self.error and not self.tried(count):
                rate *= math.exp(random.Random(f"{self._lies}/{count}").gauss(0.0, self.error))
            self._rates[count] = rate
        return self._rates[count]

    def hoped(self, count: Count) -> float:
        """With the benefit of the doubt for a size that was not tried."""
        return self.rate(count) * (1.0 if self.tried(count) else 1 + DOUBT)

    def worth(self, at: Count) -> tuple[Worth, ...]:
        """Of at most WORTH_MAX sizes, the present one and the smallest among them."""
        if self.model is None:
            return ()
        if at not in self._worth:
            self._worth[at] = tuple(Worth(one.ps, one.workers, self.rate(one)) for one in self._sizes(at))
        return self._worth[at]

    # ------------------------------------------------------------------------------------------------ internals

    def _want(self, size: Count, now: float) -> None:
        """Another size, if it is so much better, or as good and smaller. The way back has to wait, each time for longer."""
        old, cores = self.wanted, self.job.cores
        gain = self.hoped(size) / self.hoped(old)
        if size == old or not (
            gain >= 1 + BETTER or (gain >= 1 - BETTER and cores(size) <= (1 - SMALLER) * cores(old))
        ):
            return
        grows = cores(size) > cores(old)
        if grows != self._grew:
            if now < self._turned:
                return
            self._turns += 1
        self._turned, self._grew = now + TURN_SECONDS * 2 ** min(self._turns, 10), grows
        self.wanted = size

    def _window(self, at: Count, now: float) -> Window:
        job = self.job
        size = job.size(at.ps, at.workers)
        found = pace(job.model, size, [1.0] * size.trainers, [1.0] * at.ps, [1 / at.ps] * at.ps if at.ps else ())
        noise = math.exp(self._chance.gauss(0.0, job.noise)) * (0.5 if self._chance.random() < BURSTS else 1.0)
        rate = found.examples_per_second * noise
        step, summing = found.step_seconds[0], min(found.sum_seconds, default=0.0)
        part = job.model.batch if job.with_ps or job.model.local_batch else job.model.batch / size.trainers
        return Window(
            start=now - WINDOW_SECONDS, seconds=WINDOW_SECONDS, size=size, examples_per_second=rate,
            examples_per_step=part, ps_busy_share=max(found.ps_busy, default=0.0), input_wait_share=0.0,
            trainer_cpu_cores=sum(found.trainer_cores) / size.trainers * noise, ps_cpu_cores=sum(found.ps_cores) * noise,
            ps_cpu_most_cores=max(found.ps_cores, default=0.0) * noise, preparing=False, host_cores=0.0,
            others_cores=0.0, own_seconds=(step - summing) / noise if not job.with_ps else 0.0,
            sum_seconds=summing / noise if not job.with_ps else 0.0,
        )  # fmt: skip

    def _walk(self, size: Count) -> Count:
        rate: Callable[[Count], float] = self.hoped
        while True:
            now = rate(size)
            better = [(rate(one) / now, steps, one) for one, steps in self._larger(size)]
            better = [one for one in better if one[0] >= (1 + self.policy.marginal_gain) ** one[1]]
            if not better:
                break
            size = max(better, key=lambda one: one[0] ** (1 / one[1]))[2]
        for _ in range(64):
            now = rate(size)
            spared = [one for one in self._smaller(size) if rate(one) >= (1 - self.policy.marginal_loss) * now]
            if not spared:
                break
            size = min(spared, key=self.job.cores)
        return size

    def _larger(self, size: Count) -> Iterator[tuple[Count, int]]:
        most = self.job.most
        ps, workers = (
            min(size.ps + step_of(size.ps), most.ps),
            min(size.workers + step_of(size.workers + 1), most.workers),
        )
        if workers > size.workers:
            yield Count(size.ps, workers), 1
        if ps > size.ps:
            yield Count(ps, size.workers), 1
            if workers > size.workers:
                yield Count(ps, workers), 2

    def _smaller(self, size: Count) -> Iterator[Count]:
        least = self.job.least
        ps, workers = (
            max(size.ps - step_of(size.ps), least.ps),
            max(size.workers - step_of(size.workers + 1), least.workers),
        )
        if workers < size.workers:
            yield Count(size.ps, workers)
        if ps < size.ps:
            yield Count(ps, size.workers)

    def _reached(self, size: Count) -> Count:
        tried = list(self._windows)
        workers = 2 * max(one.workers + 1 for one in tried)
        ps = 2 * max(one.ps for one in tried)
        return Count(min(size.ps, ps), min(size.workers, workers - 1))

    def _sizes(self, at: Count) -> list[Count]:
        least, most = self.job.least, self.job.most
        found = {at: None, least: None, **dict.fromkeys(self._windows)}
        ps = _few(least.ps, most.ps, 5) if self.job.with_ps else [0]
        for workers in _few(least.workers, most.workers, 10 if self.job.with_ps else 40):
            for count in ps:
                found[Count(count, workers)] = None
        return [
            one for one in found if least.ps <= one.ps <= most.ps and least.workers <= one.workers <= most.workers
        ][:WORTH_MAX]  # fmt: skip


def _few(low: int, high: int, count: int) -> list[int]:
    """About so many numbers from low to high, denser below; both ends are among them."""
    if high - low < count:
        return list(range(low, high + 1))
    ratio = (high + 1) / (low + 1)
    return sorted({round((low + 1) * ratio ** (number / (count - 1))) - 1 for number in range(count)})
