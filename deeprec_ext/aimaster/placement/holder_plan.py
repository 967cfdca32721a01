"""Who is to holder which slot, and as whom it reads: pure."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

READERS = ("peer", "next")
"""Sets of dirty rows that holders have: one that is to take another's place reads as the other of them, until it has a copy."""


def plan_holders(
    sizes: Sequence[int], slot_map: Sequence[int], hosts: Mapping[int, str], present: Mapping[int, int]
) -> dict[int, int]:
    """slot -> task of its holder, for every slot; empty with a single PS. Pure.

    Largest slots first, each to the least loaded PS that is not its owner; another host before the same one, and the
    present holder before others as long as that costs it no more than a fair share.

    Args:
        sizes: [S] bytes of each slot.
        slot_map: [S] owner of each slot.
        hosts: task -> host, of every PS that can holder.
        present: slot -> task of the holder it has.
    """
    tasks = sorted(hosts)
    if len(tasks) < 2:
        return {}
    load = dict.fromkeys(tasks, 0)
    fair = 1.25 * sum(sizes) / len(tasks)
    plan: dict[int, int] = {}
    for slot in sorted(range(len(slot_map)), key=lambda slot: (-sizes[slot], slot)):
        owner = slot_map[slot]
        others = [task for task in tasks if task != owner]
        away = [task for task in others if hosts[task] != hosts.get(owner)]
        choice = away or others
        best = min(choice, key=lambda task: (load[task], task))
        now = present.get(slot, -1)
        if now in choice and (load[now] + sizes[slot] <= fair or load[now] <= load[best]):
            best = now
        plan[slot] = best
        load[best] += sizes[slot]
    return plan


def first_holders(sizes: Sequence[int], slot_map: Sequence[int], ps: int) -> tuple[int, ...]:
    """[S] the holder of each slot as `plan_holders` has it for PS 0 to P - 1, each on a host of its own, that hold nothing
    yet; empty with a single PS. In S log P steps: estimates look at many numbers of PS."""
    if ps < 2:
        return ()
    emptiest, found = [(0, task) for task in range(ps)], [-1] * len(slot_map)
    for slot in sorted(range(len(slot_map)), key=lambda slot: (-sizes[slot], slot)):
        own = heapq.heappop(emptiest) if emptiest[0][1] == slot_map[slot] else None
        load, found[slot] = emptiest[0]
        heapq.heapreplace(emptiest, (load + sizes[slot], found[slot]))
        if own is not None:
            heapq.heappush(emptiest, own)
    return tuple(found)


@dataclass(frozen=True)
class Told:
    """What holders are told of one slot: task -> as whom it reads; and which of them only until the planned one has a copy."""

    readers: Mapping[int, str]
    until_then: int = -1


def tell_slot(holder: int, present: int, present_reader: str, before: Mapping[int, str]) -> Told:
    """Args:
    holder: task of the planned holder; -1: there is none.
    present: task of who has the copy that counts now and is to keep it until the planned holder has one; -1: nobody.
    present_reader: as whom it reads.
    before: task -> reader of who was told of this slot last time, with the same owner, and lives.
    """
    if present in (-1, holder):
        reader = before.get(holder) or (present_reader if present == holder else "") or _free(before)
        return Told({holder: reader} if holder != -1 and reader else {})
    kept = {present: present_reader}
    others = {task: reader for task, reader in before.items() if task != present}
    reader = before.get(holder) or _free({**others, **kept})
    if holder == -1 or not reader or reader == present_reader:  # two others have been reading: when they have stopped
        return Told(kept, present)
    return Told({**kept, holder: reader}, present)


def _free(used: Mapping[int, str]) -> str:
    return next((reader for reader in READERS if reader not in used.values()), "")
