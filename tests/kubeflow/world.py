"""Kubeflow's cases in our words: a job whose pods are in this or that phase, and what is decided of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.unit.tfjob.world import Cluster, manifest
from tfjob.model import names
from tfjob.model.kinds import Manifest
from tfjob.model.times import stamp
from tfjob.reconciling.actions import Actions

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"


@dataclass(frozen=True)
class Case:
    """`go`: package, test and row as Kubeflow's source (v1.9.0) calls them. `check` raises AssertionError."""

    go: str
    check: Callable[[], None]


def cases(prefix: str, check: Callable[..., None], rows: dict[str, Any]) -> list[Case]:
    """One for each row; a row is what `check` is called with, a tuple or one value."""

    def bound(row: Any) -> Callable[[], None]:
        return lambda: check(*row) if isinstance(row, tuple) else check(row)

    return [Case(f"{prefix}/{name}", bound(row)) for name, row in rows.items()]


def job(workers: int = 0, ps: int = 0, *, chief: int = 0, master: int = 0, evaluator: int = 0, **how: Any) -> Manifest:
    counts = {"Worker": workers, "PS": ps, "Chief": chief, "Master": master, "Evaluator": evaluator}
    return manifest({type_: count for type_, count in counts.items() if count}, **how)


def counted(pending: int = 0, running: int = 0, succeeded: int = 0, failed: int = 0) -> list[str]:
    """Phases of the first pods of a type, in Kubeflow's order."""
    return [SUCCEEDED] * succeeded + [FAILED] * failed + [PENDING] * pending + [RUNNING] * running


def world(
    written: Manifest, phases: dict[str, Sequence[str]], *, code: int | None = None, services: bool = True
) -> Cluster:
    """Of each type the pods whose phases are named, and no others; the job is started.

    Args:
        code: exit code of those that have failed; None: not known.
    """
    cluster = Cluster(written)
    cluster.settle()
    kept = {}
    for type_, wanted in phases.items():
        for index, phase in enumerate(wanted):
            name = names.pod_name("mnist", type_, index)
            kept[name] = cluster.pods[name]
            kept[name]["status"] = {"phase": phase}
            if phase == FAILED and code is not None:
                ended = {"name": "tensorflow", "state": {"terminated": {"exitCode": code}}}
                kept[name]["status"]["containerStatuses"] = [ended]
    cluster.pods = kept
    cluster.services = {name: one for name, one in cluster.services.items() if services and name in kept}
    cluster.events.clear()
    return cluster


def exited(cluster: Cluster, short: str, code: int) -> None:
    ended = {"name": "tensorflow", "state": {"terminated": {"exitCode": code}}}
    cluster.pods[f"mnist-{short}"]["status"]["containerStatuses"] = [ended]


def finished(cluster: Cluster, type_: str, seconds_ago: float = 0.0, completion: bool = True) -> None:
    """The job has ended so."""
    ended = {
        "type": type_,
        "status": "True",
        "reason": f"TFJob{type_}",
        "message": "",
        "lastTransitionTime": stamp(cluster.now),
    }
    status = {key: value for key, value in cluster.status.items() if key != "conditions"}
    if completion:
        status["completionTime"] = stamp(cluster.now)
    cluster.manifest["status"] = {**status, "conditions": [ended]}
    cluster.pass_seconds(seconds_ago)


def condition(cluster: Cluster, type_: str) -> Manifest | None:
    return next((one for one in cluster.status.get("conditions", []) if one["type"] == type_), None)


def deleted(actions: Actions) -> set[str]:
    return {one.name[len("mnist-") :] for one in actions.delete_pods}
