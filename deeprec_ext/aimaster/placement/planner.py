"""Which slots move where: the fewest bytes that keep the slot map balanced by bytes, then by load, then by count. Pure.

A map is *balanced* when its largest PS load is at most 1.05 x the best balance found for that number of PS (longest
processing time first, then pairwise improvement). A slot that outweighs the fair share of a PS *dominates*: whatever else
happens that PS is the fullest, and by the largest load alone every map would be as good as any. So it gets a PS to
itself, the one it is on if it can, and what is left is balanced over what is left, in the same way.

Among balanced maps the one that moves the fewest bytes is found by branch and bound: slots in descending size, home first;
the lower bound of a branch is what overfull PS must still give away. Below about 14 slots the search is exhaustive;
beyond, it improves greedy solutions within a node budget. Equal bytes: fewer slots.

Slots that hold so little that all of them together are inside the tolerance are spread by load, where that is known; slots
without either evenly by count, which costs nothing; and every PS gets a slot.
"""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

TOLERANCE = 0.05
LIGHT = 0.02
"""Of a PS's fair share: so much, of the smallest slots together, may lie anywhere as far as bytes are concerned."""

NODES_MAX = 40_000

SUMS_MAX, SUMS_OF_ALL, SUMS_LEAST = 4_000, 48_000, 400
"""Sums of slots that are looked at for one PS: all of twelve slots; of many fewer do, since one slot outweighs little."""

IMPROVED_MAX = 32
"""Slots up to which a first map is improved by exchanges: of more, one outweighs little."""


@dataclass(frozen=True)
class SlotMove:
    slot: int
    source: int
    target: int


@dataclass(frozen=True)
class Plan:
    """A new slot map (slot -> task), the moves to it, and what they cost."""

    slot_map: tuple[int, ...]
    moves: tuple[SlotMove, ...]
    bytes: int

    def to_json(self) -> str:
        moves = [{"slot": m.slot, "source": m.source, "target": m.target} for m in self.moves]
        return json.dumps({"slot_map": list(self.slot_map), "moves": moves, "bytes": self.bytes})


def plan(slot_bytes: Sequence[int], slot_map: Sequence[int], tasks: Sequence[int], loads: Sequence[float] = ()) -> Plan:
    """The cheapest balanced map.

    Args:
        slot_bytes: [S] bytes of the variables of each slot; all 0: not known, slots count equally.
        slot_map: [S] present owner of each slot.
        tasks: the PS that shall own the slots; at least 1, at most S.
        loads: [S] measured load of each slot, in any unit; empty: not known.
    """
    if not tasks or len(tasks) > len(slot_map):
        raise ValueError(f"{len(slot_map)} slots cannot be spread over {len(tasks)} PS")
    weights = list(slot_bytes) if any(slot_bytes) else [1] * len(slot_map)
    bins = {task: number for number, task in enumerate(tasks)}
    home = [bins.get(task, -1) for task in slot_map]
    heavy = [slot for slot in range(len(weights)) if weights[slot] > 0]
    heavy.sort(key=lambda slot: (-weights[slot], slot))
    light = _light(weights, heavy, len(tasks)) if any(loads) else []
    heavy = heavy[: len(heavy) - len(light)]
    result = list(home)
    for slot, number in zip(heavy, _peeled([weights[s] for s in heavy], [home[s] for s in heavy], len(tasks))):
        result[slot] = number
    empty = [slot for slot in range(len(weights)) if weights[slot] == 0]
    if any(loads):
        by_load = light + [slot for slot in empty if loads[slot] > 0]
        _spread_by_load(loads, by_load, heavy, home, result, len(tasks))
        empty = [slot for slot in empty if not loads[slot] > 0]
    _spread_empty(empty, result, len(tasks))
    _use_all(weights, home, result, len(tasks))
    return make_plan(slot_bytes, slot_map, [tasks[number] for number in result])


def make_plan(slot_bytes: Sequence[int], old: Sequence[int], new: Sequence[int]) -> Plan:
    """The plan that leads from one map to another."""
    moves = tuple(SlotMove(s, old[s], new[s]) for s in range(len(old)) if old[s] != new[s])
    return Plan(tuple(new), moves, sum(slot_bytes[move.slot] for move in moves))


def whole_weights(weights: Sequence[float]) -> list[int]:
    """Loads as `plan` takes them, whole numbers: millionths of the sum. A slot without any load weighs a little."""
    total = sum(weights)
    return [max(1, round(1e6 * weight / total)) if total > 0 else 1 for weight in weights]


def initial_map(slots: int, ps: int) -> tuple[int, ...]:
    """The first slot map: slot s on PS s mod P."""
    return tuple(slot % ps for slot in range(slots))


def laid_out(slot_bytes: Sequence[int], ps: int) -> tuple[int, ...]:
    """The first slot map where it is known what will lie on slots: balanced by bytes. Nothing lies anywhere yet, so nothing is
    looked for but balance, and a thousand slots take milliseconds (`plan` looks for the fewest bytes to move, for minutes).

    Args:
        slot_bytes: [S] bytes of each.
        ps: 1 to S.
    """
    if not any(slot_bytes):
        return initial_map(len(slot_bytes), ps)
    order = sorted(range(len(slot_bytes)), key=lambda slot: (-slot_bytes[slot], slot))
    filled = [slot for slot in order if slot_bytes[slot] > 0]
    emptiest, where = [(0, number) for number in range(ps)], [-1] * len(slot_bytes)
    for slot in filled:
        load, number = emptiest[0]
        heapq.heapreplace(emptiest, (load + slot_bytes[slot], number))
        where[slot] = number
    if len(filled) <= IMPROVED_MAX:
        better = [where[slot] for slot in filled]
        _improve_balance([slot_bytes[slot] for slot in filled], better, ps)
        for slot, number in zip(filled, better):
            where[slot] = number
    _spread_empty([slot for slot in order if slot_bytes[slot] == 0], where, ps)
    _use_all(slot_bytes, where, where, ps)
    return tuple(where)


# ------------------------------------------------------------------------------------------------------- internals


def _light(weights: Sequence[int], heavy: Sequence[int], count: int) -> list[int]:
    """The end of `heavy`, descending by weight, that may lie anywhere."""
    free = LIGHT * sum(weights) / count
    found: list[int] = []
    for slot in reversed(heavy):
        free -= weights[slot]
        if free < 0:
            break
        found.append(slot)
    return found


def _spread_by_load(
    loads: Sequence[float],
    slots: Sequence[int],
    fixed: Sequence[int],
    home: Sequence[int],
    result: list[int],
    count: int,
) -> None:
    """Places slots whose bytes do not matter, on top of the load of those that are placed. Who fits at home stays there."""
    sums = [0.0] * count
    for slot in fixed:
        sums[result[slot]] += loads[slot]
    limit = max(sum(sums, sum(loads[slot] for slot in slots)) / count, max(sums)) * (1 + TOLERANCE)
    for slot in sorted(slots, key=lambda slot: (-loads[slot], slot)):
        at = home[slot]
        if at < 0 or sums[at] + loads[slot] > limit:
            at = min(range(count), key=lambda number: (sums[number], number != home[slot], number))
        result[slot] = at
        sums[at] += loads[slot]


def _peeled(sizes: Sequence[int], homes: Sequence[int], count: int) -> list[int]:
    """The cheapest balanced placement; slots that dominate have a PS to themselves. `sizes` is in descending order."""
    left, alone = sum(sizes), 0
    while count - alone > 1 and alone < len(sizes) - 1 and sizes[alone] * (count - alone) > left:
        left -= sizes[alone]
        alone += 1
    if not alone:
        return _cheapest(sizes, homes, count)
    taken: dict[int, int] = {}  # number of a PS -> the slot that it is for
    for slot in range(alone):
        if homes[slot] >= 0:
            taken.setdefault(homes[slot], slot)
    stays = [0] * count  # what lies there, of the others
    for size, at in list(zip(sizes, homes))[alone:]:
        if at >= 0:
            stays[at] += size
    for slot in range(alone):
        if slot not in taken.values():
            taken[min((n for n in range(count) if n not in taken), key=stays.__getitem__)] = slot
    rest = [number for number in range(count) if number not in taken]
    inner = _cheapest(sizes[alone:], [rest.index(at) if at in rest else -1 for at in homes[alone:]], len(rest))
    where = {slot: number for number, slot in taken.items()}
    return [where[slot] for slot in range(alone)] + [rest[number] for number in inner]


def _use_all(weights: Sequence[int], home: Sequence[int], result: list[int], count: int) -> None:
    """A PS that was asked for gets a slot, also where one slot outweighs all others and balance asks for no move.

    The slot that costs least: one that moves anyway, else the lightest. The largest load cannot grow by that.
    """
    for number in range(count):
        if number in result:
            continue
        spare = [slot for slot, owner in enumerate(result) if result.count(owner) > 1]
        if not spare:
            return
        cost = {slot: 0 if result[slot] != home[slot] else weights[slot] for slot in spare}
        result[min(spare, key=lambda slot: (cost[slot], weights[slot], slot))] = number


def _loads(sizes: Sequence[int], where: Sequence[int], count: int) -> list[int]:
    loads = [0] * count
    for size, number in zip(sizes, where):
        loads[number] += size
    return loads


def _improve_balance(sizes: Sequence[int], where: list[int], count: int) -> None:
    """Moves and swaps between the fullest PS and the others while the largest load shrinks."""
    loads = _loads(sizes, where, count)
    for _ in range(4 * len(sizes)):
        full = max(range(count), key=loads.__getitem__)
        best: tuple[int, int, int, int] | None = None  # worse of the two loads, slot, target, partner or -1
        for i, size in enumerate(sizes):
            if where[i] != full:
                continue
            for target in range(count):
                if target != full:
                    worse = max(loads[full] - size, loads[target] + size)
                    if worse < loads[full] and (best is None or worse < best[0]):
                        best = (worse, i, target, -1)
            for j, other in enumerate(sizes):
                if where[j] != full and other < size:
                    worse = max(loads[full] - size + other, loads[where[j]] + size - other)
                    if worse < loads[full] and (best is None or worse < best[0]):
                        best = (worse, i, where[j], j)
        if best is None:
            return
        _, i, target, j = best
        loads[full] -= sizes[i]
        loads[target] += sizes[i]
        where[i] = target
        if j >= 0:
            loads[target] -= sizes[j]
            loads[full] += sizes[j]
            where[j] = full


def _longest_first(sizes: Sequence[int], count: int) -> list[int]:
    """The balance that is possible when everything may move. `sizes` is in descending order."""
    loads, where = [0] * count, []
    for size in sizes:
        number = min(range(count), key=loads.__getitem__)
        loads[number] += size
        where.append(number)
    _improve_balance(sizes, where, count)
    return where


def _relabel(sizes: Sequence[int], homes: Sequence[int], where: Sequence[int], count: int) -> list[int]:
    """The same partition with the labels that keep most bytes at home (greedy matching)."""
    kept: dict[tuple[int, int], int] = {}
    for size, home, number in zip(sizes, homes, where):
        if home >= 0:
            kept[number, home] = kept.get((number, home), 0) + size
    label: dict[int, int] = {}
    for (number, home), _ in sorted(kept.items(), key=lambda item: -item[1]):
        if number not in label and home not in label.values():
            label[number] = home
    free = [number for number in range(count) if number not in label.values()]
    for number in range(count):
        if number not in label:
            label[number] = free.pop()
    return [label[number] for number in where]


def _cost(sizes: Sequence[int], homes: Sequence[int], where: Sequence[int]) -> tuple[int, int]:
    moved = [size for size, home, number in zip(sizes, homes, where) if home != number]
    return sum(moved), len(moved)


def _evict(indices: list[int], sizes: Sequence[int], excess: int) -> list[int]:
    """The subset of `indices` with the smallest sum of at least `excess` (subset sums, thinned where they are many)."""
    most = max(SUMS_LEAST, min(SUMS_MAX, SUMS_OF_ALL // max(1, len(indices))))
    sums: dict[int, tuple[int, ...]] = {0: ()}
    done: dict[int, tuple[int, ...]] = {}
    for i in indices:
        for total, chosen in list(sums.items()):
            new = total + sizes[i]
            table = done if new >= excess else sums
            if new not in table or len(table[new]) > len(chosen) + 1:
                table[new] = (*chosen, i)
        if len(sums) > most:
            sums = dict(sorted(sums.items())[::2])
    return list(done[min(done)]) if done else list(indices)


def _repair(
    sizes: Sequence[int], homes: Sequence[int], count: int, limit: int, chance: random.Random | None
) -> list[int] | None:
    """Evicts the least from every overfull PS and packs it elsewhere; None when it does not fit."""
    where = list(homes)
    pool = [i for i, home in enumerate(homes) if home < 0]
    loads = [0] * count
    for size, home in zip(sizes, homes):
        if home >= 0:
            loads[home] += size
    for number in range(count):
        if loads[number] > limit:
            own = [i for i, home in enumerate(homes) if home == number]
            if chance:
                chance.shuffle(own)
            gone = _evict(own, sizes, loads[number] - limit)
            pool += gone
            loads[number] -= sum(sizes[i] for i in gone)
    pool.sort(key=lambda i: -sizes[i] * (chance.uniform(0.7, 1.3) if chance else 1))
    for i in pool:
        fits = [number for number in range(count) if loads[number] + sizes[i] <= limit and number != homes[i]]
        if not fits:
            return None
        tight = chance is not None and chance.random() < 0.5
        number = max(fits, key=loads.__getitem__) if tight else min(fits, key=loads.__getitem__)
        loads[number] += sizes[i]
        where[i] = number
    return where


def _cheapest(sizes: Sequence[int], homes: Sequence[int], count: int) -> list[int]:
    if not sizes:
        return []
    balanced = _longest_first(sizes, count)
    here = [home if home >= 0 else 0 for home in homes]
    _improve_balance(sizes, here, count)
    best_load = min(max(_loads(sizes, where, count)) for where in (balanced, here))
    limit = int(best_load * (1 + TOLERANCE))
    chance = random.Random(0)
    found = [_repair(sizes, homes, count, limit, None if attempt == 0 else chance) for attempt in range(12)]
    candidates = [where for where in found if where is not None]
    for where in (_relabel(sizes, homes, balanced, count), here):
        if max(_loads(sizes, where, count)) <= limit:
            candidates.append(where)
    start = min(candidates, key=lambda where: _cost(sizes, homes, where))
    if len(sizes) > 200:  # depth of the recursion
        return start
    return _Search(sizes, homes, count, limit, start).run()


class _Search:
    """Branch and bound over the slots in descending size."""

    def __init__(self, sizes: Sequence[int], homes: Sequence[int], count: int, limit: int, start: list[int]) -> None:
        self.sizes, self.homes, self.count, self.limit = sizes, homes, count, limit
        self.best, self.cost = list(start), _cost(sizes, homes, start)
        self.where = [-1] * len(sizes)
        self.loads = [0] * count
        self.waiting = [0] * count  # bytes at home that are not decided yet
        self.homeless = [0] * (len(sizes) + 1)  # bytes of drained PS from slot i on
        for i in range(len(sizes) - 1, -1, -1):
            self.homeless[i] = self.homeless[i + 1] + (sizes[i] if homes[i] < 0 else 0)
        for size, home in zip(sizes, homes):
            if home >= 0:
                self.waiting[home] += size
        self.nodes = 0

    def run(self) -> list[int]:
        self._descend(0, 0, 0)
        return self.best

    def _bound(self, i: int) -> int:
        """Bytes that must still move, whatever is decided from slot i on."""
        smallest = self.sizes[-1]
        bound = self.homeless[i]
        for number in range(self.count):
            excess = self.loads[number] + self.waiting[number] - self.limit
            if excess > 0:
                bound += max(excess, smallest * -(-excess // self.sizes[i]))
        return bound

    def _descend(self, i: int, moved: int, count: int) -> None:
        self.nodes += 1
        if i == len(self.sizes):
            if (moved, count) < self.cost:
                self.best, self.cost = list(self.where), (moved, count)
            return
        if self.nodes > NODES_MAX or (moved + self._bound(i), count) >= self.cost:
            return
        size, home = self.sizes[i], self.homes[i]
        if home >= 0:
            self.waiting[home] -= size
            if self.loads[home] + size <= self.limit:
                self._put(i, home, moved, count)
        seen: set[tuple[int, int]] = set()
        for number in sorted(range(self.count), key=self.loads.__getitem__):
            alike = (self.loads[number], self.waiting[number])  # PS in the same situation are interchangeable ...
            if number == home or self.loads[number] + size > self.limit:
                continue
            if self.waiting[number] == 0:  # ... once nothing of their own is left to decide
                if alike in seen:
                    continue
                seen.add(alike)
            self._put(i, number, moved + size, count + 1)
        if home >= 0:
            self.waiting[home] += size

    def _put(self, i: int, number: int, moved: int, count: int) -> None:
        self.where[i] = number
        self.loads[number] += self.sizes[i]
        self._descend(i + 1, moved, count)
        self.loads[number] -= self.sizes[i]


def _spread_empty(slots: Sequence[int], where: list[int], count: int) -> None:
    """Places slots without bytes so that their counts differ by at most one, moving as few as possible."""
    owned: list[list[int]] = [[] for _ in range(count)]
    pool: list[int] = []
    for slot in slots:
        (owned[where[slot]] if where[slot] >= 0 else pool).append(slot)
    low, extra = divmod(len(slots), count)
    by_size = sorted(range(count), key=lambda number: -len(owned[number]))
    quota = {number: low + (1 if rank < extra else 0) for rank, number in enumerate(by_size)}
    for number in range(count):
        while len(owned[number]) > quota[number]:
            pool.append(owned[number].pop())
    for number in range(count):
        while len(owned[number]) < quota[number]:
            owned[number].append(pool.pop())
            where[owned[number][-1]] = number
