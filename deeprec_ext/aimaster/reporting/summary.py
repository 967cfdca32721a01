"""`summary.json` from the store alone: also after the AIMaster is gone."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deeprec_ext.aimaster.core.records import Failure, Scaling, parse_name
from deeprec_ext.aimaster.job.notices import KEY, notices_of
from deeprec_ext.aimaster.ledger import report
from deeprec_ext.aimaster.reporting.ended import counts_of, outcome_of, seconds_of
from deeprec_ext.aimaster.reporting.estimated import foretold
from deeprec_ext.aimaster.state.suspects import KEY as SUSPECTS
from deeprec_ext.aimaster.state.suspects import suspects_of
from deeprec_ext.aimaster.store import resuming
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.autoscaler.history.estimates import NAMES
from deeprec_ext.autoscaler.outcomes.brought import Brought
from deeprec_ext.autoscaler.policy.record import brought_in, predictions
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

_OF_FAILURE = (
    "cause", "detected_seconds", "recovered_seconds", "steps_lost", "recovered_by", "backup_age_seconds", "stale_records",
    "steps_missing",
)  # fmt: skip


def _scaling(scaling: Scaling, ended: float) -> dict[str, Any]:
    pauses = scaling.pause_seconds
    outcome, reason = outcome_of(scaling)
    before, after = counts_of(scaling)
    return {
        "kind": scaling.kind,
        "role": scaling.role,
        "from": before,
        "to": after,
        "workers": {"from": scaling.workers_from, "to": scaling.workers_to} if scaling.both else None,
        **{name: getattr(scaling, name) for name in ("epoch", "bytes_moved", "bytes_resent")},
        "slots_moved": scaling.slots_moved if outcome == "committed" else 0,
        "pause_seconds": {"p50": statistics.median(pauses) if pauses else None, "max": max(pauses) if pauses else None},
        "pause_cause": scaling.pause_cause,
        "seconds": seconds_of(scaling, ended),
        "outcome": outcome,
        "reason": reason,
        "requested_by": scaling.requested_by,
        "gate_waits": scaling.gate_waits,
    }


def _failure(failure: Failure) -> dict[str, Any]:
    role, index = parse_name(failure.name)
    own = {name: getattr(failure, name) for name in _OF_FAILURE}
    return {
        "role": pb.Role.Name(role).lower(),
        "id": index,
        **own,
        "pause_seconds": max(failure.pause_seconds, default=None),
    }


def _estimator(directory: Path | None) -> dict[str, Any]:
    """`mape_holdout`: mean absolute error of the throughput predicted for each change that was made, relative to what was
    measured after it: no prediction had seen its measurement. None without such changes, and so without `--autoscale`.
    `brought`: what all changes together have brought, against the first size; None likewise."""
    pairs: list[tuple[float, float]] = []
    found: Brought | None = None
    if directory is not None:
        with contextlib.suppress(DeepRecError, OSError):  # damaged; `deeprec-ext decisions` says where
            pairs = predictions(directory)
            found = brought_in(directory)
    errors = [abs(predicted / measured - 1) for predicted, measured in pairs]
    return {
        "mape_holdout": statistics.fmean(errors) if errors else None, "changes": len(errors),
        "brought": found.to_values() if found is not None else None,
    }  # fmt: skip


def _foretold(store: Store, directory: Path | None, status: str, seconds: float) -> dict[str, list[dict[str, Any]]]:
    """What was estimated before the start, by name, and what came of it (`used`; None: not known, `unknown` says why). Empty
    where nothing was."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
    for one, came in foretold(store, directory, status, seconds):
        used = {"used": None, "unknown": came} if isinstance(came, str) else {"used": came}
        found[one.name].append({**one.to_values(), **used})
    return found


def steps_of(store: Store) -> int:
    """Where the model is: of a job that has gone back to a checkpoint not the highest step that it had ever reached."""
    return int(store.get("present_step", store.get("step", 0)))


def summarize(
    store: Store, *, status: str, seconds: float, roles: Mapping[str, Mapping[str, int]], directory: Path | None = None
) -> dict[str, Any]:
    """The dictionary of summary.json.

    Args:
        store: of the job, may be read-only.
        directory: with its decisions; None: there are none.
        status: how the job ended, as the launcher knows it.
        seconds: wall time of the run.
        roles: role -> {"started", "restarted"}, counted by the launcher.
    """
    metrics = store.get("metrics", {})
    return {
        "status": status,
        "steps": steps_of(store),
        "examples": store.examples(),
        "seconds": seconds,
        "roles": {role: dict(counts) for role, counts in roles.items()},
        "scaling": [_scaling(scaling, store.newest_time()) for scaling in store.scalings()],
        "failures": [_failure(failure) for failure in store.failures()],
        "data": report.summarize(store),
        "metrics": metrics,
        "notices": [dataclasses.asdict(one) for one in notices_of({KEY: store.get(KEY)})],
        "suspects": {
            one.name: {"time": one.time, "what": one.what, "offences": one.offences}
            for one in suspects_of({SUSPECTS: store.get(SUSPECTS)})
        },
        "estimator": {**_estimator(directory), **_foretold(store, directory, status, seconds)},
        **resuming.told(store, directory),
    }


def summarize_directory(
    workdir: Path, *, status: str, seconds: float, roles: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """The same from a run directory. Raises StoreError when it has no `aimaster.db`."""
    with contextlib.closing(Store(workdir / "aimaster.db", read_only=True)) as store:
        return summarize(store, status=status, seconds=seconds, roles=roles, directory=workdir)
