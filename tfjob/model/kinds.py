"""Kinds of objects of the Kubernetes API, and the manifests that they are: dictionaries, as they are written in YAML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Resource:
    """One kind of object, as its URL says it."""

    plural: str
    version: str = "v1"
    group: str = ""

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """Of one object, or, without a name, of all in a namespace (None: in all namespaces)."""
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        parts += [f"namespaces/{namespace}"] if namespace else []
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


def resource_of(manifest: Manifest) -> Resource:
    """`NetworkPolicy` of `networking.k8s.io/v1` → where its objects are."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    plural = manifest["kind"].lower()
    plural = plural[:-1] + "ies" if plural.endswith("y") else plural + "s"
    return Resource(plural, version, group)


PODS = Resource("pods")
SERVICES = Resource("services")
SECRETS = Resource("secrets")
CONFIG_MAPS = Resource("configmaps")
EVENTS = Resource("events")
NODES = Resource("nodes")
SERVICE_ACCOUNTS = Resource("serviceaccounts")
ROLES = Resource("roles", group="rbac.authorization.k8s.io")
ROLE_BINDINGS = Resource("rolebindings", group="rbac.authorization.k8s.io")
RESOURCE_QUOTAS = Resource("resourcequotas")
PRIORITY_CLASSES = Resource("priorityclasses", group="scheduling.k8s.io")
KUEUE, VOLCANO = "kueue.x-k8s.io", "scheduling.volcano.sh"
"""Groups of schedulers' queues, which a cluster may have or not."""

LEASES = Resource("leases", group="coordination.k8s.io")
TFJOBS = Resource("tfjobs", group="kubeflow.org")

TRAINING_JOBS = Resource("trainingjobs", "v1alpha1", "kai.alibabacloud.com")
SCALE_OUTS = Resource("scaleouts", "v1alpha1", "kai.alibabacloud.com")
SCALE_INS = Resource("scaleins", "v1alpha1", "kai.alibabacloud.com")
"""Of the ET operator."""
