"""A job that waits for room in a pool of this machine, as `status` shows it: since when, for what, and who is before it."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from deeprec_ext.arbiter import presently, saying
from deeprec_ext.arbiter.observed import Job
from deeprec_ext.cli.queue import View, pools, view, wrapped
from deeprec_ext.printable import printable
from deeprec_ext.units import counted, few, format_seconds

SHOWN = 5
"""Of those before it, and of those that have room, by name."""
LOOK_SECONDS = 0.5


def waiting(path: Path, now: float) -> dict[str, Any] | None:
    """None: no job of this run directory waits. Cores are numbers, times seconds since the epoch."""
    for pool in pools():
        one = view(pool, now)
        for job in one.cluster.jobs:
            if job.name == str(path) and not any(entry.job == job.name and entry.running for entry in one.seen.entries):
                return _values(one, job)
    return None


def _values(one: View, job: Job) -> dict[str, Any]:
    cluster, decision = one.cluster, one.decision
    there = {entry.job for entry in one.seen.entries if entry.running}
    before = sorted(
        (other for other in cluster.jobs if other.name not in there and _order(other) < _order(job)), key=_order
    )
    told = next(said for said in decision.allowances if said.job == job.name)
    return {
        "status": "waiting", "job": job.name, "pool": one.pool.name, "since": job.arrived, "priority": job.priority,
        "needs_cores": presently.least_of(job), "asks_cores": presently.asked_of(job), "pool_cores": one.size.cores,
        "free_cores": presently.free_cores(cluster, decision),
        "before": [{"job": it.name, "priority": it.priority, "needs_cores": presently.least_of(it)} for it in before],
        "running": [
            {"job": it.name, "priority": it.priority, "cores": one.cores_of(it), "least_cores": presently.least_of(it)}
            for it in cluster.jobs if it.name in there
        ],
        "why": saying.need(told.why),
    }  # fmt: skip


def _order(job: Job) -> tuple[int, float, str]:
    return -job.priority, job.arrived, job.name


def lines(found: dict[str, Any], now: float) -> list[str]:
    since, waited = time.strftime("%H:%M:%S", time.localtime(found["since"])), max(0.0, now - found["since"])
    before = [f"{_name(it)} (priority {it['priority']}, needs {it['needs_cores']:g})" for it in found["before"]]
    there = [
        f"{_name(it)} {it['cores']:g} (priority {it['priority']}, at least {it['least_cores']:g})" for it in found["running"]
    ]  # fmt: skip
    line = (
        f"{counted(len(before), 'job')} {'waits' if len(before) == 1 else 'wait'} before it: {few(before, SHOWN)}"
        if before else "nobody waits before it"
    )  # fmt: skip
    return [
        printable(
            f"{found['job']} waits for room in the pool {found['pool']} since {since} ({format_seconds(waited)})"
        ),
        f"it needs {found['needs_cores']:g} cores to start, and asks for {found['asks_cores']:g}; "
        f"{found['free_cores']:g} of {found['pool_cores']:g} are free",
        printable(line),
        *([printable(f"cores are with {few(there, SHOWN)}")] if there else []),
        printable(f"the arbiter: {found['why']}"),
    ]


def _name(it: dict[str, Any]) -> str:
    return Path(it["job"]).name


def show(path: Path, arguments: argparse.Namespace) -> bool:
    """Whether it waits, or did; with `--watch` until it does no more."""
    found, shown = waiting(path, time.time()), None
    if found is None:
        return False
    while found is not None:
        now = time.time()
        if arguments.json:
            print(json.dumps(found, indent=None if arguments.watch else 2), flush=True)
        elif found != shown:
            print("\n".join(wrapped(lines(found, now))), flush=True)
        if not arguments.watch:
            return True
        shown = found
        time.sleep(LOOK_SECONDS)
        found = waiting(path, time.time())
    return True
