"""What the processes of a job in a cluster have used of its nodes, what that cost, and what processes of the size that was
written would have cost on nodes that are not spot, for as long. Pure.

A process is charged for the share of its node that it requests: of its cores or its memory, whichever is more; one that
requests nothing has the node for itself. Where no price is known hours are counted all the same.

What is compared is the time that the job took, not what a job of another size would have taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deeprec_ext.decoding import built

KEY, TOLD = "cost", "cost_told"
"""Of the store: role → `Account`; and as `told` says it."""

HOUR = 3600.0
WHOLE = 0.95
"""Of the time of processes a price has to be known, or nothing is said of what was saved."""


@dataclass(frozen=True)
class Priced:
    """A node: prices of an hour (0: not known), and what pods may have of it."""

    hour: float = 0.0
    on_demand_hour: float = 0.0  # what it would cost if it were no spot node
    cpu: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True)
class OnNode:
    """A process that runs; what its pod requests."""

    role: str  # ps, chief, worker, evaluator
    node: str
    cpu: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True)
class Account:
    """Of all processes of a role so far."""

    seconds: float = 0.0
    priced_seconds: float = 0.0  # of them, on nodes whose price is known
    cost: float = 0.0
    on_demand: float = 0.0  # the same on nodes that are not spot


def share(process: OnNode, node: Priced) -> float:
    """Of its node, 0 to 1."""
    parts = [
        process.cpu / node.cpu if node.cpu else 0.0,
        process.memory_bytes / node.memory_bytes if node.memory_bytes else 0.0,
    ]
    return min(1.0, max(parts)) or 1.0


def charged(
    accounts: Mapping[str, Account], processes: Iterable[OnNode], nodes: Mapping[str, Priced], seconds: float
) -> dict[str, Account]:
    """The accounts after these have run for so many seconds more."""
    found = dict(accounts)
    for one in processes:
        before, node = found.get(one.role, Account()), nodes.get(one.node, Priced())
        hours = share(one, node) * seconds / HOUR
        found[one.role] = Account(
            before.seconds + seconds, before.priced_seconds + (seconds if node.hour else 0.0), before.cost + hours * node.hour,
            before.on_demand + hours * (node.on_demand_hour or node.hour),
        )  # fmt: skip
    return found


def told(accounts: Mapping[str, Account], written: Mapping[str, int]) -> dict[str, Any]:
    """For summary.json; empty where nothing has run.

    Args:
        written: role → processes of the job as its user wrote it.
    """
    if not any(one.seconds for one in accounts.values()):
        return {}
    seconds, priced = (sum(getattr(one, name) for one in accounts.values()) for name in ("seconds", "priced_seconds"))
    ran = accounts.get("chief", Account()).seconds  # as long as that there is a job
    static = {role: count * ran / HOUR for role, count in written.items() if count}
    cost = sum(one.cost for one in accounts.values())
    found: dict[str, Any] = {
        "pod_hours": {role: _short(one.seconds / HOUR) for role, one in sorted(accounts.items())},
        "static_pod_hours": {role: _short(hours) for role, hours in sorted(static.items())},
        "priced_share": _short(priced / seconds), "cost": _short(cost) if priced else None, "static_cost": None, "saved": None,
    }  # fmt: skip
    rates = {role: one.on_demand / one.priced_seconds for role, one in accounts.items() if one.priced_seconds}
    if priced >= WHOLE * seconds and all(role in rates for role in static):
        static_cost = sum(hours * HOUR * rates[role] for role, hours in static.items())
        found.update(static_cost=_short(static_cost), saved=_short(static_cost - cost))
    return found


def sentence(found: Mapping[str, Any]) -> str:
    """`3.2 pod-hours, cost 1.04, 0.61 less than static`; for people. `found`: as `told`."""
    hours = sum(float(one) for one in found["pod_hours"].values())
    parts = [f"{hours:.4g} pod-hours"]
    if found.get("cost") is not None:
        part = "" if found["priced_share"] >= WHOLE else f" (for {found['priced_share']:.0%} of them)"
        parts.append(f"cost {found['cost']:.4g}{part}")
    if (saved := found.get("saved")) is not None:
        parts.append(f"{abs(saved):.4g} {'less' if saved >= 0 else 'more'} than pods of the written size on demand")
    return ", ".join(parts)


def to_json(accounts: Mapping[str, Account]) -> dict[str, Any]:
    return {role: dataclasses.asdict(one) for role, one in accounts.items()}


def from_json(found: Mapping[str, Any]) -> dict[str, Account]:
    """Raises TypeError, ValueError, AttributeError."""
    return {str(role): built(Account, one, newer=True) for role, one in found.items()}


def _short(value: float) -> float:
    return float(f"{value:.6g}")
