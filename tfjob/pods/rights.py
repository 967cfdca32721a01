"""What the AIMaster of one job may do in its namespace: a service account, a Role and their binding.

The least with which it can work; where Kubernetes can say so, only on objects of this job by name. (It cannot for pods and
services, whose names are many, nor for any `create`.) The operator has to have each of these rights itself, or it
could not give them.
"""

from __future__ import annotations

from tfjob.model.kinds import Manifest
from tfjob.model.names import aimaster_name, config_map_name

RBAC = "rbac.authorization.k8s.io"


def state_name(job: str) -> str:
    """The ConfigMap in which the AIMaster keeps a snapshot of its state."""
    return f"{aimaster_name(job)}-state"


def service_account(metadata: Manifest) -> Manifest:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "automountServiceAccountToken": False}


def role(job: str, metadata: Manifest, *, operator: bool = True, makes_pods: bool = True) -> Manifest:
    """Every verb with its reason.

    Args:
        operator: False: the job is written in a ConfigMap and not in a TFJob.
        makes_pods: False beside Kubeflow, whose operator makes pods and services.
    """
    pods_and_services = [
        _rule(
            "", "pods",
            "create",  # PS and trainers: at the start, for a scale-up, in the place of lost ones
            "get",  # whether one that exists already is the job's own
            "list",  # all there are, after its own restart
            "watch",  # started, exited, evicted, out of memory
            "delete",  # drained PS, superfluous workers, hung processes, everything at the end
        ),
        _rule(
            "", "services",
            "create",  # the name under which a pod is reached
            "get",  # whether one that exists already is the job's own
            "list",  # those left over by an earlier AIMaster
            "delete",  # with its pod
        ),
    ]  # fmt: skip
    pods_only = [
        _rule(
            "", "pods",
            "get",  # whether Kubeflow has made one of this name
            "list",  # all there are, after its own restart
            "watch",  # started, exited, evicted, out of memory
            "delete",  # what hangs or was lost: Kubeflow makes it again
        ),
    ]  # fmt: skip
    rules = [
        *(pods_and_services if makes_pods else pods_only),
        *(_followed(job) if operator else _written(job)),
        _rule(
            "", "configmaps",
            "create",  # the snapshot of its state, once; a name cannot be asked for here
        ),
        _rule(
            "", "configmaps",
            "get",  # the snapshot, after its own restart
            "update",  # a newer snapshot; fails when another AIMaster was faster
            names=[state_name(job)],
        ),
        _rule(
            "", "events",
            "create",  # scalings and failovers, as `kubectl describe tfjob` shows them
        ),
    ]  # fmt: skip
    return {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules}


def _followed(job: str) -> list[Manifest]:
    return [
        _rule(
            "kubeflow.org", "tfjobs",
            "get",  # templates, replicas and annotations
            "list", "watch",  # replicas or `hold` changed by the user; one name: by a field selector
            "patch",  # replicas after a scaling; `scaled-to` and `status` annotations
            names=[job],
        ),
        _rule(
            "kubeflow.org", "tfjobs/finalizers",
            "update",  # asked for by servers that check who sets blockOwnerDeletion on the job's pods
            names=[job],
        ),
    ]  # fmt: skip


def _written(job: str) -> list[Manifest]:
    return [
        _rule(
            "", "configmaps",
            "get",  # templates, replicas and annotations
            names=[config_map_name(job)],
        ),
        _rule(
            "", "configmaps/finalizers",
            "update",  # asked for by servers that check who sets blockOwnerDeletion on the job's pods
            names=[config_map_name(job)],
        ),
    ]  # fmt: skip


def role_binding(job: str, namespace: str, metadata: Manifest) -> Manifest:
    name = aimaster_name(job)
    return {
        "apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }  # fmt: skip


def _rule(group: str, resource: str, *verbs: str, names: list[str] | None = None) -> Manifest:
    rule: Manifest = {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
    return {**rule, "resourceNames": names} if names else rule
