"""A page of what jobs have had of a cluster or of a machine's pool: from the arbiter's record, as one file without a script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from deeprec_ext.arbiter.observed import Allowance, Cluster, Decision, Job
from deeprec_ext.gazer.report.document import GREY, LAYERS, Block, Document, Layer, Section, Stack, Table, Text
from deeprec_ext.gazer.report.html import render
from deeprec_ext.gazer.report.words import moment, number, offset, shorten
from deeprec_ext.units import counted

SHOWN_MAX = 18
"""Jobs with an area of their own, those that have had most; the others are one."""
CHANGES_MAX = 200
POINTS_MAX = 2000
WHY_MAX = 400

Recorded = tuple[Cluster, Decision]


def page(title: str, recorded: Sequence[Recorded], now: float) -> str:
    """The whole file.

    Args:
      recorded: in order of time; what was decided holds until the next one.
      now: until when the last one held, Unix seconds.
    """
    return render(
        document(title, recorded, now),
        "Written by deeprec-ext queue. This file needs nothing else: no script, no network.",
    )


def document(title: str, recorded: Sequence[Recorded], now: float) -> Document:
    if not recorded:
        return Document(title, "running", "Nothing was decided yet.", (), ())
    recorded = _thinned(recorded)
    times = [cluster.time for cluster, _ in recorded]
    end = max(now, times[-1])
    lengths = [after - before for before, after in zip(times, [*times[1:], end])]
    held = [_cores(cluster, decision) for cluster, decision in recorded]
    sums: dict[str, float] = {}
    for cores, length in zip(held, lengths):
        for name, count in cores.items():
            sums[name] = sums.get(name, 0.0) + count * length
    there = [sum(node.free.cpu for node in cluster.nodes) for cluster, _ in recorded]
    all_, used = sum(one * length for one, length in zip(there, lengths)), sum(sums.values())
    blocks: list[Block] = [
        Stack(
            "cores that jobs may have",
            times,
            _layers(sums, held),
            end,
            max([*there, *(sum(one.values()) for one in held)]),
            number,
        ),
        _totals(sums, recorded),
    ]
    changes = _changes(recorded)
    return Document(
        title, "running" if recorded[-1][0].jobs else "ended",
        f"{counted(len(sums), 'job')} from {moment(times[0])} to {moment(end)}.",
        (
            ("cores", number(there[-1])), ("given to jobs, of all the time", f"{used / all_:.0%}" if all_ else "–"),
            ("jobs now", str(len(recorded[-1][0].jobs))), ("changes", str(len(changes))),
        ),
        (Section("cores", "Cores", blocks), Section("decisions", "What was decided", [_told(changes, times[0])])),
    )  # fmt: skip


def _thinned(recorded: Sequence[Recorded]) -> Sequence[Recorded]:
    """The last ones of a long record."""
    return recorded[-POINTS_MAX:]


def _layers(sums: dict[str, float], held: Sequence[dict[str, float]]) -> list[Layer]:
    names = sorted(sums, key=lambda name: -sums[name])
    own, others = names[:SHOWN_MAX], names[SHOWN_MAX:]
    order = [name for name in sums if name in own]  # as they came
    layers = [
        Layer(short(name), LAYERS[place % len(LAYERS)], [cores.get(name, 0.0) for cores in held])
        for place, name in enumerate(order)
    ]
    if others:
        more = [sum(cores.get(name, 0.0) for name in others) for cores in held]
        layers.append(Layer(f"{len(others)} more", GREY, more))
    return layers


def _totals(sums: dict[str, float], recorded: Sequence[Recorded]) -> Table:
    jobs: dict[str, Job] = {job.name: job for cluster, _ in recorded for job in cluster.jobs}
    rows = [
        [short(name), str(jobs[name].priority), number(jobs[name].weight), f"{sums[name] / 60:,.1f}"]
        for name in sorted(sums, key=lambda name: -sums[name])
    ]
    left = len(rows) - CHANGES_MAX
    note = f"{left} more jobs are not shown." if left > 0 else ""
    return Table(("job", "priority", "weight", "core-minutes"), rows[:CHANGES_MAX], frozenset({1, 2, 3}), note)


def _changes(recorded: Sequence[Recorded]) -> list[tuple[float, Allowance | None, Allowance]]:
    """Time, what a job was allowed before, and from then on."""
    before: dict[str, Allowance] = {}
    found = []
    for cluster, decision in recorded:
        for one in decision.allowances:
            last = before.get(one.job)
            if last is None or _size(last) != _size(one):
                found.append((cluster.time, last, one))
            before[one.job] = one
    return found


def _told(changes: Sequence[tuple[float, Allowance | None, Allowance]], began: float) -> Block:
    if not changes:
        return Text("No job was allowed anything.")
    rows = [
        [
            offset(time - began),
            short(now.job),
            f"{_size(before)} → " * bool(before) + _size(now),
            shorten(now.why, WHY_MAX),
        ]
        for time, before, now in reversed(changes[-CHANGES_MAX:])
    ]
    left = len(changes) - len(rows)
    note = f"{left} earlier ones are not shown." if left > 0 else ""
    return Table(("at", "job", "may have", "why"), rows, frozenset({0}), note)


def _size(one: Allowance | None) -> str:
    if one is None:
        return ""
    if not one.runs:
        return "waits"
    return f"{one.ps} PS, {counted(one.workers, 'worker')}" if one.ps else counted(one.workers, "worker")


def _cores(cluster: Cluster, decision: Decision) -> dict[str, float]:
    """By job, of what it may have."""
    found = dict.fromkeys((job.name for job in cluster.jobs), 0.0)
    for job, one in zip(cluster.jobs, decision.allowances):
        if one.runs:
            pods = job.pods
            found[job.name] = pods.chief.cpu + pods.other.cpu + one.ps * pods.ps.cpu + one.workers * pods.worker.cpu
    return found


def short(name: str) -> str:
    """A run directory's last name, or the name behind a namespace."""
    return PurePath(name).name or name
