"""Strict checks of manifests without a server: against the models of the `kubernetes` package, and "restricted".

Every field has to exist and to have its type, what is required has to be there; names, labels and quantities have to be
well formed. The kinds that the package does not know (ServiceMonitor) have a small model here.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from kubernetes import client

VERSIONS = {
    "Pod": "v1", "Service": "v1", "Secret": "v1", "ServiceAccount": "v1", "Namespace": "v1", "ConfigMap": "v1",
    "PersistentVolumeClaim": "v1",
    "Role": "rbac.authorization.k8s.io/v1", "RoleBinding": "rbac.authorization.k8s.io/v1",
    "ClusterRole": "rbac.authorization.k8s.io/v1", "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
    "Deployment": "apps/v1", "PodDisruptionBudget": "policy/v1", "NetworkPolicy": "networking.k8s.io/v1",
    "MutatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1", "ServiceMonitor": "monitoring.coreos.com/v1",
}  # fmt: skip

_ENDPOINT = {"port": str, "path": str, "interval": str, "scrapeTimeout": str}
_OTHERS: dict[str, dict[str, Any]] = {
    "ServiceMonitor": {
        "apiVersion": str, "kind": str, "metadata": "V1ObjectMeta",
        "spec": {"selector": "V1LabelSelector", "endpoints": [_ENDPOINT], "namespaceSelector": {"any": bool}},
    }
}  # fmt: skip
_SCALARS: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "bool": (bool,), "float": (int, float), "datetime": (str,), "bytes": (str,),
    "object": (object,),
}  # fmt: skip
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")


def errors(manifest: Any) -> list[str]:
    """What is wrong with it, each with the path of the field; empty: nothing."""
    kind = manifest.get("kind")
    if VERSIONS.get(kind) != manifest.get("apiVersion"):
        return [f"kind {kind} of {manifest.get('apiVersion')}: not known; add it to VERSIONS if that is right"]
    found: list[str] = []
    _check(manifest, _OTHERS.get(kind, f"V1{kind}"), kind, found)
    name = (manifest.get("metadata") or {}).get("name", "")
    if not _NAME.fullmatch(name):
        found.append(f"{kind}.metadata.name: {name!r} is no name")
    return found


def _check(value: Any, model: Any, path: str, found: list[str]) -> None:
    if isinstance(model, dict):
        _check_fields(value, {name: (name, of) for name, of in model.items()}, path, found)
    elif isinstance(model, list):
        _check_list(value, model[0], path, found)
    elif isinstance(model, type):
        _check_scalar(value, (model,), path, found)
    elif match := re.fullmatch(r"[Ll]ist\[(.+)\]", model):
        _check_list(value, match[1], path, found)
    elif match := re.fullmatch(r"[Dd]ict[\[(]str, (.+)[\])]", model):
        _check_map(value, match[1], path, found)
    elif model in _SCALARS:
        _check_scalar(value, _SCALARS[model], path, found)
    else:
        of = getattr(client, model)
        _check_fields(
            value, {of.attribute_map[name]: (name, type_) for name, type_ in of.openapi_types.items()}, path, found
        )
        if isinstance(value, dict):
            _check_required(of, value, path, found)


def _check_fields(value: Any, fields: dict[str, tuple[str, Any]], path: str, found: list[str]) -> None:
    if not isinstance(value, dict):
        found.append(f"{path}: must be a mapping, is {value!r}")
        return
    for name, item in value.items():
        if name not in fields:
            found.append(f"{path}.{name}: there is no such field")
        elif item is None:
            found.append(f"{path}.{name}: is null")
        else:
            _check(item, fields[name][1], f"{path}.{name}", found)


def _check_required(of: Any, value: dict[str, Any], path: str, found: list[str]) -> None:
    found += [f"{path}.{key}: is required" for key in _required(of) if key not in value]


@functools.cache
def _required(of: Any) -> list[str]:
    """Newer models are pydantic's; in older ones the setter of a required attribute refuses None."""
    if hasattr(of, "model_fields"):
        return [of.attribute_map[name] for name, known in of.model_fields.items() if known.is_required()]
    configuration = client.Configuration()
    configuration.client_side_validation = False
    one = of(local_vars_configuration=configuration)
    configuration.client_side_validation = True
    required = []
    for name, key in of.attribute_map.items():
        try:
            setattr(one, name, None)
        except ValueError:
            required.append(key)
    return required


def _check_list(value: Any, model: Any, path: str, found: list[str]) -> None:
    if not isinstance(value, list):
        found.append(f"{path}: must be a list, is {value!r}")
        return
    for number, item in enumerate(value):
        _check(item, model, f"{path}[{number}]", found)
    names = [item["name"] for item in value if isinstance(item, dict) and "name" in item and "mountPath" not in item]
    found += [f"{path}: {name!r} is there twice" for name in sorted({name for name in names if names.count(name) > 1})]


def _check_map(value: Any, model: Any, path: str, found: list[str]) -> None:
    if not isinstance(value, dict):
        found.append(f"{path}: must be a mapping, is {value!r}")
        return
    for name, item in value.items():
        _check(item, model, f"{path}[{name}]", found)
        if path.rsplit(".", 1)[-1] in ("labels", "matchLabels") and not _LABEL_VALUE.fullmatch(str(item)):
            found.append(f"{path}[{name}]: {item!r} cannot be the value of a label")
        if path.rsplit(".", 1)[-1] in ("requests", "limits") and not _QUANTITY.fullmatch(str(item)):
            found.append(f"{path}[{name}]: {item!r} is no quantity")


def _check_scalar(value: Any, types: tuple[type, ...], path: str, found: list[str]) -> None:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types and object not in types):
        found.append(f"{path}: must be of type {types[0].__name__}, is {value!r}")


# ----------------------------------------------------------------------------------- pod security standard "restricted"

_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def pod_spec(manifest: Any) -> Any:
    """Of a pod or of what makes pods; None for another kind."""
    spec = manifest.get("spec") or {}
    return spec if manifest["kind"] == "Pod" else (spec.get("template") or {}).get("spec")


def violations(spec: Any, containers: set[str] | None = None) -> list[str]:
    """Where a pod breaks the profile, by its rules as of Kubernetes 1.31.

    Args:
        containers: only these; what they inherit from the pod counts, what the pod does otherwise does not.
    """
    pod = spec.get("securityContext") or {}
    found = []
    if containers is None:
        found += [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
        found += [
            f"volume {volume['name']}" for volume in spec.get("volumes") or [] if not set(volume) - {"name"} <= _VOLUMES
        ]
        found += ["sysctls"] if pod.get("sysctls") else []
    for one in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        if containers is None or one["name"] in containers:
            found += [f"{one['name']}: {broken}" for broken in _container_violations(one, pod)]
    return found


def _container_violations(container: Any, pod: Any) -> list[str]:
    own = container.get("securityContext") or {}
    effective = {**pod, **own}
    capabilities = own.get("capabilities") or {}
    rules = {
        "runs as root": effective.get("runAsNonRoot") is not True or effective.get("runAsUser") == 0,
        "may gain privileges": own.get("allowPrivilegeEscalation") is not False or bool(own.get("privileged")),
        "keeps capabilities": "ALL" not in (capabilities.get("drop") or []),
        "adds capabilities": bool(set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"}),
        "has no seccomp profile": (effective.get("seccompProfile") or {}).get("type")
        not in ("RuntimeDefault", "Localhost"),
        "uses a port of the node": any(port.get("hostPort") for port in container.get("ports") or []),
        "has /proc unmasked": own.get("procMount", "Default") != "Default",
    }
    return [rule for rule, broken in rules.items() if broken]
