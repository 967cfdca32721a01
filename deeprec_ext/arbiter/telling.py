"""A cluster and what was decided on it, for people: rows of values, and a table of them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from deeprec_ext.arbiter.curve import Curve, believed, size_of
from deeprec_ext.arbiter.observed import Allowance, Cluster, Count, Decision, Job
from deeprec_ext.arbiter.presently import placed, reasons, wanted_size
from deeprec_ext.arbiter.room import finite
from deeprec_ext.printable import printable, shortened
from deeprec_ext.units import counted, format_rate

NAME_SHOWN, WHY_SHOWN = 48, 400
TITLES = ("job", "priority", "state", "has", "allowed", "wants", "worth", "why")
WORTH, WHY = 6, 7
"""Their places."""

GAP, NO_MODEL = "  ", "no model"
NAME_LEAST, WHY_LEAST = 12, 40
"""Columns."""


def rows(cluster: Cluster, decision: Decision) -> list[dict[str, Any]]:
    """One for each job: those that run by priority, then those that wait, the first in line first.

    `has`, `allowed` and `wants` are {"ps", "workers"}, workers beside the chief; `allowed` is None of one that waits. `worth`:
    {"examples_per_second", "wanted_examples_per_second"} of what is allowed and of what is wanted, by the job's model; None
    without one. `state`: runs, waits; starts, grows, gives back, stops: its pods are not yet as allowed. `why` it has that now,
    `changed_why` it was changed to that at `since`.
    """
    found = sorted(
        zip(cluster.jobs, decision.allowances, reasons(cluster, decision)),
        key=lambda one: (not one[1].runs, -one[0].priority, finite(one[0].arrived, most=1e12), one[0].name),
    )
    return [_row(*one) for one in found]


def _row(job: Job, allowance: Allowance, why: str) -> dict[str, Any]:
    ps, workers = placed(job)
    has, wanted = {"ps": ps, "workers": workers}, wanted_size(job)
    return {
        "job": job.name, "priority": job.priority, "weight": job.weight, "queue": job.queue,
        "state": _state(job, allowance, has), "has": has,
        "allowed": {"ps": allowance.ps, "workers": allowance.workers} if allowance.runs else None,
        "wants": {"ps": wanted[0], "workers": wanted[1]}, "worth": _worth(job, allowance, wanted),
        "since": allowance.since, "why": why, "changed_why": allowance.why,
    }  # fmt: skip


def _state(job: Job, allowance: Allowance, has: dict[str, int]) -> str:
    there = any(pod.role == "chief" for pod in job.placed)
    if not allowance.runs:
        return "stops" if job.placed else "waits"
    if not there:
        return "starts"
    if has["ps"] > allowance.ps or has["workers"] > allowance.workers:
        return "gives back"
    return "grows" if has["ps"] < allowance.ps or has["workers"] < allowance.workers else "runs"


def _worth(job: Job, allowance: Allowance, wanted: tuple[int, int]) -> dict[str, float] | None:
    known = believed(job.bid)
    if not known:
        return None
    curve = Curve(known, size_of(job.least), wanted, (1.0, 1.0))
    now = curve.speed(size_of(Count(allowance.ps, allowance.workers))) if allowance.runs else 0.0
    return {"examples_per_second": now, "wanted_examples_per_second": curve.speed(wanted)}


def summary(cluster: Cluster, decision: Decision) -> list[str]:
    """`16.0 cores on 4 nodes: 15.0 for jobs (94 %); 3 jobs run, 1 waits`; and pods of others that wait, quotas."""
    cores = sum(finite(node.free.cpu, most=1e9) for node in cluster.nodes)
    share = decision.used_share if math.isfinite(decision.used_share) else 0.0
    run = sum(one.runs for one in decision.allowances)
    wait = len(decision.allowances) - run
    lines = [
        f"{cores:.1f} cores on {counted(len(cluster.nodes), 'node')} for elastic jobs: {share * cores:.1f} used "
        f"({100 * share:.0f} %), {(1 - share) * cores:.1f} free; {counted(run, 'job')} {'runs' if run == 1 else 'run'}, "
        f"{wait} {'waits' if wait == 1 else 'wait'}"
    ]
    if cluster.waiting:
        highest = max(cluster.waiting, key=lambda one: (one.priority, one.name))
        lines.append(
            f"{counted(len(cluster.waiting), 'pod')} of others {'waits' if len(cluster.waiting) == 1 else 'wait'} for "
            f"{sum(finite(one.resources.cpu, most=1e9) for one in cluster.waiting):.1f} cores, the most important is "
            f"{printable(highest.name)[:NAME_SHOWN]} of priority {highest.priority}"
        )
    lines += [
        f"quota {printable(one.name)[:NAME_SHOWN]}: {finite(one.free.cpu, most=1e9):.1f} cores"
        for one in cluster.quotas if "cpu" in one.limits
    ]  # fmt: skip
    return lines


def table(cluster: Cluster, decision: Decision, most: int = 0, width: int = 0) -> str:
    """Lines of text, without a newline at the end.

    Args:
        most: jobs that are shown; 0: all.
        width: columns of the terminal; 0: without a limit. What does not fit stands below its job.
    """
    found = rows(cluster, decision)
    shown = found[:most] if most else found
    with_ps = any(row[name] and row[name]["ps"] for row in found for name in ("has", "allowed", "wants"))
    lines = summary(cluster, decision)
    if not found:
        return "\n".join([*lines, "no elastic job"])
    lines += ["sizes are " + ("PS + workers" if with_ps else "workers") + " beside the chief", ""]
    lines += _columns([TITLES] + [_cells(row, with_ps) for row in shown], width)
    if len(shown) < len(found):
        lines.append(f"and {counted(len(found) - len(shown), 'other job')}")
    return "\n".join(lines)


def _columns(cells: Sequence[Sequence[str]], width: int) -> list[str]:
    """With `why` as the last column where it has room, else below each job, after `worth`."""
    widths = [max(len(row[at]) for row in cells) for at in range(WHY)]
    before = sum(widths) + len(GAP) * WHY
    if not width or width - before >= WHY_LEAST:
        return [line for row in cells for line in _row_lines(row, widths, row[WHY], before, width)]
    narrow = widths[:WORTH]
    narrow[0] = max(NAME_LEAST, min(narrow[0], width - sum(narrow[1:]) - len(GAP) * (WORTH - 1)))
    lines = []
    for number, row in enumerate(cells):
        name = row[0] if len(row[0]) <= narrow[0] else "…" + row[0][1 - narrow[0] :]
        lines.append(GAP.join(cell.ljust(size) for cell, size in zip((name, *row[1:WORTH]), narrow)).rstrip())
        if number:  # not of the titles
            worth = "" if row[WORTH] == NO_MODEL else f"{row[WORTH]}: "
            lines += textwrap.wrap(
                worth + row[WHY], max(width, WHY_LEAST), initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
            )  # fmt: skip
    return lines


def _row_lines(row: Sequence[str], widths: Sequence[int], why: str, before: int, width: int) -> list[str]:
    head = GAP.join(cell.ljust(size) for cell, size in zip(row, widths)) + GAP
    parts = textwrap.wrap(why, width - before, break_on_hyphens=False) if width else [why]
    return [(head + part if not at else " " * before + part).rstrip() for at, part in enumerate(parts or [""])]


def _cells(row: dict[str, Any], with_ps: bool) -> Sequence[str]:
    def size(value: dict[str, int] | None) -> str:
        if value is None:
            return "-"
        return f"{value['ps']} + {value['workers']}" if with_ps else str(value["workers"])

    worth = NO_MODEL
    if row["worth"] is not None:
        now, wanted = row["worth"]["examples_per_second"], row["worth"]["wanted_examples_per_second"]
        worth = f"{format_rate(now)} of {format_rate(wanted)}/s"
    name = printable(row["job"])
    if len(name) > NAME_SHOWN:
        name = "…" + name[1 - NAME_SHOWN :]
    return (
        name, str(row["priority"]), row["state"], size(row["has"]), size(row["allowed"]), size(row["wants"]), worth,
        shortened(printable(row["why"]), WHY_SHOWN),
    )  # fmt: skip
