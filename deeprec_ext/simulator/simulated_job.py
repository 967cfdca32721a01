"""One simulated job: its processes, its progress, and what it has requested and used. Times are those of the virtual clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

from deeprec_ext.autoscaler.observe.observed import Change, Loss, Size, Window
from deeprec_ext.simulator.job_model import Pace, pace, ps_bytes
from deeprec_ext.simulator.luck import Luck
from deeprec_ext.simulator.trace import Workload

WINDOW_SECONDS, SETTLE_SECONDS = 10.0, 3.0
"""As `autoscaler/observe/windows.py` has them."""
WINDOWS_PER_LOOK = 6
"""The newest; older ones of the same stretch would say the same."""


@dataclass
class Pod:
    """One process. `ready`: since when it works; infinite while it starts."""

    name: str
    speed: float
    spot: bool
    ready: float


@dataclass
class Account:
    """Integrals over time: core seconds and byte seconds. What is used beyond a request, or without one, is not counted."""

    requested_cores: float = 0.0
    used_cores: float = 0.0
    requested_bytes: float = 0.0
    used_bytes: float = 0.0


class SimulatedJob:
    """Args: size: of the first pods. now: when they were asked for."""

    def __init__(self, work: Workload, size: Size, luck: Luck, now: float) -> None:
        self.work, self.model, self.luck, self.size = work, work.model, luck, size
        self.first = size
        self.started = now
        self.done = 0.0
        self.account = Account()
        self.allocated = (size.cpu, float(size.memory_bytes))
        self.ps = [self.new_pod(f"ps-{index}", math.inf) for index in range(size.ps)]
        names = ["chief-0", *(f"worker-{index}" for index in range(size.workers))]
        self.trainers = [self.new_pod(name, math.inf) for name in names]
        self.slots = 0 if work.limits.sums else max(8, 2 * work.limits.max_ps, size.ps)
        self.map = even_map(self.slots, size.ps)
        self.windows: list[Window] = []
        self.changes: list[Change] = []
        self.losses: list[Loss] = []
        self.reclaimed: dict[str, float] = {}
        self.pause_until = math.inf
        self.others = 0.0  # cores of the host that another program uses
        self.disturbed = 1.0  # factor on throughput while slots are copied
        self.quiet_since = math.inf
        self.pace = Pace(0.0, (), (), (), (), 0.0)
        self.rate = 0.0  # examples per second at this moment
        self._at, self._used = now, 0.0
        self.refresh(now)

    def new_pod(self, name: str, ready: float) -> Pod:
        return Pod(name, self.luck.speed(), self.luck.spot(), ready)

    def free_names(self, role: str, count: int) -> list[str]:
        """The lowest that nobody has, as the AIMaster gives them."""
        taken = {pod.name for pod in (*self.ps, *self.trainers)}
        names: list[str] = []
        index = 0
        while len(names) < count:
            if (name := f"{role}-{index}") not in taken:
                names.append(name)
            index += 1
        return names

    # ------------------------------------------------------------------------------------------------ load

    def slot_loads(self) -> list[float]:
        """[S] share of all look-ups and updates that each slot gets; they sum to 1."""
        if not self.slots:
            return []
        hot = self.work.hot_share
        even = (1 - hot) / self.slots
        return [even + (hot if slot == 0 else 0.0) for slot in range(self.slots)]

    def shares(self, count: int) -> list[float]:
        """[count] of the load, for the PS that work; while some are away the others have it evenly."""
        if count != len(self.ps):
            return [1 / count] * count if count else []
        shares = [0.0] * count
        for owner, load in zip(self.map, self.slot_loads()):
            shares[owner] += load
        return shares

    def bytes_share(self) -> float:
        """Of all variables, on the PS that has most of them: slots are of equal bytes."""
        counts = [0] * len(self.ps)
        for owner in self.map:
            counts[owner] += 1
        return max(counts) / self.slots

    def ps_memory(self) -> float:
        """Working set of the fullest PS; 0: there are none."""
        if not self.ps:
            return 0.0
        return ps_bytes(self.model, len(self.ps), self.bytes_share(), self.done)

    # ------------------------------------------------------------------------------------------------ time

    def refresh(self, now: float) -> None:
        """After anything has changed: accounts for the time before, and works out the pace from here on."""
        self.advance(now)
        ps = [pod for pod in self.ps if pod.ready <= now]
        trainers = [pod for pod in self.trainers if pod.ready <= now]
        self.pace = pace(
            self.model, self.size, [pod.speed for pod in trainers], [pod.speed for pod in ps], self.shares(len(ps)),
            self.others,
        )  # fmt: skip
        factor = 0.0 if now < self.pause_until else self.disturbed
        self.rate = self.pace.examples_per_second * factor
        self._used = (sum(self.pace.trainer_cores) + sum(self.pace.ps_cores)) * factor
        whole = all(pod.ready <= now for pod in (*self.ps, *self.trainers)) and factor == 1.0
        self.quiet_since = now + SETTLE_SECONDS if whole else math.inf

    def advance(self, now: float) -> None:
        seconds = now - self._at
        if seconds <= 0:
            return
        before = self.done
        self.done += self.rate * seconds
        account, (cores, memory) = self.account, self.allocated
        account.requested_cores += cores * seconds
        account.requested_bytes += memory * seconds
        account.used_cores += min(self._used, cores) * seconds
        account.used_bytes += min(self._bytes_used((before + self.done) / 2), memory) * seconds
        self._at = now

    def _bytes_used(self, done: float) -> float:
        """By all processes; on average a PS has its even share."""
        ps = len(self.ps) * ps_bytes(self.model, len(self.ps), 1 / len(self.ps), done) if self.ps else 0.0
        return ps + len(self.trainers) * self.model.worker_bytes

    def seconds_left(self) -> float:
        """Until the last example is trained, if nothing changes."""
        left = self.work.examples - self.done
        return max(0.0, left / self.rate) if self.rate > 0 else math.inf

    def memory_growth(self) -> float:
        """Of the fullest PS, in bytes per second."""
        if not self.ps:
            return 0.0
        copies = 2 if self.model.backups and len(self.ps) > 1 else 1
        return copies * self.bytes_share() * self.model.variable_growth * self.rate

    def seconds_to_memory(self) -> float:
        """Until the fullest PS reaches its limit; infinite where it does not, and while a PS is away."""
        limit = self.size.ps_memory_bytes
        if not limit or not self.ps or any(math.isinf(pod.ready) for pod in self.ps):
            return math.inf
        room, growth = limit - self.ps_memory(), self.memory_growth()
        return 0.0 if room <= 0 else room / growth if growth > 0 else math.inf

    # ------------------------------------------------------------------------------------------------ windows

    def measure(self, now: float) -> None:
        """Appends the newest windows up to now; the stretch since the last change is undisturbed."""
        count = int((now - self.quiet_since) / WINDOW_SECONDS) if now > self.quiet_since else 0
        if count <= 0:
            return
        end = self.quiet_since + count * WINDOW_SECONDS
        busy = max(self.pace.ps_busy, default=0.0)
        trainer, served = sum(self.pace.trainer_cores) / max(1, len(self.trainers)), sum(self.pace.ps_cores)
        for back in range(min(count, WINDOWS_PER_LOOK), 0, -1):
            share, start = self.luck.window(), end - back * WINDOW_SECONDS - self.started
            own = [step - summing for step, summing in zip(self.pace.step_seconds, self.pace.sum_seconds)]
            self.windows.append(
                Window(
                    round(start, 3), WINDOW_SECONDS, self.size, round(self.rate * share, 3), self._records(), busy,
                    input_wait_share=round(self.pace.input_wait_share, 4), trainer_cpu_cores=round(trainer * share, 5),
                    ps_cpu_cores=round(served * share, 5), ps_cpu_most_cores=0.0, preparing=False,
                    host_cores=self.model.host_cores, others_cores=self.others,
                    own_seconds=round(max(own, default=0.0), 6), sum_seconds=round(min(self.pace.sum_seconds, default=0.0), 6),
                )
            )  # fmt: skip
        self.quiet_since = end

    def _records(self) -> float:
        """Of a step, of one trainer."""
        parts = 1 if self.size.ps or self.model.local_batch else len(self.trainers)
        return self.model.batch / parts


def even_map(slots: int, ps: int) -> list[int]:
    """Slot → index of its PS."""
    return [slot % ps for slot in range(slots)]
