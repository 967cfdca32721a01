"""TF_CONFIG as the contract has it, byte for byte: what Go's json.Marshal makes of the training operator's structs.

Compact, fields in the order of the structs, maps by their sorted keys. Addresses have nothing that would be escaped.
"""

from __future__ import annotations

import json
from typing import Any

from tfjob.model import names
from tfjob.model.spec import TFJob

VARIABLE = "TF_CONFIG"


def tf_config(job: TFJob, type_: str, index: int, *, domain: str = "") -> str | None:
    """What the container `tensorflow` gets; None: a job of one replica is no cluster.

    Args:
        domain: the cluster's own, appended to every host (CUSTOM_CLUSTER_DOMAIN of the operator); empty: none.
    """
    if job.total == 1:
        return None
    task = {"type": type_.lower(), "index": index}
    if job.dynamic_worker:
        value: dict[str, Any] = {"cluster": _sparse(job, type_, index, domain), "task": task}
    else:
        cluster = {spec.type.lower(): _addresses(job, spec.type, domain) for spec in job.specs.values()}
        value = {"cluster": dict(sorted(cluster.items())), "task": task, "environment": "cloud"}
    return json.dumps(value, separators=(",", ":"))


def address(job: TFJob, type_: str, index: int, *, domain: str = "") -> str:
    """host:port at which the other replicas reach it."""
    return f"{names.host(names.pod_name(job.name, type_, index), job.namespace, domain)}:{job.specs[type_].port}"


def _addresses(job: TFJob, type_: str, domain: str) -> list[str]:
    return [address(job, type_, index, domain=domain) for index in range(job.replicas(type_))]


def _sparse(job: TFJob, type_: str, index: int, domain: str) -> dict[str, Any]:
    """Each knows just what it needs, so that workers may come and go."""
    if type_ == names.WORKER:
        ps = (
            _addresses(job, names.PS, domain) if names.PS in job.specs else None
        )  # a nil slice, which Go writes as null
        return {"worker": {str(index): address(job, type_, index, domain=domain)}, "ps": ps}
    return {"worker": {}, "ps": [address(job, type_, index, domain=domain)] if type_ == names.PS else []}
