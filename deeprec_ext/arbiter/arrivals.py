"""What others asked for lately: how many pods of a kind came at once. As many may come again, and room that is free is kept
for them; so they start at once, where else a worker would first have to go."""

from __future__ import annotations

import dataclasses
from collections import deque

from deeprec_ext.arbiter.observed import Waiting

AT_ONCE_SECONDS = 10.0
"""Who comes within it has come together."""
LATELY_SECONDS = 3600.0
KINDS_MAX = 64
"""Kinds of pods, those that came last; and so many bursts of each."""


@dataclasses.dataclass
class _Burst:
    since: float
    count: int


class Arrivals:
    """In memory alone: who begins to look knows of nobody, and keeps room for nobody."""

    def __init__(self) -> None:
        self._kinds: dict[Waiting, deque[_Burst]] = {}  # as `_kind` names them, who came last at the end

    def came(self, pod: Waiting, now: float) -> None:
        kind = _kind(pod)
        bursts = self._kinds.pop(kind, None)
        if bursts is None:
            bursts = deque(maxlen=KINDS_MAX)
            if len(self._kinds) >= KINDS_MAX:
                del self._kinds[next(iter(self._kinds))]
        self._kinds[kind] = bursts
        if bursts and 0 <= now - bursts[-1].since <= AT_ONCE_SECONDS:
            bursts[-1].count += 1
        else:
            bursts.append(_Burst(now, 1))

    def expected(self, now: float, most: int = 1000) -> tuple[Waiting, ...]:
        """Of each kind as many as came at once, at most, in the last hour."""
        found: list[Waiting] = []
        for kind, bursts in self._kinds.items():
            while bursts and not 0 <= now - bursts[0].since <= LATELY_SECONDS:
                bursts.popleft()
            found += [kind] * max((one.count for one in bursts), default=0)
        return tuple(found[:most])


def _kind(pod: Waiting) -> Waiting:
    return dataclasses.replace(pod, name="", since=0.0)
