"""What processes used, and where the work of the PS was."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from deeprec_ext.gazer.report import curves
from deeprec_ext.gazer.report.case import Case
from deeprec_ext.gazer.report.document import GREY, PS, TRAINER, Bar, Block, Cell, Section, Spark, Table, Text
from deeprec_ext.gazer.report.findings.finding import percent
from deeprec_ext.gazer.report.ps_load import Loads, spread
from deeprec_ext.gazer.report.story import Placement
from deeprec_ext.gazer.report.usage import RoleUse, Use, memory_metric, uses
from deeprec_ext.gazer.report.words import cores, hours, left_out, number, seconds
from deeprec_ext.gazer.report.work import heaviest, transfers, within
from deeprec_ext.units import format_bytes, format_seconds

ROWS_MAX, OPS_MAX, TRANSFERS_MAX = 50, 15, 15
UNLIMITED = "No limits were set: processes share what the machine has; there is use to show, and no waste."
_KINDS = {"ps": PS, "chief": TRAINER, "worker": TRAINER}


def resources(case: Case) -> Section:
    """CPU and memory of each process against what it may use, and the sums per kind."""
    found = uses(case.story, case.lines)
    if not found:
        return Section("resources", "Resources", [Text("Nothing was measured.")])
    columns = ("role", "CPU over time", "CPU mean", "peak", "limit", "memory over time", "memory mean", "peak", "limit",
               "files", "threads")  # fmt: skip
    rows = [_row(case, use, _top(found, "cpu"), _top(found, "memory")) for use in found[:ROWS_MAX]]
    limited = any(part is not None and part.limit for use in found for part in (use.cpu, use.memory))
    note = "CPU in cores. " + ("A limit of – is none of its own." if limited else UNLIMITED)
    more = f" {len(found) - ROWS_MAX} more roles are in `--json`." if len(found) > ROWS_MAX else ""
    blocks: list[Block] = [Table(columns, rows, frozenset({2, 3, 4, 6, 7, 8, 9, 10}), note + more), _sums(found)]
    return Section("resources", "Resources", blocks)


def cost(case: Case) -> Section | None:
    """What the pods of a job in a cluster have used, and what pods of the size that was written would have."""
    told = case.story.cost
    if not told:
        return None
    used, static = told.get("pod_hours") or {}, told.get("static_pod_hours") or {}
    rows = [[role, number(used.get(role, 0.0)), number(static.get(role, 0.0))] for role in sorted({*used, *static})]
    price, saved, known = told.get("cost"), told.get("saved"), float(told.get("priced_share") or 0.0)
    if price is None:
        note = "No price of a node is known."
    else:
        note = f"The cost is {number(price)}" + (f", of {percent(known)} of the hours" if known < 1 else "") + "."
    if saved is not None:
        static_cost = number(told.get("static_cost") or 0.0)
        note += f" Pods of the written size on demand would have cost {static_cost} in the same time."
    return Section("cost", "Cost", [Table(("role", "pod-hours", "of the written size"), rows, frozenset({1, 2}), note)])


def _top(found: Sequence[RoleUse], resource: str) -> float:
    """Scale of curves of processes without a limit: they compare with each other."""
    return max((use.peak for one in found if (use := getattr(one, resource)) is not None), default=0.0)


def _row(case: Case, use: RoleUse, top_cpu: float, top_memory: float) -> Sequence[Cell]:
    memory = memory_metric(case.story, case.lines, use.name)
    return [
        use.name, *_resource(case, use, use.cpu, "cpu_cores", cores, top_cpu),
        *_resource(case, use, use.memory, memory, format_bytes, top_memory),
        number(use.files) if use.files else "–", number(use.threads) if use.threads else "–",
    ]  # fmt: skip


def _resource(
    case: Case, use: RoleUse, one: Use | None, metric: str, shown: Callable[[float], str], top: float
) -> list[Cell]:
    """Curve, mean, peak, limit."""
    if one is None:
        return ["", "–", "–", "–"]
    values = curves.spark(case.lines.spans(use.name, metric), case.story.began, case.story.ended)
    curve = Spark(values, one.limit or top, _KINDS.get(use.kind, GREY))
    return [curve, shown(one.mean), shown(one.peak), shown(one.limit) if one.limit else "–"]


def _sums(found: Sequence[RoleUse]) -> Table:
    """Per kind of role: used, and requested but not used."""
    rows: list[Sequence[Cell]] = []
    for kind, group in itertools.groupby(found, key=lambda use: use.kind):
        members = list(group)
        cpu = [use.cpu for use in members if use.cpu is not None]
        memory = [use.memory for use in members if use.memory is not None]
        rows.append([
            kind, str(len(members)), hours(sum(one.mean * one.seconds for one in cpu), "core"), _waste(cpu, 1.0, "core"),
            hours(sum(one.mean * one.seconds for one in memory) / 1e9, "GB"), _waste(memory, 1e9, "GB"),
        ])  # fmt: skip
    columns = ("kind", "processes", "CPU used", "CPU wasted", "memory used", "memory wasted")
    return Table(
        columns, rows, frozenset(range(1, 6)), "Wasted: requested minus used, over the time.", "Used and wasted"
    )


def _waste(found: Sequence[Use], unit: float, name: str) -> str:
    limited = [one for one in found if one.limit]
    if not limited:
        return "no limit set"
    wasted, total = sum(one.wasted for one in limited), sum(one.limit * one.seconds for one in limited)
    return f"{hours(wasted / unit, name)} ({percent(wasted / total)})"


def balance(case: Case) -> Section:
    """Bars of PS and slots: bytes, look-ups, time at work."""
    loads = case.loads
    if loads is None:
        blocks: list[Block] = [Text("Nothing is known of the load of PS and slots: no step was traced in calm time.")]
        if placed := _bytes_only(case):
            blocks.append(placed)
        return Section("balance", "Balance of PS and slots", blocks)
    when = (f"Means over {format_seconds(loads.seconds)} of training with one slot map, from {loads.traces} traced steps. At "
            f"work: part of a trainer's step in which an op ran. Unevenness of PS: {_spreads(loads)}.")  # fmt: skip
    return Section("balance", "Balance of PS and slots", [Text(when), _ps_table(loads), _slot_table(loads)])


def _spreads(loads: Loads) -> str:
    parts = (("work", {one.name: one.busy for one in loads.ps}), ("look-ups", {one.name: one.lookup_rows for one in loads.ps}),
             ("bytes", {one.name: float(one.bytes) for one in loads.ps}))  # fmt: skip
    return ", ".join(f"{name} {spread(values):.2f}" for name, values in parts if any(values.values())) + " (1 is even)"


def _ps_table(loads: Loads) -> Table:
    rows: list[Sequence[Cell]] = [
        [
            one.name,
            Bar(percent(loads.part_of_step(one.busy)), loads.part_of_step(one.busy), PS),
            _bar(one.busy, loads.busy, [other.busy for other in loads.ps]),
            _rows_bar(one.lookup_rows, [other.lookup_rows for other in loads.ps]),
            _bytes_bar(one.bytes, [other.bytes for other in loads.ps]),
            str(len(one.slots)),
        ]
        for one in loads.ps[:ROWS_MAX]
    ]
    columns = ("PS", "at work, of a step", "share of the work", "look-ups", "bytes", "slots")
    return Table(columns, rows, frozenset({5}), left_out(len(loads.ps), ROWS_MAX), "Parameter servers, busiest first")


def _slot_table(loads: Loads) -> Table:
    rows: list[Sequence[Cell]] = [
        [
            one.name,
            one.owner,
            _bar(one.load, loads.load, [other.load for other in loads.slots]),
            _rows_bar(one.lookup_rows, [other.lookup_rows for other in loads.slots]),
            _bytes_bar(one.bytes, [other.bytes for other in loads.slots]),
            ", ".join(table.name for table in one.largest[:3]) + (", …" if len(one.largest) > 3 else ""),
        ]
        for one in loads.slots[:ROWS_MAX]
    ]
    columns = ("slot", "on", "share of the work", "look-ups", "bytes", "largest variables")
    return Table(columns, rows, frozenset(), left_out(len(loads.slots), ROWS_MAX), "Slots, busiest first")


def _bar(value: float, total: float, others: Sequence[float]) -> Bar:
    return Bar(percent(value / total) if total else "–", value / max(others) if any(others) else 0.0, PS)


def _rows_bar(value: float, others: Sequence[float]) -> Bar:
    total = sum(others)
    words = f"{number(value)}/s ({percent(value / total)})" if total else "–"
    return Bar(words, value / max(others) if total else 0.0, PS)


def _bytes_bar(value: float, others: Sequence[float]) -> Bar:
    return Bar(format_bytes(value), value / max(others) if any(others) else 0.0, PS)


def _bytes_only(case: Case) -> Table | None:
    """Who holds how much, where that is all that is known."""
    story = case.story
    if not story.placements or not story.tables:
        return None
    placement: Placement = story.placements[-1]
    sizes = dict.fromkeys(sorted(set(placement.owners)), 0)
    for slot, owner in enumerate(placement.owners):
        sizes[owner] += sum(table.bytes for table in story.tables.get(slot, ()))
    rows: list[Sequence[Cell]] = [
        [name, _bytes_bar(size, list(sizes.values())), str(placement.owners.count(name))] for name, size in sizes.items()
    ]  # fmt: skip
    return Table(("PS", "bytes", "slots"), rows, frozenset({2}))


def work(case: Case) -> Section:
    """The heaviest ops and transfers of traced steps."""
    traces = within(case.story.traces, case.training)
    if not traces:
        return Section("work", "Ops and transfers", [Text("No step was traced.")])
    ops, edges = heaviest(traces)[:OPS_MAX], transfers(traces)[:TRANSFERS_MAX]
    longest = max((op.seconds for op in ops), default=0.0)
    rows: list[Sequence[Cell]] = [
        [
            op.name,
            op.type,
            op.role,
            str(op.slot) if op.slot >= 0 else "",
            _time_bar(op.seconds, longest, PS if op.role.startswith("ps-") else TRAINER),
        ]
        for op in ops
    ]
    slowest = max((edge.seconds for edge in edges), default=0.0)
    moved: list[Sequence[Cell]] = [
        [
            f"{edge.source} → {edge.target}",
            _time_bar(edge.seconds, slowest, GREY),
            format_bytes(edge.bytes),
            number(edge.tensors),
        ]
        for edge in edges
    ]
    count = len(traces)
    blocks: list[Block] = [
        Text(f"Time per step, mean of {count} traced step{'s' if count > 1 else ''}; ops run side by side.")
    ]
    if rows:
        blocks.append(Table(("op", "type", "runs on", "slot", "time"), rows, frozenset({3}), "", "Heaviest ops"))
    if moved:
        columns = ("from → to", "time", "bytes", "tensors")
        blocks.append(Table(columns, moved, frozenset({2, 3}), "", "Longest transfers"))
    return Section("work", "Ops and transfers", blocks)


def _time_bar(value: float, longest: float, kind: str) -> Bar:
    return Bar(seconds(value), value / longest if longest else 0.0, kind)
