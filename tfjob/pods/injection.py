"""What an elastic pod gets on top of the user's: the package, the environment, certificates, and a place of its own.

The input is the ordinary pod of the TFJob contract; the user's image, command, volumes and environment stay as they are,
with these exceptions: TF_CONFIG goes (autoload writes it), and restartPolicy becomes OnFailure. The first Python of a PS
becomes our server (autoload again), so that it has what the user's entry point sets up. Injecting twice is the same as once.

Others reach a process by the address of its pod, not by a name: a name would lead to the pod before it for as long as resolvers
remember.

**How Python finds us.** An init container copies the package into a volume (`deeprec_ext.inject`); PYTHONPATH names the copy
after the user's own entries. With `package: inject` the container is our image; with `image` it is the user's own, where the
package is installed. A PYTHONPATH in the pod's environment replaces one that the image itself sets (ENV in its Dockerfile),
and Kubernetes cannot refer to that. With `image` the init container sees the image's and keeps it for our
sitecustomize; with `inject` nothing can know it, so who has one in the image repeats it in the pod's `env`. The same holds
for a PYTHONPATH that comes from `envFrom`.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping

from deeprec_ext import env
from deeprec_ext.errors import UsageError
from tfjob.model.kinds import Manifest
from tfjob.model.names import (
    AIMASTER_PORT,
    CONTAINER,
    INDEX_LABEL,
    JOB_LABEL,
    PORT,
    PORT_NAME,
    PS,
    TYPE_LABEL,
    aimaster_name,
    host,
)  # fmt: skip
from tfjob.pods import certificates
from tfjob.pods.restricted import USER, container_context

INIT_CONTAINER = VOLUME = "deeprec-ext"
TARGET = "/deeprec-ext"
PYTHON_PATH = (f"{TARGET}/deeprec_ext/_autoload", TARGET)
USERS_PYTHON_PATH = "PYTHONPATH_IN_THE_POD"
"""The user's PYTHONPATH, where its value is not written in the pod but comes from a ConfigMap, a field or the like."""

POD_IP = f"{env.PREFIX}POD_IP"
INDEX, REPLICA_INDEX = f"{env.PREFIX}INDEX", f"{env.PREFIX}REPLICA_INDEX"
PS_GRACE_SECONDS = 60
"""Longer than its slots take to move (`release_limit_seconds`), for evictions that come with a notice."""

_DEFAULTS = {"PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
_OUR_MOUNTS = (TARGET, certificates.DIRECTORY)
_OWN_RESOURCES = ("cpu", "memory", "ephemeral-storage")


def elastic_pod(
    pod: Manifest, *, job: str, namespace: str, role: str, index: int | None, slots: int, package: str, package_image: str,
    evaluator: bool, chief: str, layout: str = "", resources: Mapping[str, str] | None = None, cluster_domain: str = "",
) -> Manifest:  # fmt: skip
    """The elastic pod for an ordinary one, which is not changed. Raises UsageError for a pod that has no such container.

    Args:
        pod: as the contract makes it, with its final name.
        role, index: as the AIMaster calls it (`worker`, 0), not as the pod is called; index None: the pod's label says it,
            as the TFJob counts, and a `worker` may be the chief.
        package: `inject` or `image`.
        package_image: image of the init container with `inject`.
        evaluator: whether the job has one.
        chief: how the job calls its chief, see `env.chief_role`.
        layout: how TF_CONFIG calls the processes, one of `deeprec_ext.layout.LAYOUTS`; empty: by `chief` and the script's text.
        resources: requests and limits of the training container in place of the user's, e.g. `{"memory": "4Gi"}`.
        cluster_domain: appended to the AIMaster's host name.
    """
    pod = copy.deepcopy(pod)
    spec, metadata = pod["spec"], pod["metadata"]
    container = training_container(pod)
    if resources:
        _set_resources(container, resources)
    aimaster = f"{host(aimaster_name(job), namespace, cluster_domain)}:{AIMASTER_PORT}"
    ours = env.process_environment(
        aimaster=aimaster, job=f"{namespace}.{job}", role=role, index=index or 0, slots=slots,
        certificates=certificates.DIRECTORY, workdir="", evaluator=evaluator, chief=chief,
        address=f"$({POD_IP}):{port_of(container)}", layout=layout,
    )  # fmt: skip
    users_environment = _users_environment(container.get("env") or [])
    init = _init_container(container, users_environment, spec, package, package_image)
    if role == "ps":
        spec["terminationGracePeriodSeconds"] = max(spec.get("terminationGracePeriodSeconds") or 0, PS_GRACE_SECONDS)
        spec["affinity"] = _apart(spec.get("affinity") or {}, job)
    container["env"] = _environment(users_environment, ours)
    if index is None:
        container["env"] = [entry if entry["name"] != INDEX else _replica_index() for entry in container["env"]]
    _put(container, "volumeMounts", {"name": VOLUME, "mountPath": TARGET, "readOnly": True}, "mountPath")
    _put(container, "volumeMounts", certificates.mount(), "mountPath")
    _put(spec, "initContainers", init)
    _put(spec, "volumes", {"name": VOLUME, "emptyDir": {}})
    readable = "fsGroup" in (spec.get("securityContext") or {})
    certificate = "trainer" if index is None and role == chief == "worker" else role  # worker 0 of these is the chief
    _put(spec, "volumes", certificates.volume(job, certificate, group_readable=readable))
    spec["restartPolicy"] = "OnFailure"
    # Its proxy would stand between TensorFlow servers, which speak gRPC that it does not understand as such.
    metadata["annotations"] = {**(metadata.get("annotations") or {}), "sidecar.istio.io/inject": "false"}
    return pod


def elastic_service(service: Manifest) -> Manifest:
    """The service of such a pod: its name can be resolved as soon as there is an address.

    Without this, whoever asks a moment too early is told for up to half a minute that there is no such host.
    """
    return {**service, "spec": {**service["spec"], "publishNotReadyAddresses": True}}


def training_container(pod: Manifest) -> Manifest:
    """Raises UsageError."""
    for container in pod["spec"].get("containers") or []:
        if container.get("name") == CONTAINER:
            found: Manifest = container
            return found
    raise UsageError(f"pod {pod['metadata'].get('name')}: no container is named {CONTAINER}; name the training one so")


def port_of(container: Manifest) -> int:
    """Where its TensorFlow server listens."""
    ports = container.get("ports") or []
    return next((int(port["containerPort"]) for port in ports if port.get("name") == PORT_NAME), PORT)


def python_of(container: Manifest) -> str:
    """The interpreter that the user's command names, else `python3`, which every image of TensorFlow has."""
    words = container.get("command") or container.get("args") or [""]
    return words[0] if re.fullmatch(r"python(\d(\.\d+)?)?", os.path.basename(words[0])) else "python3"


def _put(parent: Manifest, field: str, item: Manifest, key: str = "name") -> None:
    """Adds it to a list, or puts it in the place of the one that was there."""
    others = [other for other in parent.get(field) or [] if other.get(key) != item[key]]
    parent[field] = [*others, item]


# ------------------------------------------------------------------------------------------------------- environment


def _users_environment(variables: list[Manifest]) -> list[Manifest]:
    """What the user has set, without what an earlier injection has added."""
    found = {entry["name"]: entry for entry in variables}
    defaults = [{"name": name, "value": value} for name, value in _DEFAULTS.items()]
    users = []
    for name, entry in found.items():
        if name == "TF_CONFIG" or name.startswith(env.PREFIX) or entry in defaults:
            continue
        if name == USERS_PYTHON_PATH:
            entry = {**entry, "name": "PYTHONPATH"}
        elif name == "PYTHONPATH" and USERS_PYTHON_PATH in found:
            continue
        elif name == "PYTHONPATH" and not entry.get("valueFrom"):
            paths = [path for path in (entry.get("value") or "").split(":") if path and path not in PYTHON_PATH]
            if not paths:
                continue
            entry = {**entry, "value": ":".join(paths)}
        users.append(entry)
    return users


def _environment(users: list[Manifest], ours: Mapping[str, str]) -> list[Manifest]:
    """The user's variables in their order, then ours. `$(NAME)` refers to what comes before it."""
    result: list[Manifest] = []
    for entry in users:
        if entry["name"] != "PYTHONPATH":
            result.append(entry)
        elif entry.get("valueFrom"):
            result += [{**entry, "name": USERS_PYTHON_PATH}, _python_path(f"$({USERS_PYTHON_PATH})")]
        else:
            result.append(_python_path(entry["value"]))
    set_by_user = {entry["name"] for entry in users}
    added = {name: value for name, value in _DEFAULTS.items() if name not in set_by_user}
    result += [{"name": name, "value": value} for name, value in added.items()]
    if "PYTHONPATH" not in set_by_user:
        result.append(_python_path())
    result.append({"name": POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    return [*result, *({"name": name, "value": value} for name, value in ours.items())]


def _replica_index() -> Manifest:
    return {"name": REPLICA_INDEX, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX_LABEL}']"}}}


def _python_path(*users: str) -> Manifest:
    return {"name": "PYTHONPATH", "value": ":".join((*users, *PYTHON_PATH))}


# ----------------------------------------------------------------------------------------------------- init container


def _init_container(
    container: Manifest, users_environment: list[Manifest], spec: Manifest, package: str, package_image: str
) -> Manifest:
    """Copies the package. It asks for what the training container asks for: the pod needs no more for it, and stays in its
    quality-of-service class and within the quotas of its namespace."""
    init: Manifest = {
        "name": INIT_CONTAINER,
        "image": package_image,
        "command": ["python", "-m", "deeprec_ext.inject", TARGET],
        "resources": {
            kind: {name: amount for name, amount in amounts.items() if name in _OWN_RESOURCES}
            for kind, amounts in (container.get("resources") or {}).items() if kind in ("requests", "limits")
        },
        "securityContext": container_context(runAsUser=_user(container, spec)),
        "volumeMounts": [{"name": VOLUME, "mountPath": TARGET}],
    }  # fmt: skip
    if package == "image":
        # As the training container sees the world: its Python or the package may come from a mounted volume.
        mounts = [mount for mount in container.get("volumeMounts") or [] if mount["mountPath"] not in _OUR_MOUNTS]
        as_the_users: Manifest = {
            "image": container["image"],
            "command": [python_of(container), "-m", "deeprec_ext.inject", TARGET, "--keep-python-path"],
            "env": users_environment,
            "volumeMounts": [*mounts, *init["volumeMounts"]],
            **{key: container[key] for key in ("envFrom", "imagePullPolicy") if key in container},
        }
        init.update(as_the_users)
    return init


def _user(container: Manifest, spec: Manifest) -> int:
    """The training container's, unless that is root or left to the image: this one need not be root."""
    for context in (container.get("securityContext") or {}, spec.get("securityContext") or {}):
        if context.get("runAsUser") is not None:
            return context["runAsUser"] or USER
    return USER


# ------------------------------------------------------------------------------------------------ resources and place


def _set_resources(container: Manifest, resources: Mapping[str, str]) -> None:
    found = container.get("resources") or {}
    changed = {kind: {**(found.get(kind) or {}), **resources} for kind in ("requests", "limits")}
    container["resources"] = {**found, **changed}


def _apart(affinity: Manifest, job: str) -> Manifest:
    """Rather not two PS of the job on one node: a PS and the one that keeps its backup should not die together."""
    labels = {JOB_LABEL: job, TYPE_LABEL: PS.lower()}
    term = {
        "weight": 100,
        "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}},
    }
    anti = affinity.get("podAntiAffinity") or {}
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    preferred = [other for other in anti.get(field) or [] if other != term]
    return {**affinity, "podAntiAffinity": {**anti, field: [*preferred, term]}}
