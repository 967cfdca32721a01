"""Who may reach the pods of a job, and how many PS may be evicted at once.

TensorFlow's port has no authentication: whoever reaches it reads and changes the model. So where the network enforces
policies, only pods of the job reach it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tfjob.api import Manifest
from tfjob.names import AIMASTER_HTTP_PORT, AIMASTER_PORT, JOB_LABEL, PS, TYPE_LABEL


def training_policy(job: str, metadata: Manifest, open_ports: Iterable[int] = ()) -> Manifest:
    """For PS and trainers: pods of the job reach every port, others only `open_ports` (a TensorBoard of the user's)."""
    others = _ports(sorted(set(open_ports)))
    selector = {"matchLabels": {JOB_LABEL: job}, "matchExpressions": [{"key": TYPE_LABEL, "operator": "Exists"}]}
    return _policy(metadata, selector, [{"from": [_pods_of(job)]}, *([{"ports": others}] if others else [])])


def aimaster_policy(job: str, metadata: Manifest, labels: Manifest) -> Manifest:
    """For the AIMaster: its gRPC port for pods of the job (and `kubectl port-forward`, which no policy concerns).

    The web page and the metrics may be read from anywhere; to change anything there takes the job's token.
    """
    ingress = [{"from": [_pods_of(job)], "ports": _ports([AIMASTER_PORT])}, {"ports": _ports([AIMASTER_HTTP_PORT])}]
    return _policy(metadata, {"matchLabels": labels}, ingress)


def disruption_budget(job: str, metadata: Manifest, ps: int) -> Manifest:
    """All but one PS stay, so that a drain of nodes waits until the one before has been taken over.

    A number, and to be patched when PS are added or leave: Kubernetes works with `maxUnavailable` only for kinds that have a
    scale subresource. The only PS of a job may be evicted: a budget would stop the drain of its node for ever.
    """
    selector = {"matchLabels": {JOB_LABEL: job, TYPE_LABEL: PS.lower()}}
    return {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata,
        "spec": {"minAvailable": max(ps - 1, 0), "selector": selector},
    }  # fmt: skip


def _policy(metadata: Manifest, selector: Manifest, ingress: list[Manifest]) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata,
        "spec": {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": ingress},
    }  # fmt: skip


def _pods_of(job: str) -> Manifest:
    return {"podSelector": {"matchLabels": {JOB_LABEL: job}}}


def _ports(numbers: Iterable[int]) -> list[Manifest]:
    return [{"protocol": "TCP", "port": number} for number in numbers]
