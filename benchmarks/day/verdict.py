"""Whether a hard day was a good one: the ledger, what was learnt, what is left running, and the story that the report tells."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.day.strikes import Told
from deeprec_ext.gazer.report.findings.safety import BACK
from tests.chaos.invariants import Bounds, Left, violations
from tests.chaos.schedule import Plan


def promises(told: Told, left: Left, bounds: Bounds, hot: str, slow: str, report: Mapping[str, Any]) -> list[str]:
    """One line per broken promise."""
    events = [{cause[:4].replace("hung", "hang"): role} for role, cause in told.failures]
    plan = Plan(0, 2, 1, False, tuple(events))
    return [*violations(plan, left, bounds), *story(told, left.summary, hot, slow, report)]


def story(told: Told, summary: Mapping[str, Any], hot: str, slow: str, report: Mapping[str, Any]) -> list[str]:
    """What the report says against what was done."""
    return [
        *_failures(told, report["failures"]), *_scalings(told, report), *_aimaster(told, summary, report),
        *_disk(report["warnings"]), *_findings(report["findings"], hot, slow),
    ]  # fmt: skip


def _failures(told: Told, failures: Sequence[Mapping[str, Any]]) -> list[str]:
    said = [(one["role"], one["cause"].split()[0].rstrip(":,")) for one in failures]
    found = []
    if said != told.failures:
        found.append(f"report: failures {said} instead of {told.failures}")
    found += [f"report: {one['role']} never recovered" for one in failures if one["recovered_seconds"] is None]
    found += [f"report: {one['role']} recovered by nothing" for one in failures if not one["recovered_by"]]
    return found


def _scalings(told: Told, report: Mapping[str, Any]) -> list[str]:
    """Those of the day, one for each PS that came back, and those that were decided; nothing else."""
    said = Counter(_scaling(one) for one in report["scalings"] if BACK not in one["reason"])
    asked = Counter(one[1:] for one in told.scalings)
    found = [f"report: no {outcome} {kind} {role} {a} → {b}" for kind, role, a, b, outcome in (asked - said).elements()]
    decided = [one for one in report["decisions"] if one["action"] not in ("start", "keep")]
    rest = said - asked
    if sum(rest.values()) > len(decided):
        found.append(
            f"report: {sum(rest.values())} scalings that nobody asked for, {len(decided)} decided: {list(rest)}"
        )
    back = [one for one in report["scalings"] if BACK in one["reason"]]
    if not any(one["outcome"] == "committed" for one in back) and told.failures:
        found.append("report: no lost PS ever came back")
    found += [f"report: {one['kind']} {one['role']} has no outcome" for one in report["scalings"] if not one["outcome"]]
    found += [f"report: {one['kind']} rolled back without a reason" for one in report["scalings"]
              if one["outcome"] == "rolled_back" and not one["reason"]]  # fmt: skip
    return found


def _scaling(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return one["kind"], one["role"], one["from_count"], one["to_count"], one["outcome"]


def _aimaster(told: Told, summary: Mapping[str, Any], report: Mapping[str, Any]) -> list[str]:
    times = len(told.outages)
    found = []
    if summary.get("roles", {}).get("aimaster", {}).get("restarted") != times:
        found.append(
            f"summary: the AIMaster was restarted {summary.get('roles', {}).get('aimaster')}, not {times} times"
        )
    if report["starts"].get("aimaster", {}).get("restarted") != times:
        found.append(f"report: the AIMaster's restarts are {report['starts'].get('aimaster')}, not {times}")
    return found


def _disk(warnings: Sequence[str]) -> list[str]:
    full = [text for text in warnings if "no disk backup could be written" in text]
    return [] if len(full) == 1 else [f"report: {len(full)} warnings of the full disk instead of one"]


def _findings(findings: Sequence[Mapping[str, Any]], hot: str, slow: str) -> list[str]:
    known = {one["rule"]: one for one in findings}
    found = []
    if "hot-slot" not in known or hot not in known["hot-slot"]["text"]:
        found.append(f"report: no finding names the hot table {hot}: {sorted(known)}")
    if known.get("backup-gap", {}).get("level") != "problem":
        found.append(f"report: the minute without disk backups is no problem to it: {known.get('backup-gap')}")
    if known.get("straggler", {}).get("subject") != slow:
        found.append(f"report: no finding names the slow {slow}: {sorted(known)}")
    return found


def leftovers(base: Path) -> list[str]:
    """Processes that have the directory of the run in their environment or their command line."""
    mark, found = str(base).encode(), []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                said = Path(entry.path, "cmdline").read_bytes()
                if mark in said or mark in Path(entry.path, "environ").read_bytes():
                    found.append(f"{entry.name}: {said.replace(bytes(1), b' ').decode(errors='replace')[:120]}")
            except OSError:
                continue
    return found
