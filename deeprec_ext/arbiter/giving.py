"""Who gives back for somebody else."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable

from deeprec_ext.arbiter.curve import Size
from deeprec_ext.arbiter.seating import PS, WORKER, Party, Seating

Given = tuple[bool, int, float, float, int, int, Size, Party]
"""(whether it goes late, priority, rate of its loss, arrived, index, running number, the size that it gives from, whose); the
smallest goes first."""


class Givers:
    """Who gives back for a claim, and in which order: the least important first, there who loses least by it.

    Args:
        least: of each, below which it is not asked.
        ps_last: a PS goes after all workers, also after those of more important jobs: its slots have to move first.
    """

    def __init__(
        self, parties: Iterable[Party], least: Callable[[Party], Size], seating: Seating, *, ps_last: bool = False
    ) -> None:
        self._least, self._seating, self._number, self._ps_last = least, seating, itertools.count(), ps_last
        self._heap = [self._entry(one) for one in parties if self._role(one)]
        heapq.heapify(self._heap)

    def _role(self, party: Party) -> str:
        """Workers before PS; empty: it has nothing to give."""
        (ps, workers), least = party.size, self._least(party)
        return WORKER if workers > least[1] else PS if ps > least[0] else ""

    def _entry(self, party: Party) -> Given:
        ps, workers = party.size
        role = self._role(party)
        fewer = (ps, workers - 1) if role == WORKER else (ps - 1, workers)
        loss = party.weight * (party.curve.value(party.size) - party.curve.value(fewer))
        rate = loss / party.costs[role == WORKER]
        late = self._ps_last and role == PS
        return late, party.priority, rate, -party.arrived, -party.index, next(self._number), party.size, party

    def back(self, parties: Iterable[Party]) -> None:
        """They have again, or have still, what they gave."""
        for one in parties:
            if self._role(one):
                heapq.heappush(self._heap, self._entry(one))

    def give(self) -> Party | None:
        """One pod less of one of them; None: nobody has anything left."""
        while self._heap:
            *_, size, party = heapq.heappop(self._heap)
            role, fresh = self._role(party), size == party.size
            if role and fresh:
                self._seating.drop(party, role)
            if self._role(party):
                heapq.heappush(self._heap, self._entry(party))
            if role and fresh:
                return party
        return None
