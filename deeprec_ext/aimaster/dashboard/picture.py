"""What the page shows each second, as one compact message for all who look. Pure: from facts to a dictionary.

A job may have a thousand roles and 512 slots, and the message is sent every second to everybody. Roles and slots are
columns, a column of equal values is that value, names in a row are a range, and numbers keep three digits: 60 kB instead of
the 1 MB of a StatusReply as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deeprec_ext.aimaster.core.records import Failure, Scaling
from deeprec_ext.aimaster.reporting.completion import progress
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.units import once

ROLES_MAX = 2_000
"""Roles in one message; further ones are counted only."""
METRICS_MAX = 30
RING_TOLD_MAX = 50
"""Of those whom a ring waits for, who come, leave, or were lost."""
SILENT_SECONDS = 2.0
"""Heartbeats that are younger are not worth a digit."""

_Column = Callable[[pb.RoleStatus], Any]


def _gazer(metric: str, unit: float = 1.0, otherwise: _Column | None = None) -> _Column:
    """The newest value of Gazer; before there is one, what the heartbeat says."""

    def value(role: pb.RoleStatus) -> float:
        found = role.gazer.get(metric) or (otherwise(role) if otherwise is not None else 0.0)
        return float(found) / unit

    return value


def _memory(role: pb.RoleStatus) -> float:
    """Of a container that is the role's alone, what counts against its limit; else of the process."""
    working_set = 0.0 if role.process.shared_limits else role.gazer.get("working_set_bytes", 0.0)
    return (working_set or role.heartbeat.rss_bytes or role.gazer.get("rss_bytes", 0.0)) / KILO


KILO = 1000.0
PROCESS: Mapping[str, _Column] = {
    "state": lambda role: role.state,
    "restarts": lambda role: role.restarts,
    "silent": lambda role: max(0.0, role.heartbeat_age_seconds - SILENT_SECONDS) and role.heartbeat_age_seconds,
    "cpu": _gazer("cpu_cores", otherwise=lambda role: role.cpu_percent / 100),
    "cpu_limit": _gazer("cpu_limit_cores", otherwise=lambda role: role.process.cpu_limit_cores),
    "memory": _memory,
    "memory_limit": _gazer("memory_limit_bytes", KILO, lambda role: role.process.memory_limit_bytes),
    "shared": lambda role: int(role.process.shared_limits),
    "received": _gazer("received_bytes_per_second", KILO),
    "sent": _gazer("sent_bytes_per_second", KILO),
}
PS: Mapping[str, _Column] = {
    **PROCESS,
    "bytes": lambda role: role.bytes / KILO,
    "busy": _gazer("busy_share"),
    "transfer": _gazer("rpc_share"),
    "transferred": _gazer("rpc_bytes_per_second", KILO),
}
TRAINER: Mapping[str, _Column] = {
    **PROCESS,
    "step": lambda role: role.heartbeat.step,
    "examples_rate": _gazer("examples_per_second", otherwise=lambda role: role.heartbeat.examples_per_second),
    "step_seconds": _gazer("step_seconds", otherwise=lambda role: role.heartbeat.step_seconds),
    "step_p95": _gazer("step_p95_seconds"),
    "gate": _gazer("gate_wait_share"),
    "input": _gazer("input_wait_share"),
}
SLOTS = {"lookup": "lookup_share", "update": "update_share", "lookup_rows": "lookup_rows_per_second",
         "update_rows": "update_rows_per_second"}  # fmt: skip
"""Columns. Units: kilobytes (memory, memory_limit, bytes), kilobytes per second (received, sent, transferred), cores, seconds
(silent, step_seconds, step_p95), per second (examples_rate, rows), shares of time (busy, transfer, gate, input, lookup,
update); 0: not known."""


def number(value: float, digits: int = 4) -> float | int:
    """So many digits, and no point where it says nothing: every byte counts here."""
    if not math.isfinite(value):
        return 0
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) else short


def picture(
    status: pb.StatusReply, *, now: float, limits: Mapping[str, Sequence[int]], running: Scaling | None = None,
    queued: int = 0, sequence: int = 0, data_rates: Mapping[str, float] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The message.

    Args:
      now: Unix seconds.
      limits: `ps` and `workers`, each fewest and most.
      running: the scaling under way.
      queued: scalings that wait.
      sequence: of the newest event; the page asks for events when it grows.
      data_rates: records per second of each dataset.
    """
    roles = sorted(status.roles, key=_order)
    ps = [role for role in roles if role.role == pb.PS]
    trainers = [role for role in roles if role.role in (pb.CHIEF, pb.WORKER)]
    others = [role for role in roles if role.role == pb.EVALUATOR]
    room, tables = ROLES_MAX, {}
    for name, columns, members in (("ps", PS, ps), ("trainers", TRAINER, trainers), ("others", PROCESS, others)):
        tables[name] = _table(members[:room], columns, len(members))
        room -= min(room, len(members))
    return {
        "time": round(now, 3),
        "job": _job(status),
        "limits": {name: list(pair) for name, pair in limits.items()},
        **tables,
        "slots": _slots(status, ps),
        "ring": _ring(status.ring) if status.HasField("ring") else None,
        "moving": _moving(running),
        "scaling": scaling_dict(running) if running is not None else None,
        "queued": queued,
        "data": [_data(one, status, data_rates or {}) for one in status.data],
        "suspects": {role.name: role.suspect for role in roles[:ROLES_MAX] if role.suspect},
        "backup": _backup(status),
        "notices": [
            {
                "text": one.notice.text,
                "remedy": one.notice.remedy,
                "mended": one.notice.mended,
                "roles": list(one.roles),
            }
            for one in status.notices
        ]
        + _allowance(status),
        "event": sequence,
    }


def _allowance(status: pb.StatusReply) -> list[dict[str, Any]]:
    """Where people look for what is unusual."""
    return [{"text": status.allowance, "remedy": "", "mended": True, "roles": ["arbiter"]}] if status.allowance else []


def _order(role: pb.RoleStatus) -> tuple[int, str, int]:
    kind, _, index = role.name.rpartition("-")
    return role.role, kind, int(index) if index.isdigit() else 0


def ranges(names: Sequence[str]) -> str:
    """`chief-0 worker-0:934`: names with the same beginning whose numbers follow one another."""
    found: list[tuple[str, int, int]] = []
    for name in names:
        kind, _, text = name.rpartition("-")
        index = int(text)
        if found and found[-1][0] == kind and found[-1][2] + 1 == index:
            found[-1] = (kind, found[-1][1], index)
        else:
            found.append((kind, index, index))
    return " ".join(f"{kind}-{low}:{high}" if high > low else f"{kind}-{low}" for kind, low, high in found)


def _table(roles: Sequence[pb.RoleStatus], columns: Mapping[str, _Column], count: int) -> dict[str, Any]:
    """`count`: of all, also of those that found no room."""
    return {
        "count": count,
        "names": ranges([role.name for role in roles]),
        **{name: _column([value(role) for role in roles]) for name, value in columns.items()},
    }


def _column(values: Sequence[Any]) -> Any:
    """The values, or the one value that all have."""
    short = [value if isinstance(value, (str, int)) else number(value, 3) for value in values]
    return short[0] if short and all(value == short[0] for value in short) else short


def left_seconds(done: float, total: float, per_second: float) -> float | None:
    """None when nothing can be said."""
    return number(max(0.0, total - done) / per_second) if total > 0 and per_second > 0 else None


def _job(status: pb.StatusReply) -> dict[str, Any]:
    known = progress(status)
    left = known.left_seconds if known is not None else None
    return {
        "name": status.job,
        "state": status.state,
        "failure": status.failure[:500],
        "epoch": status.epoch,
        "step": status.step,
        "last_step": status.last_step,
        "steps_rate": number(status.steps_per_second),
        "examples_rate": number(status.examples_per_second),
        "seconds": number(status.seconds),
        "done": number(known.share) if known is not None else None,
        "by": known.by if known is not None else "",
        "left": number(left) if left is not None else None,
        "aimaster": status.aimaster_incarnation,
        "live": status.live,
        "metrics": {name: number(value) for name, value in sorted(once(status.metrics).items())[:METRICS_MAX]},
    }


def _slots(status: pb.StatusReply, ps: Sequence[pb.RoleStatus]) -> dict[str, Any]:
    """`owner`: per slot the place of its PS in the table, -1 while it has none."""
    places = {role.task: place for place, role in enumerate(ps[:ROLES_MAX]) if role.slots}
    known = {one.slot: one for one in status.slot_load}
    loads = [known.get(slot, pb.SlotStatus()) for slot in range(len(status.slot_map))]
    columns = {name: _column([one.gazer.get(metric, 0.0) for one in loads]) for name, metric in SLOTS.items()}
    return {
        "count": len(status.slot_map),
        "owner": _column([places.get(task, -1) for task in status.slot_map]),
        "bytes": _column([one.bytes / KILO for one in loads]),
        **columns,
    }


def _ring(ring: pb.RingStatus) -> dict[str, Any]:
    """Of a job without PS; roles with what is to be said of them."""
    told = {"waits": ring.waits, "coming": ring.coming, "leaving": ring.leaving, "lost": ring.lost}
    return {
        "members": list(ring.members[:ROLES_MAX]), "count": len(ring.members), "seconds": number(ring.seconds),
        **{name: [[one.name, one.why] for one in roles[:RING_TOLD_MAX]] for name, roles in told.items()},
    }  # fmt: skip


def _moving(running: Scaling | None) -> list[int]:
    if running is None or len(running.old_map) != len(running.new_map):
        return []
    return [slot for slot, (old, new) in enumerate(zip(running.old_map, running.new_map)) if old != new]


def _data(one: pb.DataStatus, status: pb.StatusReply, rates: Mapping[str, float]) -> dict[str, Any]:
    # until two pictures are there to compare, a record is an example
    per_example = one.purpose in ("", "train") and not one.steps
    rate = rates.get(one.name) or (status.examples_per_second if per_example else 0.0)
    return {
        "name": one.name, "purpose": one.purpose or "train", "records": one.records, "trained": one.trained,
        "leased": one.leased, "repeated": one.repeated, "repeated_at_least": one.repeated_at_least,
        "stale": one.stale, "set_aside": one.set_aside, "skipped": one.skipped,
        "epoch": one.epoch, "epochs": one.epochs, "rate": number(rate),
        "left": left_seconds(one.trained, one.records, rate),
    }  # fmt: skip


def _backup(status: pb.StatusReply) -> dict[str, Any] | None:
    backup = status.backup
    if not backup.peer and not backup.disk_path:
        return None
    return {
        "peer": backup.peer, "unprotected": list(backup.unprotected_slots), "age": number(backup.oldest_seconds),
        "disk": backup.disk_path, "cut": backup.disk_cut, "disk_age": number(backup.disk_seconds),
        "error": backup.error[:500], "bytes": number(backup.bytes_sent), "refreshes": backup.refreshes,
    }  # fmt: skip


def scaling_dict(scaling: Scaling) -> dict[str, Any]:
    """One scaling for the table, the stepper and the time axis."""
    pauses = sorted(scaling.pause_seconds)
    return {
        "id": scaling.id, "kind": scaling.kind, "role": scaling.role, "from": scaling.from_count, "to": scaling.to_count,
        "workers": [scaling.workers_from, scaling.workers_to] if scaling.both else None,
        "state": scaling.state, "detail": scaling.detail, "outcome": scaling.outcome, "reason": scaling.reason,
        "asked": ": ".join(filter(None, (scaling.requested_by, scaling.asked_reason))),
        "decision": scaling.decision, "epoch": scaling.epoch,
        "started": round(scaling.started, 3), "seconds": number(scaling.seconds), "bytes": scaling.bytes_moved,
        "resent": scaling.bytes_resent, "slots": scaling.slots_moved,
        "pause": number(pauses[-1]) if pauses else None,
        "pause_median": number(pauses[len(pauses) // 2]) if pauses else None,
    }  # fmt: skip


def failure_dict(failure: Failure) -> dict[str, Any]:
    recovered = failure.recovered_seconds
    return {
        "id": failure.id, "name": failure.name, "cause": failure.cause, "died": round(failure.died, 3),
        "detected": number(failure.detected_seconds), "recovered": None if recovered is None else number(recovered),
        "steps_lost": failure.steps_lost, "by": failure.recovered_by, "stale": failure.stale_records,
        "backup_age": number(failure.backup_age_seconds),
    }  # fmt: skip
