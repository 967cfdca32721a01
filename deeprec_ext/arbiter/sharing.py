"""What is left beyond what all must have: to whom a step more brings most, from whom it takes least, and whether all of it
together is worth what changing costs."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from typing import Optional

from deeprec_ext.arbiter import saying
from deeprec_ext.arbiter.curve import Size, Step
from deeprec_ext.arbiter.giving import Givers
from deeprec_ext.arbiter.room import finite
from deeprec_ext.arbiter.rules import Rules
from deeprec_ext.arbiter.seating import PS, WORKER, Party, Seating, could_give

TRIES = 4
"""Of sharing, each without those to whom the one before was not worth its cost."""
NEAR = 20.0
"""Gains whose logarithms differ by less than a 20th (5 %) are equal: the one that is worst off goes first."""

Gain = tuple[int, float, float, int, int, Step, Party]
"""(how far from the largest, how well off, arrived, index, running number, the step, whose)."""
Claimed = tuple[Optional[str], Optional[frozenset[str]]]
"""(the quota, or None: room on nodes of these groups)."""
Loss = tuple[float, float, float, int, int, Size, Step, Party]
"""(rate, how well off, …, running number, the size that it is a step down from, the step, whose); the smallest goes first."""


class Sharing:
    """Within one decision. What it gives and takes is in the seating."""

    def __init__(self, seating: Seating, rules: Rules) -> None:
        self.seating, self.rules, self.number = seating, rules, itertools.count()

    def rests(self, party: Party) -> bool:
        """Nothing is changed in it for gain. One that is changed anyway may as well be changed by more."""
        if party.is_free_to_change:
            return False
        if party.silent or party.busy:
            return True
        return party.age < self._settle_seconds(party) and party.size == party.present

    def _settle_seconds(self, party: Party) -> float:
        """As long as a change of it takes, where that is known."""
        bid, rules = party.job.bid, self.rules
        taken = finite(bid.change_seconds) if bid is not None else 0.0
        return min(rules.settle_seconds, max(rules.settle_least_seconds, taken)) if taken > 0 else rules.settle_seconds

    def share(self, group: Sequence[Party], below: Sequence[Party], *, last: bool = False) -> None:
        """Steps in the order of their gain, while there is room, or while somebody of `below` gives it.

        Args:
            last: of those who are the last to be given more, instead of the others.
        """
        may = [
            one for one in group
            if not one.lacks and one.size != one.top and not self.rests(one) and one.last == last
        ]  # fmt: skip
        if below:
            below = [one for one in below if one.size != one.least]
            if not below:
                return
        else:
            may = [one for one in may if self._has_room(one)]
        may = [one for one in may if self._pays(one, one.size, one.curve.best)]
        for _ in range(TRIES):
            if not may:
                return
            mark, sizes = self.seating.mark(), {one.index: one.size for one in may}
            before = {one.index: one.size for one in below}
            self._climb(may, below)
            grown = [one for one in may if one.size != sizes[one.index]]
            poor = {one.index for one in grown if not self._pays(one, sizes[one.index], one.size)}
            if not poor and below and grown:
                gain = sum(self._net(one, sizes[one.index], one.size) for one in grown)
                pauses = sum(
                    self._pause(one, before[one.index]) * one.weight for one in below if one.size != before[one.index]
                )
                if gain <= pauses:
                    poor = {one.index for one in grown}
            if not poor:
                for one in grown:
                    one.note = saying.GROWS
                for one in below:
                    if one.size != before[one.index]:
                        one.note = saying.gave_to(group[0].job)
                return
            self.seating.undo(mark)
            may = [one for one in may if one.index not in poor]

    def _has_room(self, party: Party) -> bool:
        """For one pod more, be it a worker or a PS; else there is none for any step."""
        return any(self.seating.room.first(party.shapes[role], party.subsets[role]) >= 0 for role in (WORKER, PS))

    def try_out(self, running: Sequence[Party]) -> None:
        """What nobody gains by is for who wants it: a model of few sizes sees no gain in others until they are tried, and
        whether a trial is worth its price is for the job to say. Not of one that ends soon."""
        for party in running:
            if party.size == party.top or party.lacks or not party.curve.has_model or self.rests(party) or party.last:
                continue
            lasts = party.horizon_seconds >= self.rules.horizon_seconds
            if lasts and self.seating.add_all(party, party.missing(party.top)) is None:
                party.note = saying.TRIES

    def last(self, running: Sequence[Party]) -> None:
        """What nobody else wants stays with who was allowed it and has not taken it, or goes to who has left such before."""
        last = [one for one in running if one.last and not one.lacks]
        for party in last:
            if party.untaken is None:
                continue
            if party.size == party.present:
                for role in party.missing(party.untaken):
                    self.seating.add(party, role)
                party.note = party.note if party.size == party.untaken else saying.NOT_TAKEN
        self.share(last, (), last=True)

    def _climb(self, may: Sequence[Party], below: Sequence[Party]) -> None:
        givers: dict[Claimed, Givers] = {}
        for one in may:
            one.blocked = []
        heap = [entry for one in may if (entry := self._entry(one)) is not None]
        heapq.heapify(heap)
        while heap:
            *_, step, party = heapq.heappop(heap)
            if not self._grow(party, step, below, givers):
                size = party.size
                party.blocked.append((size[0] + step.ps, size[1] + step.workers))
            if (entry := self._entry(party)) is not None:
                heapq.heappush(heap, entry)

    def _entry(self, party: Party) -> Gain | None:
        step = party.curve.up(party.size, party.blocked)
        if step is None:
            return None
        near = -math.floor(NEAR * math.log(max(party.weight * step.rate, 1e-300)))
        return near, self._has(party), party.arrived, party.index, next(self.number), step, party

    def _has(self, party: Party) -> float:
        """How well off it is: its share of the throughput that it could have, by its weight."""
        return (party.curve.value(party.size) - party.curve.value(party.top)) - math.log(party.weight)

    def _grow(self, party: Party, step: Step, below: Sequence[Party], givers: dict[Claimed, Givers]) -> bool:
        size = party.size[0] + step.ps, party.size[1] + step.workers
        roles = party.missing(size)
        if self.seating.add_all(party, roles) is None:
            return True
        if not below:
            return False
        mark = self.seating.mark()
        queue = self.seating.lacking(party, roles[0])
        key = queue, None if queue is not None else party.groups
        if key not in givers:
            may = [one for one in below if could_give(one, party, queue)]
            givers[key] = Givers(may, lambda one: one.least, self.seating)
        while givers[key].give() is not None:
            if self.seating.add_all(party, roles) is None:
                gone = self.seating.dropped(mark)
                for one, role in gone:
                    self.seating.add(one, role)
                break
        else:
            gone = self.seating.dropped(mark)
            self.seating.undo(mark)
        givers[key].back({one.index: one for one, _ in gone}.values())
        return party.size == size

    # ------------------------------------------------------------------------------------------------ gain and cost

    def _pause(self, party: Party, old: Size) -> float:
        """Seconds of training that it costs to leave this size; none where it is not the one that it has: it pauses anyway."""
        if party.is_free_to_change or old != party.present:
            return 0.0
        bid = party.job.bid
        return max(self.rules.pause_seconds, finite(bid.pause_seconds, most=86400.0) if bid is not None else 0.0)

    def _change(self, party: Party) -> float:
        bid = party.job.bid
        return max(self.rules.change_seconds, finite(bid.change_seconds, most=86400.0) if bid is not None else 0.0)

    def _net(self, party: Party, old: Size, new: Size) -> float:
        """What a change brings within the horizon, in seconds of its present training."""
        gain = party.curve.value(new) - party.curve.value(old)
        if party.is_free_to_change:
            return party.weight * gain * party.horizon_seconds
        horizon = party.horizon_seconds - (self._change(party) if gain > 0 else 0.0)
        return party.weight * (gain * max(0.0, horizon) - self._pause(party, old))

    def _pays(self, party: Party, old: Size, new: Size) -> bool:
        """Whether it is worth its own cost to grow."""
        if party.is_free_to_change or old != party.present:
            return True
        gain = party.curve.value(new) - party.curve.value(old)
        return gain >= math.log1p(self.rules.gain_least) and self._net(party, old, new) > 0

    # ----------------------------------------------------------------------------------------------- between equals

    def even(self, group: Sequence[Party]) -> None:
        """From those who lose least to those who gain most, if all of it together is worth its cost."""
        may = [one for one in group if not one.lacks and not one.job.strict and not self.rests(one)]
        for _ in range(TRIES):
            if len(may) < 2:
                return
            mark, sizes = self.seating.mark(), {one.index: one.size for one in may}
            self._exchange(may)
            moved = [one for one in may if one.size != sizes[one.index]]
            if not moved:
                self.seating.undo(mark)
                return
            grown = [one for one in moved if one.size > sizes[one.index]]
            poor = {one.index for one in grown if not self._pays(one, sizes[one.index], one.size)}
            if not poor and sum(self._net(one, sizes[one.index], one.size) for one in moved) > 0:
                for one in moved:
                    one.note = saying.EVENS if one.size > sizes[one.index] else saying.GAVE_EQUALS
                return
            self.seating.undo(mark)
            if not poor:
                return
            may = [one for one in may if one.index not in poor]

    def _exchange(self, may: Sequence[Party]) -> None:
        for one in may:
            one.blocked = []
        ups = [
            entry for one in may if one.size != one.top and not one.last and (entry := self._entry(one)) is not None
        ]  # fmt: skip
        heapq.heapify(ups)
        gained: set[int] = set()
        lost: set[int] = set()
        downs = [down for one in may if (down := self._loss(one)) is not None]
        heapq.heapify(downs)
        while ups:
            *_, step, party = heapq.heappop(ups)
            if party.index in lost or not downs or downs[0][0] >= party.weight * step.rate:
                continue  # its further steps gain less
            losers = self._exchange_one(party, step, downs, gained)
            if losers:
                gained.add(party.index)
                lost.update(losers)
            else:
                party.blocked.append((party.size[0] + step.ps, party.size[1] + step.workers))
            if (entry := self._entry(party)) is not None:
                heapq.heappush(ups, entry)

    def _exchange_one(self, party: Party, step: Step, downs: list[Loss], gained: set[int]) -> set[int]:
        """Who gave room for this step, which is worth more than all that they lose; empty: nobody.

        Args:
            downs: heap of what others would lose by a step down, the smallest loss first; of some it is old.
        """
        roles = party.missing((party.size[0] + step.ps, party.size[1] + step.workers))
        mark = self.seating.mark()
        limit = party.weight * step.gain * (1 - self.rules.gain_least)
        queue = self.seating.lacking(party, roles[0])
        loss, aside, givers = 0.0, [], {}
        losers: set[int] = set()
        while downs and downs[0][0] < party.weight * step.rate:
            entry = heapq.heappop(downs)
            *_, size, down, one = entry
            if one.index in gained or size != one.size:
                if one.index not in gained and (fresh := self._loss(one)) is not None and fresh[5] != size:
                    heapq.heappush(downs, fresh)
                continue
            if one is party or not could_give(one, party, queue):
                aside.append(entry)
                continue
            loss += one.weight * down.gain
            if loss >= limit:
                aside.append(entry)
                break
            givers[one.index] = one
            for role, count in ((WORKER, down.workers), (PS, down.ps)):
                for _ in range(count):
                    self.seating.drop(one, role)
            if self.seating.add_all(party, roles) is None:
                gone = self.seating.dropped(mark)
                for other, role in gone:
                    self.seating.add(other, role)
                losers = {other.index for other, _ in gone}
                break
            if (fresh := self._loss(one)) is not None:
                heapq.heappush(downs, fresh)
        if not losers:
            self.seating.undo(mark)
        for one in givers.values():
            if (fresh := self._loss(one)) is not None:
                heapq.heappush(downs, fresh)
        for old in aside:
            heapq.heappush(downs, old)
        return losers

    def _loss(self, party: Party) -> Loss | None:
        least = (
            max(party.least[0], min(party.need[0], party.size[0])),
            max(party.least[1], min(party.need[1], party.size[1])),
        )
        step = party.curve.down(party.size, least)
        if step is None:
            return None
        rate, number = party.weight * step.rate, next(self.number)
        return rate, -self._has(party), -party.arrived, -party.index, number, party.size, step, party
