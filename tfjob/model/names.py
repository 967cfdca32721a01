"""Every name that users and their tools see: the API, labels, annotations, pods; and the AIMaster's names for the same pods.

A pod is called `<job>-<type lower>-<index>`, as the contract has it. The AIMaster says `ps-0`, `chief-0`, `worker-1`,
`evaluator-0`. Where a job has no Chief or Master, worker 0 is the chief, and the AIMaster's `worker-N` is worker N + 1.
"""

from __future__ import annotations

import re
from typing import Protocol

from deeprec_ext.errors import UsageError

GROUP, VERSION, KIND, PLURAL = "kubeflow.org", "v1", "TFJob", "tfjobs"
API_VERSION = f"{GROUP}/{VERSION}"
CONTROLLER = "tfjob-controller"

CHIEF, MASTER, PS, WORKER, EVALUATOR = "Chief", "Master", "PS", "Worker", "Evaluator"
TYPES = (CHIEF, EVALUATOR, MASTER, PS, WORKER)
"""In the order in which they are looked at: the first type that has failed gives the message."""

CONTAINER = "tensorflow"
PORT_NAME, PORT = "tfjob-port", 2222
NAME_MAX = 63
"""Characters of a DNS-1035 label: a service is called as its pod."""

OPERATOR_LABEL = "training.kubeflow.org/operator-name"
JOB_LABEL = "training.kubeflow.org/job-name"
TYPE_LABEL = "training.kubeflow.org/replica-type"
INDEX_LABEL = "training.kubeflow.org/replica-index"
ROLE_LABEL = "training.kubeflow.org/job-role"

ANNOTATION_PREFIX = "aimaster.deeprec.io/"
STATUS_ANNOTATION = ANNOTATION_PREFIX + "status"
SCALED_TO_ANNOTATION = ANNOTATION_PREFIX + "scaled-to"
STARTED_WITH_ANNOTATION = ANNOTATION_PREFIX + "started-with"
ESTIMATE_ANNOTATION = ANNOTATION_PREFIX + "estimate"
WORTH_ANNOTATION = ANNOTATION_PREFIX + "worth"
ALLOWANCE_ANNOTATION = ANNOTATION_PREFIX + "allowance"
"""By the AIMaster: what sizes would be worth; by the operator: how many pods the job may have (`model.arbitrated`)."""

RESTARTS_ANNOTATION = ANNOTATION_PREFIX + "restarts"
RESTART_POLICIES_ANNOTATION = ANNOTATION_PREFIX + "restart-policies"
"""Beside Kubeflow: what the user had written, where it was changed."""

AIMASTER_CONTAINER = "aimaster"
AIMASTER_PORT, AIMASTER_HTTP_PORT = 2223, 8000
CONFIG_MAP_KEY = "tfjob.json"
"""Of the TFJob in the ConfigMap of a job without an operator."""

_DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_AIMASTER_NAME = re.compile(r"(ps|chief|worker|evaluator)-(0|[1-9]\d*)")


class Named(Protocol):
    """What names need to know of a job."""

    @property
    def name(self) -> str: ...

    @property
    def chief(self) -> str:
        """`Chief`, `Master`, or empty where worker 0 stands for it."""


def is_dns_1035(text: str) -> bool:
    return len(text) <= NAME_MAX and _DNS_1035.fullmatch(text) is not None


def is_dns_label(text: str) -> bool:
    """RFC 1123: as namespaces are called."""
    return len(text) <= NAME_MAX and _DNS_1123.fullmatch(text) is not None


def pod_name(job: str, type_: str, index: int) -> str:
    """Of a pod and of its service."""
    return f"{job}-{type_.lower()}-{index}"


def aimaster_name(job: str) -> str:
    """Of the AIMaster's pod and service."""
    return f"{job}-aimaster"


def config_map_name(job: str) -> str:
    """Where a job is written down that no operator has made; it owns everything of the job."""
    return f"{job}-tfjob"


def host(name: str, namespace: str, domain: str = "") -> str:
    """Of a pod's service; `domain` is the cluster's, where CUSTOM_CLUSTER_DOMAIN says that it has to be written."""
    return f"{name}.{namespace}.svc" + (f".{domain}" if domain else "")


def job_labels(job: str) -> dict[str, str]:
    """On everything that belongs to the job."""
    return {OPERATOR_LABEL: CONTROLLER, JOB_LABEL: job}


def replica_labels(job: str, type_: str, index: int) -> dict[str, str]:
    return {**job_labels(job), TYPE_LABEL: type_.lower(), INDEX_LABEL: str(index)}


def selector(job: str, type_: str) -> str:
    """Of the pods of one type, as `kubectl get pods --selector` takes it."""
    labels = {**job_labels(job), TYPE_LABEL: type_.lower()}
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def replica_of(job: Named, name: str) -> tuple[str, int]:
    """`"worker-2"`, as the AIMaster says it → `("Worker", 2)`. Raises UsageError for what is no name of a role."""
    match = _AIMASTER_NAME.fullmatch(name)
    if not match or (match[1] == "chief" and match[2] != "0"):
        raise UsageError(f"{name}: is no name of a role; there are ps-0, chief-0, worker-0, evaluator-0 and so on")
    role, index = match[1], int(match[2])
    if role == "chief":
        return job.chief or WORKER, 0
    if role == "worker":
        return WORKER, index if job.chief else index + 1
    return (PS if role == "ps" else EVALUATOR), index


def role_of(job: Named, type_: str, index: int) -> str:
    """`("Worker", 2)` → `"worker-2"`, or, where worker 0 is the chief, `"worker-1"`."""
    if type_ in (CHIEF, MASTER) or (type_ == WORKER and index == 0 and not job.chief):
        return "chief-0"
    if type_ == WORKER and not job.chief:
        index -= 1
    return f"{type_.lower()}-{index}"


def pod_name_of(job: Named, name: str) -> str:
    """The pod of `"worker-2"`, as the AIMaster says it. Raises UsageError for what is no name of a role."""
    return pod_name(job.name, *replica_of(job, name))
