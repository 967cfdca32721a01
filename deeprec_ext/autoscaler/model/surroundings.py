"""What throughput depends on beside the size: the host that all processes share, who else uses it, how evenly slots lie.

The load of others has *changed* at a time from which windows tell of another level than those before. What a size did under
another load says less of it now: fits give such windows less weight.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from deeprec_ext.autoscaler.model.formula import Place
from deeprec_ext.autoscaler.observe.observed import Size, SlotUse, Window

NEWEST = 3
"""Windows whose median is the present load of others: one alone may have caught a moment."""

LOOKED_AT = 2 * NEWEST
"""Windows of which they are the newest that tell of the host: what it was long ago is not what it is."""

CHANGED = 0.15
"""Share of the host's cores by which the load of others has to differ to be another one, for fits and for what is compared
(`outcomes/conditions.py`), whatever the rates say."""

FREE_MIN = 0.05
"""Share of the host's cores that the job gets whatever others want: the kernel asks nobody to wait for ever."""


@dataclass(frozen=True)
class Surroundings:
    """`cores`: of the one host that every process of the job, to come too, shares; 0: there are several, or it is not known."""

    cores: float = 0.0
    free: float = 0.0  # of these, what others leave
    loads: tuple[float, ...] = ()  # per slot, in any unit; empty: not measured
    skews: tuple[tuple[int, float], ...] = ()  # (PS, what the fullest of them does ÷ the mean), by measured CPU
    since: float = 0.0  # seconds: when the load of others changed last

    def key(self, size: Size) -> tuple[int, int, float, float]:
        """(PS, trainers, cores of a PS, cores of a trainer). Without a request: all of the host; one where that is unknown."""
        most = self.cores or 1.0
        return size.ps, size.trainers, size.ps_cpu or most, size.worker_cpu or most

    def place(self, size: Size, windows: Sequence[Window] = ()) -> Place:
        """The size in these surroundings; with windows of it, as it was in those."""
        free = self.free
        if windows:
            free = statistics.median(map(free_cores, windows)) if all(one.host_cores > 0 for one in windows) else 0.0
        return Place(*self.key(size), self.share(size.ps), free)

    def share(self, ps: int) -> float:
        """Of the PS' work, what the fullest of so many does."""
        if ps == 1 or not (self.skews or self.loads):
            return 1 / ps
        known = dict(self.skews)
        if ps in known:
            return min(1.0, known[ps] / ps)
        if self.loads:
            return fullest(self.loads, ps)
        nearest = min(known, key=lambda count: (abs(count - ps), count), default=0)
        return min(1.0, known.get(nearest, 1.0) / ps)

    def learned(self, windows: Sequence[Window]) -> Surroundings:
        """With what windows tell of them: how evenly PS are used, when the load of others has changed."""
        skews: dict[int, list[float]] = {}
        for window in windows:
            if window.size.ps > 1 and 0 < window.ps_cpu_most_cores <= window.ps_cpu_cores:
                skew = window.size.ps * window.ps_cpu_most_cores / window.ps_cpu_cores
                skews.setdefault(window.size.ps, []).append(max(1.0, skew))
        medians = tuple(sorted((ps, statistics.median(values)) for ps, values in skews.items()))
        return dataclasses.replace(self, skews=medians, since=changed_at(windows))


UNKNOWN = Surroundings()


def around(windows: Sequence[Window], slots: Sequence[SlotUse], *, one_host: bool) -> Surroundings:
    """Of a running job, by its newest windows.

    Args:
        windows: oldest first.
        one_host: processes to come will share the host of the others.
    """
    loads = tuple(slot.load for slot in slots)
    loads = loads if sum(loads) > 0 else ()
    told = [window for window in windows[-LOOKED_AT:] if window.host_cores > 0][-NEWEST:] if one_host else []
    if not told:
        return Surroundings(loads=loads)
    return Surroundings(told[-1].host_cores, statistics.median(map(free_cores, told)), loads)


def free_cores(window: Window) -> float:
    """What others left to the job."""
    return max(FREE_MIN * window.host_cores, window.host_cores - window.others_cores)


def changed_at(windows: Sequence[Window]) -> float:
    """Start of the first window since the load of others is as it is; 0: it has not changed, or nobody knows it."""
    told = sorted((window for window in windows if window.host_cores > 0), key=lambda window: window.start)
    if len(told) <= NEWEST:
        return 0.0
    level = statistics.median(window.others_cores for window in told[-NEWEST:])
    since, outside = told[-1].start, 0
    for window in reversed(told):
        if abs(window.others_cores - level) > CHANGED * window.host_cores:
            outside += 1
            if outside >= 2:  # one alone is a moment, as the newest may be
                return since
        else:
            since, outside = window.start, 0
    return 0.0


@lru_cache(maxsize=256)
def fullest(loads: tuple[float, ...], ps: int) -> float:
    """Share of all load on the fullest of so many PS, the heaviest slots laid first, each on the PS that has least."""
    total = sum(loads)
    if ps >= len(loads):
        return max(loads) / total
    on = [0.0] * ps
    for load in sorted(loads, reverse=True):
        least = min(range(ps), key=on.__getitem__)
        on[least] += load
    return max(on) / total
