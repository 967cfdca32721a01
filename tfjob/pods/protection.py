"""Who may reach the pods of a job, and how many PS may be evicted at once.

TensorFlow's port has no authentication: whoever reaches it reads and changes the model. So where the network enforces
policies, only pods of the job reach it, and nothing else of the job either: what a page shows is the job's own as well.
(`kubectl port-forward` goes by the kubelet, which no policy concerns; nor, with the usual networks, its probes.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tfjob.model.kinds import Manifest
from tfjob.model.names import AIMASTER_HTTP_PORT, AIMASTER_PORT, JOB_LABEL, PS, TYPE_LABEL

NAMESPACE_LABEL = "kubernetes.io/metadata.name"


def training_policy(
    job: str, metadata: Manifest, open_ports: Iterable[int] = (), namespaces: Iterable[str] = ()
) -> Manifest:  # fmt: skip
    """For PS and trainers: pods of the job reach every port.

    Args:
        open_ports: what the user's containers serve beside TensorFlow's port (a TensorBoard).
        namespaces: whose pods reach those.
    """
    selector = {"matchLabels": {JOB_LABEL: job}, "matchExpressions": [{"key": TYPE_LABEL, "operator": "Exists"}]}
    return _policy(metadata, selector, [{"from": [_pods_of(job)]}, *_others(namespaces, sorted(set(open_ports)))])


def aimaster_policy(job: str, metadata: Manifest, labels: Manifest, namespaces: Iterable[str] = ()) -> Manifest:
    """For the AIMaster: its gRPC port and its page for pods of the job.

    Args:
        namespaces: whose pods reach the page and the metrics, too.
    """
    own = {"from": [_pods_of(job)], "ports": _ports([AIMASTER_PORT, AIMASTER_HTTP_PORT])}
    return _policy(metadata, {"matchLabels": labels}, [own, *_others(namespaces, [AIMASTER_HTTP_PORT])])


def _others(namespaces: Iterable[str], ports: Sequence[int]) -> list[Manifest]:
    """The server labels each namespace with its name (from 1.21 on)."""
    found = [{"namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: name}}} for name in namespaces]
    return [{"from": found, "ports": _ports(ports)}] if found and ports else []


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
