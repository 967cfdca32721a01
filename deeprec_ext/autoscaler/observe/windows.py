"""Throughput in windows: stretches of time in which the size of the job did not change and nothing disturbed it. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from deeprec_ext.autoscaler.observe.observed import Size, Window

KEPT = 400
"""Windows remembered: a day of ten-second windows would teach no more than the newest of each size."""

PER_SIZE = 30
"""Of one size, under one load of others: the newest; so many say all there is to say about it, and sizes long past are not
crowded out."""

PATIENCE_SECONDS = 20.0
"""So long nothing is measured while trainers prepare sessions; then a window that says so is better than none."""

SHORTEST = 0.5
"""A window that was cut off is kept if it is at least this share of a whole one."""

CLAIM_MAX = 20.0
"""Times the median of the others: a trainer that says it trained more is not believed, and the window teaches nothing. Faster
hosts are a few times as fast; one figure of a broken process would make its size the best that was ever measured."""

OTHERS_MIN = 2
"""Fewer do not tell who of them is wrong: then what trainers did before has to."""


@dataclass
class _Open:
    start: float
    size: Size
    examples: dict[str, float] = field(default_factory=dict)  # by trainer
    batches: float = 0.0  # examples per step, summed over ticks that know it
    batch_ticks: int = 0
    busy: float = 0.0
    waiting: float = 0.0
    trainer_cpu: float = 0.0  # core seconds
    ps_cpu: dict[str, float] = field(default_factory=dict)  # by PS
    host_cores: float = 0.0  # summed over ticks that know it
    others_cores: float = 0.0
    host_ticks: int = 0
    own: list[float] = field(default_factory=list)  # of ticks that know it
    summing: list[float] = field(default_factory=list)
    preparing: bool = False
    ticks: int = 0
    last: float = 0.0  # of the newest tick


@dataclass
class Windows:
    """Fed at every tick of the autoscaler.

    Args:
      seconds: length of a window.
      settle_seconds: how long after a change of size or a disturbance nothing counts: sessions warm up, queues fill.
    """

    seconds: float = 10.0
    settle_seconds: float = 3.0
    first: Size | None = None  # with which the job began: its windows are not crowded out by those of other sizes
    closed: list[Window] = field(default_factory=list)
    _open: _Open | None = None
    _size: Size | None = None
    _settled_at: float = 0.0
    _measured_at: float = 0.0  # a window of this size was closed, or it was not quiet
    _examples: dict[str, float] = field(default_factory=dict)
    _trainer_cpu: dict[str, float] = field(default_factory=dict)
    _ps_cpu: dict[str, float] = field(default_factory=dict)
    _fresh: bool = False

    def observe(
        self, now: float, size: Size, examples: Mapping[str, int], *, quiet: bool, preparing: bool,
        examples_per_step: float, busy_share: float, input_wait_share: float, trainer_cpu: Mapping[str, float],
        ps_cpu: Mapping[str, float], host_cores: float, others_cores: float, own_seconds: float, sum_seconds: float,
    ) -> None:  # fmt: skip
        """One tick.

        Args:
          now: seconds since the start of the job.
          size: of the job at present.
          examples: total so far of each incarnation that trains; one that leaves takes its total with it.
          quiet: no scaling, no failure, and every trainer of this size trains.
          examples_per_step: of one trainer; 0: not known.
          trainer_cpu, ps_cpu: core seconds so far, in the same way as examples.
          preparing: a trainer builds sessions beside: nothing counts, unless that lasts longer than our patience.
          host_cores, others_cores: of the host that all share; 0 cores: there are several, or it is not known.
          busy_share: of the busiest PS; input_wait_share: mean over trainers.
          own_seconds, sum_seconds: of a step without PS, as a window has them; 0 own seconds: not known.
        """
        gained, trained_for = _gains(self._examples, examples), sum(_gains(self._trainer_cpu, trainer_cpu).values())
        served_for = _gains(self._ps_cpu, ps_cpu)
        if not quiet or size != self._size:
            self._measured_at = now
        if not quiet or size != self._size or (preparing and now - self._measured_at < PATIENCE_SECONDS):
            self._cut()
            self._size, self._settled_at = size, now + self.settle_seconds
            return
        if now < self._settled_at:
            return
        if self._open is None:
            self._open = _Open(now, size)
            return  # what was gained until now belongs to no window
        window = self._open
        _add(window.examples, gained)
        window.batches += examples_per_step
        window.batch_ticks += examples_per_step > 0
        window.trainer_cpu += trained_for
        _add(window.ps_cpu, served_for)
        if host_cores > 0:
            window.host_cores += host_cores
            window.others_cores += others_cores
            window.host_ticks += 1
        if own_seconds > 0:
            window.own.append(own_seconds)
            window.summing.append(sum_seconds)
        window.busy += busy_share
        window.waiting += input_wait_share
        window.preparing |= preparing
        window.ticks += 1
        window.last = now
        if now - window.start >= self.seconds:
            self._close(window)
            self._open = _Open(now, size)

    def remember(self, windows: Iterable[Window]) -> None:
        """What was measured before these windows began: by an AIMaster that is gone. Oldest first."""
        for window in windows:
            self._keep(window)

    def forget(self) -> None:
        """What was measured so far says nothing of what is to come."""
        self.closed.clear()

    def fresh(self) -> bool:
        """Whether a window has been closed since this was asked last."""
        fresh, self._fresh = self._fresh, False
        return fresh

    def all(self) -> tuple[Window, ...]:
        """Oldest first."""
        return tuple(self.closed)

    def _cut(self) -> None:
        """A change interrupts the window; a long piece of it still counts (it was quiet until the last tick)."""
        window, self._open = self._open, None
        if window is not None and window.ticks > 0 and window.last - window.start >= SHORTEST * self.seconds:
            self._close(window)

    def _close(self, window: _Open) -> None:
        elapsed = window.last - window.start
        if not _believable(window.examples.values(), elapsed * self._usual()):
            return
        self._fresh, self._measured_at = True, window.last
        self._keep(
            Window(
                start=round(window.start, 3), seconds=round(elapsed, 3), size=window.size,
                examples_per_second=round(sum(window.examples.values()) / elapsed, 3),
                examples_per_step=round(window.batches / window.batch_ticks, 3) if window.batch_ticks else 0.0,
                ps_busy_share=round(window.busy / window.ticks, 4),
                input_wait_share=round(window.waiting / window.ticks, 4),
                trainer_cpu_cores=0.0 if window.preparing else round(window.trainer_cpu / elapsed / window.size.trainers, 5),
                ps_cpu_cores=round(sum(window.ps_cpu.values()) / elapsed, 5),
                ps_cpu_most_cores=round(max(window.ps_cpu.values(), default=0.0) / elapsed, 5), preparing=window.preparing,
                host_cores=round(window.host_cores / max(1, window.host_ticks), 3),
                others_cores=round(window.others_cores / max(1, window.host_ticks), 3),
                own_seconds=round(_middle(window.own), 6), sum_seconds=round(_middle(window.summing), 6),
            )
        )  # fmt: skip

    def _usual(self) -> float:
        """Examples per second of a trainer, the median of all windows; 0: there is none."""
        known = [one.examples_per_second / one.size.trainers for one in self.closed]
        return statistics.median(known) if known else 0.0

    def _keep(self, window: Window) -> None:
        self.closed.append(window)
        same = [one for one in self.closed if one.size == window.size and one.level == window.level]
        if len(same) > PER_SIZE:
            self.closed.remove(same[0])
        if len(self.closed) > KEPT:
            first = (self.first.ps, self.first.workers) if self.first is not None else None
            others = (one for one in self.closed if (one.size.ps, one.size.workers) != first)
            self.closed.remove(next(others, self.closed[0]))


def _believable(claimed: Collection[float], usual: float) -> bool:
    """Whether the trainers can have trained so many examples each, beside one another.

    `usual`: what one has trained in as long before; 0: not known. One that is alone may well have become so much faster.
    """
    if len(claimed) < 2 or (len(claimed) <= OTHERS_MIN and not usual):
        return True
    *others, most = sorted(claimed)
    if len(others) < OTHERS_MIN:
        return most <= CLAIM_MAX * max(*others, usual)
    return not 0 < CLAIM_MAX * statistics.median(others) < most  # where the others stand still, something else is wrong


def _middle(values: Sequence[float]) -> float:
    """What the first ticks tell may be of the size before. 0: none has told."""
    return statistics.median(values) if values else 0.0


def _add(sums: dict[str, float], gained: Mapping[str, float]) -> None:
    for who, more in gained.items():
        sums[who] = sums.get(who, 0.0) + more


def _gains(known: dict[str, float], totals: Mapping[str, float]) -> dict[str, float]:
    """What each has added since the last tick; a newcomer counts from its first word on. Updates `known`."""
    gained = {who: max(0.0, total - known[who]) for who, total in totals.items() if who in known}
    known.clear()
    known.update(totals)
    return gained
