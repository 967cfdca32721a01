"""What has become of jobs, counted by namespace: Kubeflow's metrics and names, so that dashboards and alerts go on."""

from __future__ import annotations

from deeprec_ext.gazer.prometheus import COUNTER, Exported, Facts
from tfjob.model import conditions
from tfjob.model.events import Event
from tfjob.model.kinds import Manifest

FRAMEWORK = "tensorflow"
KINDS = ("created", "deleted", "successful", "failed", "restarted")
JOBS_PREFIX = "training_operator_jobs_"
JOBS = tuple(
    Exported(JOBS_PREFIX + f"{kind}_total", COUNTER, f"Counts number of jobs {kind}", ("job_namespace", "framework"))
    for kind in KINDS
)
_CONDITIONS = {"created": conditions.CREATED, "successful": conditions.SUCCEEDED, "failed": conditions.FAILED}


class JobCounts:
    """Since the operator began to lead; of what it has done itself."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}

    def status_written(self, before: Manifest, after: Manifest) -> None:
        """Conditions that have become true by this."""
        old, new = before.get("status") or {}, after.get("status") or {}
        for kind, type_ in _CONDITIONS.items():
            if conditions.is_true(new, type_) and not conditions.is_true(old, type_):
                self._add(kind, after)

    def told(self, job: Manifest, event: Event) -> None:
        """An Event about a job: that it restarts is no condition of its own each time."""
        if event.reason == conditions.reason_of(conditions.RESTARTING):
            self._add("restarted", job)

    def deleted(self, job: Manifest) -> None:
        """At the end of its time to live."""
        self._add("deleted", job)

    def _add(self, kind: str, job: Manifest) -> None:
        namespace = str(job["metadata"].get("namespace") or "default")
        self._counts[kind][namespace] = self._counts[kind].get(namespace, 0) + 1

    def facts(self) -> Facts:
        """For Prometheus, see `JOBS`."""
        return {
            JOBS_PREFIX + f"{kind}_total": [
                ((namespace, FRAMEWORK), count) for namespace, count in sorted(counts.items())
            ]
            for kind, counts in self._counts.items()
        }
