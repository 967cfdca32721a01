"""One line per role: what the launcher knows of its process, and what it does as the AIMaster knows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.text import Text

from deeprec_ext.cli.fitting import Column, Fitted
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.job import Scene
from deeprec_ext.printable import printable
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.units import format_busy, format_bytes, format_seconds

SORTS = ("name", "load", "memory")

COLUMNS = (
    Column("role", 11, right=False),
    Column("state", 10, right=False),
    Column("pid", 7, rank=6),
    Column("step", 9, rank=2),
    Column("steps/s", 7, rank=5),
    Column("examples/s", 10, rank=1),
    Column("load", 8),
    Column("memory", 7),
    Column("CPU %", 5),
    Column("slots", 8, rank=4),
    Column("restarts", 8, rank=3),
)
SLOTS = 9
"""Place of their column."""

STATE_STYLE = {
    "running": "green", "training": "green", "starting": "yellow", "requested": "yellow", "restarting": "yellow",
    "ending": "yellow", "ended": "dim",
    "leaving": "yellow", "scaling": "cyan", "finishing": "cyan", "exited": "dim", "finished": "green", "failed": "bold red",
    "succeeded": "bold green", "stopped": "yellow",
}  # fmt: skip
_ORDER = {"aimaster": 0, "ps": 1, "chief": 2, "worker": 2, "evaluator": 3}
_KINDS = ("aimaster", "ps", "chief", "worker", "evaluator")


def role_order(name: str) -> tuple[int, int]:
    """AIMaster, PS, chief, workers, evaluator; by number."""
    role, _, index = name.partition("-")
    return _KINDS.index(role) if role in _KINDS else len(_KINDS), int(index) if index.isdigit() else 0


def role_called(name: str, there: Iterable[str]) -> str:
    """Which of the roles that there are is meant: by its kind alone, `chief`, the only one of it.

    Raises UsageError where there are more of the kind. A name that is none of them is given back.
    """
    alike = [one for one in there if one.rpartition("-")[0] == name]
    if len(alike) > 1:
        raise UsageError(f"{name}: there are {', '.join(sorted(alike, key=role_order))}; name one")
    return alike[0] if alike else name


def load_of(role: pb2.RoleStatus) -> float:
    """What a role is sorted by among its like: how busy a PS is, how slow the steps of a trainer are."""
    if role.role == pb2.PS:
        return role.gazer.get("busy_share") or role.cpu_percent / 100
    return step_seconds(role)


def step_seconds(role: pb2.RoleStatus) -> float:
    return role.gazer.get("step_seconds") or role.heartbeat.step_seconds


def memory_of(role: pb2.RoleStatus) -> float:
    """Of a container that is the role's alone, what counts against its limit; else of the process."""
    working_set = 0.0 if role.process.shared_limits else role.gazer.get("working_set_bytes", 0.0)
    return working_set or role.heartbeat.rss_bytes


def role_table(scene: Scene, sort: str = "name", most: int | None = None) -> Fitted:
    """
    Args:
      sort: `name`; `load`: PS before trainers, of each the busiest or slowest first; `memory`: the largest first.
    """
    known = {role.name: role for role in scene.status.roles} if scene.status is not None else {}
    pods = {pod.name: pod for pod in scene.pods}
    names = sorted({*known, *pods}, key=role_order)
    if sort == "load":
        names.sort(
            key=lambda name: (_ORDER.get(name.partition("-")[0], 9), -load_of(known.get(name, pb2.RoleStatus())))
        )
    elif sort == "memory":
        names.sort(key=lambda name: -memory_of(known.get(name, pb2.RoleStatus())))
    found = [(name, _row(name, known.get(name), pods.get(name), hide_deleted=not scene.ending)) for name in names]
    rows = [(name, row) for name, row in found if row is not None]
    columns = list(range(len(COLUMNS)))
    if scene.status is not None and not scene.status.slots:  # a job without PS
        columns.remove(SLOTS)
    kinds = Counter(_ORDER.get(name.partition("-")[0], 9) for name, _ in rows) if sort == "load" else {}
    return Fitted(
        [COLUMNS[at] for at in columns], [[row[at] for at in columns] for _, row in rows], most, "roles",
        [count for _, count in sorted(kinds.items())],
    )  # fmt: skip


def _row(
    name: str, role: pb2.RoleStatus | None, pod: pb2.PodStatus | None, hide_deleted: bool
) -> list[str | Text] | None:
    state = role.state if role is not None else "running" if pod is not None and pod.state == "running" else "exited"
    if pod is not None and pod.restarting:
        state = "restarting"
    elif pod is not None and pod.state == "exited" and state in ("running", "starting"):
        state = "exited"
    if hide_deleted and state == "exited" and pod is not None and pod.deleted:
        return None  # scaled away: the events tell about it
    pid = pod.pid if pod is not None else role.pid if role is not None else 0
    restarts = str((pod.restarts if pod is not None else role.restarts if role is not None else 0) or "")
    cells: list[str | Text] = [
        printable(name),
        Text(printable(state), style=STATE_STYLE.get(state, "")),
        str(pid or ""),
    ]
    if role is None or state not in ("running", "leaving"):
        return [*cells, "", "", "", "", "", "", "", restarts]
    beat = role.heartbeat
    return [
        *cells, f"{beat.step:,}" if beat.step else "", f"{beat.steps_per_second:.1f}" if beat.steps_per_second else "",
        f"{beat.examples_per_second:,.0f}" if beat.examples_per_second else "", _load(role), _memory(role),
        f"{role.cpu_percent:.0f}" if beat.rss_bytes else "", slots_text(role.slots), restarts,
    ]  # fmt: skip


def _load(role: pb2.RoleStatus) -> str:
    if role.role == pb2.PS:
        busy = role.gazer.get("busy_share")
        return format_busy(busy) if busy else ""
    return format_seconds(step_seconds(role)) if step_seconds(role) else ""


def _memory(role: pb2.RoleStatus) -> str | Text:
    """Yellow and red near a limit of its own."""
    used, limit = memory_of(role), 0 if role.process.shared_limits else role.process.memory_limit_bytes
    if not used:
        return ""
    if not limit:
        return format_bytes(used)
    style = "red" if used > 0.9 * limit else "yellow" if used > 0.75 * limit else ""
    return Text(f"{format_bytes(used)} of {format_bytes(limit)}", style=style)


def slots_text(slots: Sequence[int]) -> str:
    """`[0, 1, 2, 5]` → `0-2,5`; of very many, how many."""
    ranges: list[list[int]] = []
    for slot in sorted(slots):
        if ranges and slot == ranges[-1][1] + 1:
            ranges[-1][1] = slot
        else:
            ranges.append([slot, slot])
    text = ",".join(f"{low}-{high}" if high > low else str(low) for low, high in ranges)
    return text if len(text) <= 24 else f"{len(slots)} slots"
