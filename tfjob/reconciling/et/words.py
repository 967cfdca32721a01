"""What the ET operator calls things in a status, and how it keeps conditions: of each type one, the latest last."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tfjob.model import names
from tfjob.model.conditions import condition, is_true, set_condition
from tfjob.model.kinds import SCALE_INS, SCALE_OUTS, TRAINING_JOBS, Manifest, Resource
from tfjob.model.times import stamp

API_VERSION = f"{names.ET_GROUP}/v1alpha1"
TRAINING_JOB, SCALE_OUT, SCALE_IN = "TrainingJob", "ScaleOut", "ScaleIn"
RESOURCES: Mapping[str, Resource] = {TRAINING_JOB: TRAINING_JOBS, SCALE_OUT: SCALE_OUTS, SCALE_IN: SCALE_INS}

CREATED, RUNNING, SUSPENDED, SUCCEEDED, FAILED = "Created", "Running", "Suspended", "Succeeded", "Failed"
WORKERS_CREATED, WORKERS_READY, LAUNCHER_CREATED = "WorkersCreated", "WorkersReady", "LauncherCreated"
SCALING, SCALED, SCALE_FAILED = "Scaling", "ScaleSucceeded", "ScaleFailed"
TAKEN = "TFJobCreated"
"""Reason of `WorkersCreated` where it is ours: by it a TrainingJob that we run is told from one of the ET operator's."""

SUSPENDED_ANNOTATION = "job-supervisor.kube-ai.io/job-suspended"
TIMEOUT_SECONDS = 60
"""Of a ScaleOut that says nothing."""


def status_of(manifest: Manifest) -> Manifest:
    """With the fields that the kind requires."""
    status = manifest.get("status") or {}
    return {
        **status, "conditions": list(status.get("conditions") or []), "restartCount": status.get("restartCount") or 0,
        "replicaStatuses": dict(status.get("replicaStatuses") or {}),
    }  # fmt: skip


def told(status: Manifest, type_: str, reason: str, message: str, now: datetime) -> Manifest:
    """The status with this condition, or the very same where it says that already."""
    before = condition(status, type_)
    if before is not None and before.get("message") != message and not is_true(status, FAILED):
        status = {**status, "conditions": [one for one in status["conditions"] if one is not before]}
    return set_condition(status, type_, message, now, reason=reason)


def changed(manifest: Manifest, status: Manifest, now: datetime) -> Manifest | None:
    """The status to be written; None: it is that already."""
    before = manifest.get("status") or {}
    if {**before, "lastReconcileTime": ""} == {**status, "lastReconcileTime": ""}:
        return None
    return {**status, "lastReconcileTime": stamp(now)}


def full_name(manifest: Manifest) -> str:
    """`ScaleOut:ns/name`, as `currentScaler` has it."""
    return f"{manifest['kind']}:{manifest['metadata'].get('namespace')}/{manifest['metadata']['name']}"


def controller_of(owner: Manifest, kind: str, api_version: str) -> list[Any]:
    """Owner references of what belongs to it."""
    metadata = owner["metadata"]
    return [{
        "apiVersion": api_version, "kind": kind, "name": metadata["name"], "uid": metadata.get("uid", ""),
        "controller": True, "blockOwnerDeletion": True,
    }]  # fmt: skip
