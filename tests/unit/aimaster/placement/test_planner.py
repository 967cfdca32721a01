"""The planner against brute force: never more bytes than the cheapest map that is balanced as well."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from deeprec_ext.aimaster.placement import planner
from deeprec_ext.aimaster.placement.holder_plan import first_holders, plan_holders


def loads(slot_bytes: list[int], slot_map: tuple[int, ...], tasks: list[int]) -> list[int]:
    return [sum(b for b, t in zip(slot_bytes, slot_map) if t == task) for task in tasks]


def fullest_first(slot_bytes: list[int], slot_map: tuple[int, ...], tasks: list[int]) -> list[int]:
    return sorted(loads(slot_bytes, slot_map, tasks), reverse=True)


def brute_force(slot_bytes: list[int], slot_map: list[int], tasks: list[int], as_good: list[int]) -> int:
    """The fewest bytes over all maps that use every PS and whose fullest, second fullest, ... are no fuller than these."""
    best = None
    for candidate in itertools.product(tasks, repeat=len(slot_map)):
        mine = fullest_first(slot_bytes, candidate, tasks)
        if len(set(candidate)) == len(tasks) and all(one <= other for one, other in zip(mine, as_good)):
            cost = sum(b for b, old, new in zip(slot_bytes, slot_map, candidate) if old != new)
            best = cost if best is None else min(best, cost)
    assert best is not None
    return best


@pytest.mark.parametrize("seed", range(30))
def test_moves_no_more_than_the_cheapest_map_that_is_balanced_as_well(seed: int) -> None:
    chance = random.Random(seed)
    slots = chance.randint(3, 8)
    before, after = chance.randint(1, 3), chance.randint(1, min(3, slots))
    slot_bytes = [chance.choice([1, 2, 3, 5, 50]) * chance.randint(1, 40) for _ in range(slots)]
    slot_map = [chance.randrange(before) for _ in range(slots)]
    tasks = chance.sample(range(max(before, after) + 1), after)
    result = planner.plan(slot_bytes, slot_map, tasks)
    assert set(result.slot_map) <= set(tasks)
    worst = max(loads(slot_bytes, result.slot_map, tasks))
    assert result.bytes <= brute_force(slot_bytes, slot_map, tasks, fullest_first(slot_bytes, result.slot_map, tasks))
    best = min(max(loads(slot_bytes, candidate, tasks)) for candidate in itertools.product(tasks, repeat=slots))
    assert worst <= 1.05 * best * 1.05, "balanced, too: within the tolerance of a near-optimal balance"


@pytest.mark.parametrize(("slots", "before", "after"), [(15, 3, 5), (30, 5, 3), (64, 4, 16), (64, 16, 4), (60, 1, 4)])
def test_equal_slots_move_only_what_the_new_shares_need(slots: int, before: int, after: int) -> None:
    slot_map = [s % before for s in range(slots)]
    started = time.perf_counter()
    result = planner.plan([7] * slots, slot_map, list(range(after)))
    share = -(-slots // after)
    assert max(loads([7] * slots, result.slot_map, list(range(after)))) == 7 * share
    old = [slot_map.count(task) for task in range(max(before, after))]
    needed = sum(old[after:]) if after < before else sum(max(0, count - share) for count in old)
    assert result.bytes == 7 * max(needed, 0)
    assert time.perf_counter() - started < 5  # a guard against explosion, not a measurement


def test_uneven_slots_of_a_large_job_stay_near_the_lower_bound() -> None:
    chance = random.Random(1)
    slot_bytes = [int(1e6 * chance.lognormvariate(0, 1)) for _ in range(64)]
    slot_map = list(planner.plan(slot_bytes, [s % 8 for s in range(64)], list(range(8))).slot_map)
    result = planner.plan(slot_bytes, slot_map, list(range(16)))
    worst = max(loads(slot_bytes, result.slot_map, list(range(16))))
    must_leave = sum(max(0, load - worst) for load in loads(slot_bytes, tuple(slot_map), list(range(16))))
    assert must_leave <= result.bytes <= 1.05 * must_leave


def test_a_balanced_map_is_left_alone() -> None:
    assert planner.plan([10, 10, 10, 10], [0, 1, 0, 1], [0, 1]).moves == ()


def test_without_a_catalogue_slots_count_equally() -> None:
    result = planner.plan([0] * 8, [0] * 8, [0, 1])
    assert sorted(result.slot_map) == [0, 0, 0, 0, 1, 1, 1, 1]


def test_empty_slots_spread_evenly_and_cost_nothing() -> None:
    result = planner.plan([100, 100, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 1])
    assert result.bytes == 0
    assert [result.slot_map[s] for s in (2, 3, 4, 5)].count(1) == 2


def test_more_ps_than_slots_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot be spread"):
        planner.plan([1], [0], [0, 1])


def test_every_ps_gets_a_slot_even_where_one_slot_outweighs_all_others() -> None:
    sizes = [1000, 1, 2, 3, 0, 0, 0, 0]
    result = planner.plan(sizes, [0, 1, 1, 1, 0, 1, 0, 1], [0, 1, 2])
    assert set(result.slot_map) == {0, 1, 2}
    assert result.bytes == 3, "the others are spread, too"


def test_what_a_dominating_slot_leaves_is_spread_over_the_other_ps() -> None:
    """Census on 1 -> 2 PS: by the largest load alone every map is balanced, and 6 756 of 12.4 MB used to move."""
    sizes = [12_000_000, 6_756, 100_000, 0, 150_000, 0, 100_000, 44_000]
    result = planner.plan(sizes, [0] * 8, [0, 1])
    assert loads(sizes, result.slot_map, [0, 1]) == [12_000_000, 400_756]
    assert planner.plan(sizes, result.slot_map, [0, 1]).moves == (), "and nothing moves a second time"
    onto_four = planner.plan(sizes, result.slot_map, [0, 1, 2, 3])
    assert sorted(loads(sizes, onto_four.slot_map, [0, 1, 2, 3]))[:3] == [106_756, 144_000, 150_000]
    assert onto_four.slot_map[0] == 0, "who dominates stays where it is"


def test_slots_that_dominate_one_ps_each_keep_what_they_have() -> None:
    result = planner.plan([50, 60, 1, 1, 1], [0, 0, 0, 1, 1], [0, 1, 2])
    assert fullest_first([50, 60, 1, 1, 1], result.slot_map, [0, 1, 2]) == [60, 50, 3]
    assert result.slot_map[1] == 0, "the larger of the two stays"


def test_slots_of_hardly_any_bytes_are_spread_by_load_and_those_without_either_by_count() -> None:
    sizes = [1000, 1000, 1, 1, 1, 1, 0, 0]
    result = planner.plan(sizes, [0, 1, 0, 0, 0, 0, 0, 0], [0, 1], [0.1, 0.1, 4, 3, 2, 1, 0, 0])
    assert [result.slot_map[s] for s in (0, 1)] == [0, 1]
    weights = [0.1, 0.1, 4, 3, 2, 1, 0, 0]
    assert max(loads(weights, result.slot_map, [0, 1])) <= 1.05 * sum(weights) / 2
    assert sorted(result.slot_map[s] for s in (6, 7)) == [0, 1]


def test_load_moves_no_bytes_that_matter() -> None:
    result = planner.plan([100, 100, 90, 110], [0, 0, 1, 1], [0, 1], [9, 9, 0, 0])
    assert result.moves == ()


@pytest.mark.parametrize("seed", range(20))
def test_a_first_map_is_balanced_as_the_best_plan_is(seed: int) -> None:
    chance = random.Random(seed)
    slots = chance.choice([3, 8, 16, 40])
    ps = chance.randint(1, min(slots, 6))
    sizes = [chance.choice([0, 1, chance.randint(1, 10**6)]) for _ in range(slots)]
    tasks = list(range(ps))
    made = planner.laid_out(sizes, ps)
    assert set(made) == set(tasks), "each PS has slots"
    best = planner.plan(sizes, planner.initial_map(slots, ps), tasks).slot_map
    assert max(loads(sizes, made, tasks)) <= (1 + 2 * planner.TOLERANCE) * max(loads(sizes, best, tasks))


def test_without_bytes_a_first_map_is_slot_after_slot() -> None:
    assert planner.laid_out([0] * 5, 2) == planner.initial_map(5, 2) == (0, 1, 0, 1, 0)


@pytest.mark.parametrize("seed", range(20))
def test_first_holders_are_those_that_are_planned_where_nobody_holds_anything(seed: int) -> None:
    chance = random.Random(seed)
    slots, ps = chance.randint(1, 40), chance.randint(1, 8)
    sizes = [chance.choice([0, 1, chance.randint(1, 10**6)]) for _ in range(slots)]
    slot_map = [chance.randrange(ps) for _ in range(slots)]
    planned = plan_holders(sizes, slot_map, {task: str(task) for task in range(ps)}, {})
    found = first_holders(sizes, slot_map, ps)
    assert dict(enumerate(found)) == planned
