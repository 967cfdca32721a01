"""One job of the simulated cluster: its pods, its progress, what it lost on the way. Times are those of the virtual clock."""

from __future__ import annotations

import math
import random

from deeprec_ext.arbiter.observed import Allowance, Bid, Count, Resources
from deeprec_ext.simulator.cluster.learning import Learner
from deeprec_ext.simulator.cluster.machines import Pod
from deeprec_ext.simulator.cluster.week import Submitted


class ClusterJob:
    """Args: gang: it trains with all of its PS and, without PS, all of its workers, or not at all; and has no AIMaster."""

    def __init__(self, asked: Submitted, seed: int, gang: bool, error: float) -> None:
        self.asked, self.gang = asked, gang
        self.learner = Learner(asked, seed, error)
        self.chance = random.Random(f"{seed}/{asked.name}/pods")
        self.pods: list[Pod] = []
        self.target: Count | None = None  # what it is to have; None: nothing
        self.allowance: Allowance | None = None
        self.bid: Bid | None = None
        self.since = asked.arrives  # that it is there, or was parked
        self.done = self.rate = 0.0
        self.at = self.began = asked.arrives  # accounted up to; training since, for kept models
        self.paused_until = 0.0
        self.restore = False  # what is kept is read before the next step
        self.turn = 0  # of what was foreseen of it
        self.ends = math.inf  # as it is now
        self.looks = 0  # windows were looked at so often since the size changed
        self.looked_at: Count | None = None
        self.first_step: float | None = None
        self.ended: float | None = None
        self.changes = self.parks = self.evicted = 0
        self.paused = self.stood = self.redone = self.waited = 0.0  # seconds
        self.trained = self.lost = 0.0  # examples: all, and those that have to be done again
        self.blocked_until = 0.0  # its own growth found no room
        self._rates: dict[tuple[int, int], float] = {}

    # ------------------------------------------------------------------------------------------------ what it has

    def of(self, role: str) -> list[Pod]:
        """Those that stay, whether they have a node or not."""
        return [pod for pod in self.pods if pod.role == role and not pod.leaving and not pod.doomed]

    def training(self, role: str) -> int:
        return sum(pod.role == role and not pod.leaving and pod.ready < math.inf for pod in self.pods)

    @property
    def trainers(self) -> int:
        return self.training("chief") + self.training("worker")

    @property
    def count(self) -> Count:
        """That trains now."""
        return Count(self.training("ps"), max(0, self.trainers - 1))

    @property
    def busy(self) -> bool:
        """A change of its size is under way."""
        return self.target is not None and any(
            pod.ready == math.inf or pod.leaving for pod in self.pods if pod.role != "other"
        )

    def request(self, role: str) -> Resources:
        return getattr(self.asked.pods, role)  # type: ignore[no-any-return]

    # ------------------------------------------------------------------------------------------------ progress

    def account(self, now: float) -> None:
        """Up to now, at the rate that it has had."""
        if now <= self.at:
            return
        from_ = min(now, max(self.at, self.paused_until))
        if self.rate > 0:
            examples = self.rate * (now - from_)
            self.done += examples
            self.trained += examples
            self.paused += from_ - self.at
        elif self.first_step is not None and self.target is not None:
            self.stood += now - self.at
        elif self.target is None:
            self.waited += now - self.at
        self.at = now

    def foresee(self, now: float) -> None:
        """With the pods that it has now."""
        self.turn += 1
        self.rate = self._rate_now()
        if self.rate > 0 and self.first_step is None:
            self.first_step = now
        left = self.asked.examples - self.done
        self.ends = max(now, self.paused_until) + max(0.0, left) / self.rate if self.rate > 0 else math.inf

    def pause(self, now: float, seconds: float) -> None:
        self.paused_until = max(self.paused_until, now) + seconds

    def redo(self, seconds: float) -> None:
        """What was trained in the last so many seconds is lost."""
        seconds = min(seconds, self.done / self.rate if self.rate > 0 else 0.0)
        self.done -= seconds * self.rate
        self.lost += seconds * self.rate
        self.redone += seconds

    def since_kept(self, now: float, every: float) -> float:
        return (now - self.began) % every if self.rate > 0 else 0.0

    def bytes_of(self, ps: int) -> float:
        """That one of so many PS holds."""
        return self.asked.model.variable_bytes / max(1, ps)

    def _rate_now(self) -> float:
        ps, trainers = self.training("ps"), self.trainers
        if self.gang and self.target is not None:
            whole = trainers == self.target.workers + 1 if not self.asked.with_ps else self.training("chief") == 1
            if ps < self.target.ps or not whole:
                return 0.0
        if (ps, trainers) not in self._rates:
            self._rates[ps, trainers] = self.asked.rate(ps, trainers)
        return self._rates[ps, trainers]
