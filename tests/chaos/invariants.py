"""What must be true after every run, whatever happened in it. Pure: from what the run has left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.schedule import Plan


@dataclass(frozen=True)
class Left:
    """What a run has left behind."""

    exit_code: int | None
    """None: it did not end in time."""
    summary: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]
    steps: Mapping[str, Sequence[tuple[float, int, int]]] = field(default_factory=dict)
    """Process → (Unix seconds, global step, batch size) of each of its steps."""
    processes: Sequence[str] = ()
    """That were still there."""


@dataclass(frozen=True)
class Bounds:
    """What the run was asked to do, and what may be lost or repeated."""

    records: int
    """Of all epochs."""
    backup_seconds: float
    """Interval of the peer backups."""
    unacknowledged_seconds: float
    """Longest time between a step and its acknowledgement: a heartbeat, and a restart of the AIMaster."""
    auc: tuple[float, float] | None = None
    """Spread of undisturbed runs."""


def violations(plan: Plan, left: Left, bounds: Bounds) -> list[str]:
    """One line per broken promise; empty when all were kept."""
    found = list(left.processes and [f"processes left behind: {'; '.join(left.processes)}"])
    if left.exit_code is None:
        return [*found, "it did not end in time"]
    if left.exit_code != 0:
        reason = left.summary.get("reason") or left.summary.get("status")
        found.append(f"exit code {left.exit_code}: {reason}; events left: {left.summary.get('events_left')}")
    found += _events(left)
    if left.exit_code == 0:
        found += _records(plan, left, bounds)
        found += _learnt(left, bounds)
    found += _steps(left)
    return found


def _events(left: Left) -> list[str]:
    found = []
    for event in left.summary.get("events", ()):
        struck = event["event"].startswith(("kill", "hang"))
        good = ("recovered",) if struck else ("committed", "no-op")
        if event["fired"] and event["outcome"] not in good:
            found.append(f"{event['event']}: {event['outcome']} {event['reason']}".strip())
    for failure in left.summary.get("failures", ()):
        if failure["recovered_seconds"] is None and left.exit_code == 0 and failure["role"] == "ps":
            found.append(f"never recovered from {failure['role']}-{failure['id']}: {failure['cause']}")
    return found


def restores(left: Left) -> list[float]:
    """When variables came from a disk backup or a checkpoint: then steps and records go back."""
    return [event["time"] for event in left.events if event["type"] == "ps_replaced"]


def _records(plan: Plan, left: Left, bounds: Bounds) -> list[str]:
    data = left.summary.get("data")
    if not data:
        return ["summary.json has no data: the script did not train from the ledger"]
    found = []
    if data["records"] != bounds.records:
        found.append(f"{data['records']} records were to be trained instead of {bounds.records}")
    if data["lost"] or data["trained"] != data["records"]:
        found.append(f"lost {data['lost']} records; trained {data['trained']} of {data['records']}")
    most = repeated_at_most(plan, left, bounds)
    if data["repeated"] > most and not restores(left):
        found.append(f"repeated {data['repeated']} records, at most {most} can have been")
    if data["stale"] and not plan.strikes("ps"):
        found.append(f"stale {data['stale']} records, but no PS died")
    most = stale_at_most(left, bounds)
    if data["stale"] > most:
        found.append(f"stale {data['stale']} records, at most {most} were trained since the backups used")
    return found


def _trained(left: Left, begin: float, end: float) -> int:
    """Records in the steps that any trainer completed within [begin, end]."""
    return sum(size for steps in left.steps.values() for time, _, size in steps if begin <= time <= end)


def repeated_at_most(plan: Plan, left: Left, bounds: Bounds) -> int:
    """Steps a dead trainer did not acknowledge, and for each PS one failed step per trainer."""
    batch = max((size for steps in left.steps.values() for _, _, size in steps), default=0)
    trainers = plan.strikes("worker", "chief")
    rate = max_rate(left)
    return int(trainers * (rate * bounds.unacknowledged_seconds + 2 * batch)) + plan.strikes("ps") * 2 * batch * 4


def max_rate(left: Left) -> float:
    """Records a second of the fastest trainer, in its best two seconds."""
    best = 0
    for steps in left.steps.values():
        begin = running = 0
        for time, _, size in steps:
            running += size
            while time - steps[begin][0] > 2.0:
                running -= steps[begin][2]
                begin += 1
            best = max(best, running)
    return best / 2.0


def stale_at_most(left: Left, bounds: Bounds) -> int:
    """Per promotion: what was trained within the age of the backup used, and the time until it was noticed."""
    total = 0
    for event in left.events:
        if event["type"] == "promoted":
            reach = event.get("backup_age_seconds", bounds.backup_seconds) + bounds.unacknowledged_seconds
            total += _trained(left, event["time"] - reach - 5.0, event["time"])
    return total


def _steps(left: Left) -> list[str]:
    """No process sees the global step go back, unless the model was restored between the two steps."""
    found, restored = [], restores(left)
    for name, steps in left.steps.items():
        for (before, high, _), (after, low, _) in zip(steps, steps[1:]):
            if low < high and not any(before - 1.0 <= moment <= after for moment in restored):
                found.append(f"{name}: the global step went back from {high} to {low}")
                break
    return found


def _learnt(left: Left, bounds: Bounds) -> list[str]:
    auc = left.summary.get("metrics", {}).get("auc")
    if auc is None:
        return ["no AUC was reported: the final checkpoint was not evaluated"]
    if bounds.auc and not bounds.auc[0] <= auc <= bounds.auc[1]:
        return [
            f"AUC {auc:.4f} is outside of the spread of undisturbed runs, {bounds.auc[0]:.4f} to {bounds.auc[1]:.4f}"
        ]
    return []
