"""What the AIMaster's store says of a run, as parts of a `Story`. Read only; the AIMaster may be at work on it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError

from deeprec_ext.aimaster.core import records
from deeprec_ext.aimaster.ledger import report as ledger
from deeprec_ext.aimaster.metrics import cost
from deeprec_ext.aimaster.reporting.ended import cut_short, outcome_of, seconds_of
from deeprec_ext.aimaster.reporting.summary import steps_of
from deeprec_ext.aimaster.store.store import Store, StoreError
from deeprec_ext.decoding import alike
from deeprec_ext.errors import UsageError
from deeprec_ext.gazer.report.story import Decision, Event, Failure, Placement, Scaling, Table, Traced
from deeprec_ext.gazer.series import Series
from deeprec_ext.options import Settings
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.rundir import RunDirectory

POINTS = 400
"""Per line of the series: about one per two pixels of a chart, and enough to compare trainers."""
EVENTS_MAX = 10_000
EVENT_TYPES = (
    "warning", "refusal", "set_aside", "peer_backups_complete", "disk_backup", "disk_backup_dropped", "disk_restored",
    "decision", "decision_refused", "decision_failed", "notice", "suspect",
)  # fmt: skip
METRICS = (
    ("steps_per_second", "examples_per_second", "step_seconds", "step_p95_seconds", "step_longest_seconds", "gate_wait_share",
     "input_wait_share"),
    ("cpu_cores", "rss_bytes", "working_set_bytes", "memory_limit_bytes", "cpu_limit_cores", "throttled_share", "open_files",
     "threads"),
    ("busy_share", "lookup_share", "update_share", "lookup_rows_per_second", "update_rows_per_second", "ps", "workers",
     "cores"),
)  # fmt: skip
"""Asked for in turn: a question has a bound on its points, and about a thousand roles few of each line would be left."""


def read_store(directory: RunDirectory, *, given: Mapping[str, Any], since: float, running: bool) -> dict[str, Any]:
    """Fields of a `Story`.

    Args:
        given: settings of the job that are not at their defaults.
        since: Unix seconds, of series and traces.
        running: the job has not ended: what became of its last scalings is open.

    Raises:
        UsageError: it is empty, torn, no database, or of a newer version.
    """
    path = directory.store
    try:
        store = Store(path, read_only=True)
    except (StoreError, sqlite3.Error) as error:
        raise UsageError(f"{path} cannot be read: {_why(error)}") from error
    try:
        if not store.has_table("meta"):
            raise UsageError(f"{path} is empty: the AIMaster never came so far; see {directory.log('aimaster')}")
        return _read(store, given, since, running)
    except (sqlite3.Error, ValueError, KeyError, TypeError, DecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {_why(error)}; what else is there: {directory.events}, {directory.logs}"
        ) from error
    finally:
        store.close()


def _why(error: Exception) -> str:
    return f"it is torn or no database ({error})" if isinstance(error, sqlite3.DatabaseError) else str(error)


def _read(store: Store, given: Mapping[str, Any], since: float, running: bool) -> dict[str, Any]:
    series = Series(store)
    catalogue = pb2.Catalogue.FromString(store.blob("catalogue"))
    placements = _placements(store)
    events = _events(store)
    return {
        "steps": steps_of(store),
        "examples": store.examples(),
        "metrics": {str(name): float(value) for name, value in store.get("metrics", {}).items()},
        "data": ledger.summarize(store),
        "cost": store.get(cost.TOLD) or {},
        "scalings": tuple(_scaling(one, running, store.newest_time()) for one in store.scalings()),
        "failures": tuple(alike(Failure, one, role=one.name) for one in store.failures()),
        "decisions": _decisions(events, {one.decision: one.outcome for one in store.scalings()}),
        "events": events,
        "lines": tuple(line for some in METRICS for line in series.query((), some, since=since, points=POINTS)),
        "traces": tuple(Traced(moment, role, trace) for moment, role, trace in series.traces() if moment >= since),
        "placements": placements,
        "tables": _tables(catalogue),
        "warnings": tuple(catalogue.warnings),
        **_backups(store, given, max((len(set(one.owners)) for one in placements), default=0)),
    }


def _scaling(one: records.Scaling, running: bool, last: float) -> Scaling:
    outcome, reason = (one.outcome, one.reason) if running else outcome_of(one)
    return alike(
        Scaling, one, outcome=outcome, reason=reason, seconds=seconds_of(one, last), cut_short=not running and cut_short(one),
        slots_moved=one.slots_moved if outcome == "committed" else 0,
    )  # fmt: skip


def _events(store: Store) -> tuple[Event, ...]:
    """Of the types a report uses, the newest; and the last state of peer backups."""
    marks = ",".join("?" * len(EVENT_TYPES))
    query = (
        f"SELECT sequence, time, type, role, json FROM events WHERE type IN ({marks}) ORDER BY sequence DESC LIMIT ?"  # nosec B608 # the names are ours
    )
    rows = store.rows(query, (*EVENT_TYPES, EVENTS_MAX))
    query = (
        "SELECT sequence, time, type, role, json FROM events WHERE type='peer_backups' ORDER BY sequence DESC LIMIT 1"
    )
    return tuple(Event(row[1], row[2], row[3], json.loads(row[4])) for row in sorted([*rows, *store.rows(query)]))


def _decisions(events: tuple[Event, ...], outcomes: Mapping[int, str]) -> tuple[Decision, ...]:
    """Outcomes are those of the scalings that came of them."""
    not_done = {
        event.fields.get("number"): event.type.removeprefix("decision_")
        for event in events if event.type in ("decision_refused", "decision_failed")
    }  # fmt: skip
    found = []
    for event in events:
        if event.type == "decision":
            number = event.fields.get("number")
            outcome = not_done.get(number) or (outcomes.get(int(number), "") if number is not None else "")
            before, predicted = (float(event.fields.get(name) or 0.0) for name in ("before", "predicted"))
            action = str(event.fields.get("action", ""))
            found.append(Decision(event.time, action, event.text, outcome, before, predicted, int(number or 0)))
    return tuple(found)


def _placements(store: Store) -> tuple[Placement, ...]:
    """Slot maps by the names of their PS; views with the same one are one."""
    found: list[Placement] = []
    for moment, wire in store.rows("SELECT time, view FROM views ORDER BY epoch"):
        view = pb2.View.FromString(wire)
        names = {ps.task: ps.name for ps in view.ps}
        owners = tuple(names.get(task, f"task {task}") for task in view.slot_map)
        if owners and (not found or found[-1].owners != owners):
            found.append(Placement(moment, owners))
    return tuple(found)


def _tables(catalogue: pb2.Catalogue) -> dict[int, tuple[Table, ...]]:
    slots: dict[int, list[Table]] = {}
    for one in catalogue.variables:
        by_rows = one.update == pb2.Variable.ROWS
        rows = one.shape[0] if len(one.shape) > 1 or by_rows else 0
        slots.setdefault(one.slot, []).append(Table(one.name, one.bytes, rows, by_rows))
    return {slot: tuple(sorted(found, key=lambda one: (-one.bytes, one.name))) for slot, found in sorted(slots.items())}


def _backups(store: Store, given: Mapping[str, Any], most_ps: int) -> dict[str, Any]:
    """What was asked for: the command line's word counts before the script's BackupHook, as in the AIMaster."""
    wish = pb2.BackupWish.FromString(store.blob("backup_wish"))
    peer, disk = str(given.get("peer_backup", "auto")), str(given.get("disk_backup", ""))
    asked = wish.peer if wish.HasField("peer") else True
    return {
        "peer_backup": (most_ps > 1 or (most_ps and given.get("peer_backup_holder", "auto") != "off"))
        and (peer == "on" or (peer == "auto" and asked)),
        "disk_backup": "" if disk == "off" else disk or wish.disk_path,
        "disk_backup_seconds": float(
            given.get("disk_backup_seconds") or wish.disk_seconds or Settings.disk_backup_seconds
        ),
    }
