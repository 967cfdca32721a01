"""What each size would be worth to the job, for the arbiter of a cluster or a pool. Pure.

What was measured counts as measured; sizes that were not have the throughput model's word, within what they can be: of no size
more is said than a measured one does times what this one has more of. Without a model (its libraries are an extra) measured
sizes are told alone, and before anything is measured none.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from functools import cached_property

from deeprec_ext.arbiter.observed import WORTH_MAX, Bid, Count, Worth
from deeprec_ext.autoscaler.observe.observed import Limits, Observed, Size
from deeprec_ext.autoscaler.outcomes.measured import key_of
from deeprec_ext.autoscaler.policy import cost, memory
from deeprec_ext.autoscaler.policy.decide import decide
from deeprec_ext.autoscaler.policy.evidence import Evidence
from deeprec_ext.autoscaler.policy.limits import fits
from deeprec_ext.autoscaler.policy.thresholds import Policy

NAMED_MAX = 16
"""Sizes that are told whatever the steps between the others: the present one, the wanted, the ends, the measured."""

PS_STEPS = 6
"""Counts of PS at least, where there is room for so many: with workers they make the rest."""

SHARE = 0.05
"""Relative difference of a worth, or of what is left, that matters."""

COST_SHARE = 0.2
"""The same of what a change costs: the arbiter weighs it, and one slow start more is no news."""

WAIT_SECONDS = 15.0
"""Between two bids that differ by less than size or training: who reads them decides for many, and each is a write."""


def bid_of(observed: Observed, policy: Policy, *, time: float, wanted: Count, decides: bool, training: bool) -> Bid:
    """The bid.

    Args:
        observed: within the job's own limits, not the arbiter's.
        time: seconds since the epoch.
        wanted: that was written, asked for last, or taken by the arbiter; none of it: the present size.
        decides: the job has an autoscaler: it wants what that would go to now, and what was taken from it.
    """
    evidence = Evidence(observed, policy)
    rates, limits = _Rates(evidence), observed.limits
    present = Count(observed.size.ps, observed.size.workers)
    if decides and rates.model is not None:
        wanted = _alone(observed, policy, present, wanted)
    wanted = _within(limits, wanted)
    named = [present, wanted, *_ends(limits), *(Count(*key[:2]) for key in reversed(list(evidence.measured)))]
    worth = []
    for count in counts_between(limits, named):
        size = evidence.with_size(ps=count.ps, workers=count.workers)
        if (rate := rates.of(size)) > 0 and (count == present or rates.can_be(size)):
            worth.append(Worth(count.ps, count.workers, _rounded(rate)))
    seconds, pause = _cost(evidence)
    return Bid(
        time=round(time, 3), size=present, wanted=wanted, worth=tuple(worth), left=_rounded(evidence.examples_left),
        change_seconds=_rounded(seconds), pause_seconds=_rounded(pause), training=training, busy=observed.busy,
    )  # fmt: skip


class _Rates:
    """Examples per second by size."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        try:
            self.model = evidence.model
        except ImportError:  # numpy and scipy are an extra
            self.model = None
        self._known = [(key[0], key[1] + 1, one.rate) for key, one in evidence.measured.items()]
        self._memory = memory.ps_memory(evidence)

    def of(self, size: Size) -> float:
        """0: not known."""
        evidence = self._evidence
        if key_of(size) == key_of(evidence.size) and evidence.rate:
            return evidence.rate
        found = evidence.measured.get(key_of(size))
        if found is not None:
            return found.rate
        if self.model is None:
            return 0.0
        rate = evidence.modelled(size) if evidence.rate else self.model.predict(size)
        if not math.isfinite(rate):
            return 0.0
        if self.model.mape_holdout is None and (share := self._share(size)):
            rate = math.sqrt(rate * share)
        return min(rate, self._most(size))

    def _share(self, size: Size) -> float:
        """Of what a larger size was measured to do, as much as it is smaller. So little it does at least, and as much as that
        size at most: a model that knows one size or two cannot say which, and a job that says that its workers bring nothing
        loses them. 0: no larger size was measured."""
        return max(
            (rate * min(size.trainers / trainers, size.ps / ps if ps else 1.0)
             for ps, trainers, rate in self._known if trainers >= size.trainers and ps >= size.ps), default=0.0,
        )  # fmt: skip

    def _most(self, size: Size) -> float:
        """Nothing is as many times as fast as it has more PS times more trainers."""
        return max(
            (rate * max(1.0, size.trainers / trainers) * max(1.0, size.ps / ps if ps else 1.0)
             for ps, trainers, rate in self._known), default=0.0,
        )  # fmt: skip

    def can_be(self, size: Size) -> bool:
        """Whether it is within quotas, and PS and hosts have memory for it."""
        evidence, known = self._evidence, self._memory
        if not fits(size, evidence.limits) or not memory.has_room(evidence, known, size):
            return False
        return memory.with_memory_for(evidence, known, size) is not None


def _alone(observed: Observed, policy: Policy, present: Count, taken: Count) -> Count:
    """What the autoscaler would go to if nobody else were there: the next size on its way, for it goes no faster, and more is
    not to be kept free for it."""
    decided = decide(dataclasses.replace(observed, busy=False), policy).size
    ps, workers = (
        max(one, before) if before > now else one
        for one, now, before in zip(
            (decided.ps, decided.workers), dataclasses.astuple(present), dataclasses.astuple(taken)
        )
    )
    return Count(ps, workers)


def _cost(evidence: Evidence) -> tuple[float, float]:
    """(seconds, pause in seconds) of a change of the size, by those that were seen."""
    workers = cost.duration(evidence, "worker")
    if evidence.limits.sums:
        return workers, cost.pause_of(evidence, "worker")
    of_ps, pause = cost.of_ps_change(evidence, 0.0)
    return max(workers, of_ps), pause


# ------------------------------------------------------------------------------------------------------- which sizes


def counts_between(limits: Limits, named: Iterable[Count]) -> list[Count]:
    """At most WORTH_MAX, by PS and workers: `named` as far as they are within the limits, and others from end to end."""
    within = [one for one in dict.fromkeys(named) if one == _within(limits, one)][:NAMED_MAX]
    room = WORTH_MAX - len(within)
    low, high = _ends(limits)
    of_ps = min(high.ps - low.ps + 1, PS_STEPS)
    workers = _steps(low.workers, high.workers, max(2, room // of_ps))
    ps = _steps(low.ps, high.ps, max(1, room // len(workers)))
    others = [Count(one, other) for one in ps for other in workers]
    return sorted({*within, *others[:room]}, key=lambda one: (one.ps, one.workers))


def _steps(low: int, high: int, most: int) -> list[int]:
    """At most so many counts from low to high, both among them where there is room: all, or each as many times as large."""
    if high - low < most:
        return list(range(low, high + 1))
    ratio = ((high + 1) / (low + 1)) ** (1 / max(1, most - 1))
    return sorted({low, high, *(min(high, round((low + 1) * ratio**step) - 1) for step in range(most))})[-most:]


def _ends(limits: Limits) -> tuple[Count, Count]:
    """(the fewest, the most) of both."""
    least, fewest = limits.least_ps, limits.min_workers
    return Count(least, fewest), Count(max(least, limits.max_ps), max(fewest, limits.max_workers))


def _within(limits: Limits, count: Count) -> Count:
    low, high = _ends(limits)
    return Count(min(max(count.ps, low.ps), high.ps), min(max(count.workers, low.workers), high.workers))


def _rounded(value: float) -> float:
    """To four digits."""
    return float(f"{value:.4g}") if math.isfinite(value) else 0.0


# ------------------------------------------------------------------------------------------------------- what is news


class News:
    """What of a bid is news after the one before it."""

    def __init__(self, before: Bid, now: Bid) -> None:
        self._before, self._now = before, now

    @property
    def after_seconds(self) -> float:
        """How long after the bid before it this one may be published; infinite: it says the same."""
        before, now = self._before, self._now
        if before.size != now.size or before.training != now.training:
            return 0.0
        return WAIT_SECONDS if self._differs else math.inf

    @cached_property
    def _differs(self) -> bool:
        before, now = self._before, self._now
        if before.wanted != now.wanted or before.busy != now.busy:
            return True
        if _far(before.left, now.left, SHARE):
            return True
        if _far(before.change_seconds, now.change_seconds, COST_SHARE):
            return True
        if _far(before.pause_seconds, now.pause_seconds, COST_SHARE):
            return True
        rates = {(one.ps, one.workers): one.examples_per_second for one in before.worth}
        if rates.keys() != {(one.ps, one.workers) for one in now.worth}:
            return True
        return any(_far(rates[one.ps, one.workers], one.examples_per_second, SHARE) for one in now.worth)


def _far(before: float, now: float, share: float) -> bool:
    return abs(now - before) >= share * max(abs(before), abs(now)) if now != before else False
