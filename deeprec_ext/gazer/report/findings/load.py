"""Rules about where the work of the PS is, and whether a step waits for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.findings.finding import ADVICE, SECONDS_MIN, TRACES_MIN, Finding, percent
from deeprec_ext.gazer.report.ps_load import Loads, Move, rebalance, saved_by
from deeprec_ext.gazer.report.work import median, table_of, transfer_shares, transfers, within
from deeprec_ext.units import format_bytes, format_seconds

UNEVEN = 1.3
"""A PS, or slot, is hot above so many times its fair share: the spread by bytes alone is seldom worse than that."""

SAVING_MIN = 0.05
"""Nothing is advised for less of the step time: it is within the error of the estimate, and a change costs a pause."""

ONE_TABLE = 0.5
"""A table with so much of its slot's work is what makes the slot hot."""

PS_BOUND = 0.5
"""A step in which the busiest PS works for more than half of the time waits for PS more than for anything else."""

TRANSFER_BOUND = 0.5
"""The same for the busiest connection of a trainer."""


def _loads(case: Case) -> Loads | None:
    """None on thin evidence."""
    loads = case.loads
    if loads is None or loads.traces < TRACES_MIN or loads.seconds < SECONDS_MIN or not loads.trainers:
        return None
    return loads


def _measured(loads: Loads) -> str:
    return f"measured over {format_seconds(loads.seconds)} with one slot map, {loads.traces} traced steps"


def _moves(moves: Sequence[Move]) -> str:
    """`slot-3, slot-5 to ps-0; slot-1 to ps-2`."""
    targets: dict[str, list[str]] = {}
    for move in moves:
        targets.setdefault(move.target, []).append(f"slot-{move.slot}")
    return "; ".join(f"{', '.join(slots)} to {target}" for target, slots in targets.items())


def hot_ps(case: Case) -> Iterable[Finding]:
    """One PS works more than its share, and moving slots would make steps faster."""
    loads = _loads(case)
    if loads is None or len(loads.ps) < 2:
        return
    hot = loads.ps[0]
    ratio, moves = rebalance(loads)
    saving = saved_by(loads, ratio)
    if hot.busy * len(loads.ps) < UNEVEN * loads.busy or saving < SAVING_MIN:
        return
    part, lookups = hot.busy / loads.busy, hot.lookup_rows / loads.lookup_rows if loads.lookup_rows else 0.0
    what = f"{percent(lookups)} of the look-ups and {percent(part)}" if lookups else percent(part)
    yield Finding(
        "hot-ps", ADVICE,
        f"PS {hot.name} does {what} of the work of {len(loads.ps)} PS: a rebalance by load would save about "
        f"{percent(saving)} of the step time",
        (
            f"{hot.name} is at work for {percent(loads.part_of_step(hot.busy))} of a trainer's step, the idlest PS, "
            f"{loads.ps[-1].name}, for {percent(loads.part_of_step(loads.ps[-1].busy))}",
            f"after moving {_moves(moves)} the busiest PS would have {percent(ratio)} of the load that {hot.name} has now",
            _measured(loads),
        ),
        f"Move {_moves(moves)}: {_how(loads)}",
        hot.name, saving,
    )  # fmt: skip


def _how(loads: Loads) -> str:
    """What moves slots, given that by hand they are spread by bytes."""
    if loads.ps[0].bytes * len(loads.ps) >= UNEVEN * sum(one.bytes for one in loads.ps):
        return "`deeprec-ext scale DIR --rebalance` does about that, because the busiest PS has the most bytes as well."
    return (
        "`deeprec-ext run --autoscale` moves slots by load. `scale --rebalance` does not help, it spreads bytes, and they are "
        "even; without autoscaling cut the tables on these slots with elastic_partitioner."
    )


def hot_slot(case: Case) -> Iterable[Finding]:
    """One slot has so much that it fills a PS by itself, wherever it lies: its table has to be cut, or leave the others."""
    loads = _loads(case)
    if loads is None or len(loads.ps) < 2 or not loads.load:
        return
    hot, fair = loads.slots[0], loads.load / len(loads.ps)
    present = max(sum(slot.load for slot in loads.slots if slot.owner == one.name) for one in loads.ps)
    saving = saved_by(loads, fair / present) if present else 0.0
    if hot.load < UNEVEN * fair or saving < SAVING_MIN:
        return
    table, of_slot = table_of(hot.slot, hot.largest, within(case.story.traces, loads.windows))
    share = hot.load / loads.load
    ratio, _ = rebalance(loads)
    others = sum(slot.lookup_rows for slot in loads.slots)
    rows = f"; it does {percent(hot.lookup_rows / others)} of the look-ups" if others else ""
    helps = "no rebalance helps" if saved_by(loads, ratio) < SAVING_MIN else "a rebalance helps in part only"
    cut = of_slot >= ONE_TABLE or len(hot.largest) < 2
    named = f" (table {table}, on {hot.owner})" if cut and table else f" (on {hot.owner})"
    yield Finding(
        "hot-slot", ADVICE,
        f"Slot {hot.slot}{named} alone has {percent(share)} of the load of all slots: {helps}, "
        f"{'cut the table' if cut else 'its tables have to lie apart'}; "
        f"spread evenly it would save about {percent(saving)} of the step time",
        (
            f"a fair share of {len(loads.ps)} PS is {percent(1 / len(loads.ps))}{rows}",
            f"the best rebalance would leave the busiest PS {percent(ratio)} of its load",
            f"on the slot: {', '.join(f'{one.name} ({format_bytes(one.bytes)})' for one in hot.largest[:5]) or 'unknown'}",
            _measured(loads),
        ),
        f"Cut {table or 'the table'} along its rows: put "
        "`partitioner=deeprec_ext.elastic_partitioner(part_bytes=…)` into its variable_scope, with part_bytes small enough "
        "for as many parts as there are PS."
        if cut
        else f"No table of the slot has half of its work, {table} has most: run with more `--slots`, so that fewer share one.",
        hot.name, saving,
    )  # fmt: skip


def ps_bound(case: Case) -> Iterable[Finding]:
    """Steps wait for PS, and the PS share the work evenly: more of them help."""
    loads = _loads(case)
    if loads is None or not loads.load:
        return
    busiest, count = loads.ps[0], len(loads.ps)
    if busiest.busy * count >= UNEVEN * loads.busy and count > 1:
        return  # uneven: hot_ps and hot_slot say what to do first
    largest = loads.slots[0].load / loads.load
    after = max(largest, 1 / (count + 1)) * loads.busy
    saving = saved_by(loads, min(1.0, after / busiest.busy))
    if loads.part_of_step(busiest.busy) < PS_BOUND or saving < SAVING_MIN or count >= len(loads.slots):
        return
    yield Finding(
        "ps-bound", ADVICE,
        f"Steps wait for the PS: {busiest.name} is at work for {percent(loads.part_of_step(busiest.busy))} of each; "
        f"one more PS would save about {percent(saving)} of the step time",
        (
            f"the work of {count} PS, spread over {count + 1}, would leave the busiest "
            f"{percent(after / busiest.busy)} of its load",
            _measured(loads),
        ),
        f"`deeprec-ext scale DIR --ps {count + 1}`; if the machine has no idle cores, give the PS more CPU first.",
        busiest.name, saving,
    )  # fmt: skip


def transfer_bound(case: Case) -> Iterable[Finding]:
    """Steps wait for tensors on the way between PS and trainers."""
    traces = within(case.story.traces, case.calm)
    shares = transfer_shares(traces)
    if len(shares) < TRACES_MIN or median(shares) < TRANSFER_BOUND:
        return
    edge = transfers(traces)[0]
    yield Finding(
        "transfer-bound", ADVICE,
        f"Steps wait for transfers: in the median traced step one connection is at work for {percent(median(shares))} of "
        "the time",
        (
            f"the longest: {edge.source} → {edge.target}, {format_bytes(edge.bytes)} in {edge.tensors:.0f} tensors and "
            f"{format_seconds(edge.seconds)} per step",
            f"measured over {len(shares)} traced steps",
        ),
        "Send less: `--setting dedup=on` looks up unique ids only, smaller embeddings or fewer dense variables on PS help as "
        "well; or larger batches, which send the dense part less often. "
        + ("All of it is on one machine: what a transfer waits for there is a core, and fewer processes may be as fast."
           if case.one_host else "Across machines, check the network between these two."),
        edge.source, median(shares),
    )  # fmt: skip


RULES = (hot_slot, hot_ps, ps_bound, transfer_bound)
