"""A job as its pods are named: `tfjob.model.names` for one TFJob, from the AIMaster's side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deeprec_ext.aimaster.core.records import ROLE_NAMES
from tfjob.model import names


@dataclass(frozen=True)
class Naming:
    """`chief`: how the TFJob calls it: `Chief`, `Master`, or empty where worker 0 stands for it."""

    name: str
    chief: str = ""

    @property
    def selector(self) -> str:
        """Of all pods of the job."""
        return f"{names.JOB_LABEL}={self.name}"

    def pod(self, role: str) -> str:
        """`ps-1` → `<job>-ps-1`. Raises UsageError for what is no name of a role."""
        return names.pod_name_of(self, role)

    def role(self, labels: Mapping[str, str]) -> str | None:
        """From a pod's labels; None for a pod that is no role of the job (the AIMaster's own)."""
        kind, index = labels.get(names.TYPE_LABEL, "").lower(), labels.get(names.INDEX_LABEL, "")
        type_ = next((one for one in names.TYPES if one.lower() == kind), "")
        if labels.get(names.JOB_LABEL) != self.name or not type_ or not index.isdigit() or len(index) > 6:
            return None
        found = names.role_of(self, type_, int(index))
        return found if found.partition("-")[0] in ROLE_NAMES else None
