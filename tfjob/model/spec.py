"""A TFJob as facts: parsed from its manifest, checked, defaults filled in. The manifest itself is never changed.

An `InvalidError` names the field as the user wrote it: `spec.tfReplicaSpecs.worker.replicas`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deeprec_ext.errors import UsageError
from tfjob.model import names
from tfjob.model.kinds import Manifest

RESTART_POLICIES = ("Never", "OnFailure", "Always", "ExitCode")
CLEAN_POD_POLICIES = ("None", "Running", "All")
SUCCESS_POLICIES = ("", "AllWorkers")
OURS, MULTIKUEUE = "kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"
MANAGERS = (OURS, MULTIKUEUE)
"""What a new job may say; one that says something else is left alone all the same."""

REPLICAS_MAX = 10_000
"""Of one type. A TF_CONFIG with more addresses than that is too large for a pod's manifest."""


class InvalidError(UsageError):
    """A TFJob that cannot be run: which field is wrong, and what it has to be."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field, self.message = field, message


@dataclass(frozen=True)
class ReplicaSpec:
    """One entry of `tfReplicaSpecs`. `path` is where the user wrote it."""

    type: str
    replicas: int
    restart_policy: str
    template: Manifest
    path: str
    ports: tuple[Manifest, ...]
    """Named ports of the container `tensorflow`, `tfjob-port` among them."""

    @property
    def port(self) -> int:
        """Where the others reach it."""
        return next(int(port["containerPort"]) for port in self.ports if port["name"] == names.PORT_NAME)

    @property
    def restarts(self) -> bool:
        """Whether a replica that failed may be started again at all."""
        return self.restart_policy != "Never"


@dataclass(frozen=True)
class SchedulingPolicy:
    """What the gang's PodGroup is made of; None, empty: not said."""

    min_available: int | None = None
    queue: str = ""
    min_resources: Mapping[str, Any] | None = None
    priority_class: str = ""
    schedule_timeout_seconds: int | None = None


@dataclass(frozen=True)
class RunPolicy:
    """How long the job may take, and what is left of it. None: no limit."""

    clean_pod_policy: str = "None"
    ttl_seconds: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    suspend: bool = False
    managed_by: str | None = None
    """None: not said. Any other text than ours names another controller, the empty one included."""

    scheduling: SchedulingPolicy = field(default_factory=SchedulingPolicy)


@dataclass(frozen=True)
class TFJob:
    """One job. `specs` has the types that the job names, in the order of `names.TYPES`."""

    namespace: str
    name: str
    uid: str
    generation: int
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    status: Manifest
    specs: Mapping[str, ReplicaSpec]
    run_policy: RunPolicy
    success_policy: str
    dynamic_worker: bool

    @property
    def chief(self) -> str:
        """`Chief`, `Master`, or empty where worker 0 stands for it."""
        return next((type_ for type_ in (names.CHIEF, names.MASTER) if type_ in self.specs), "")

    @property
    def ours(self) -> bool:
        """False: another controller (MultiKueue) has been told to run it."""
        return self.run_policy.managed_by in (None, OURS)

    def replicas(self, type_: str) -> int:
        """How many the spec asks for; 0 of a type that it does not name."""
        return self.specs[type_].replicas if type_ in self.specs else 0

    @property
    def total(self) -> int:
        return sum(spec.replicas for spec in self.specs.values())

    @property
    def owner_reference(self) -> Manifest:
        """Of everything that is made for the job."""
        return {
            "apiVersion": names.API_VERSION, "kind": names.KIND, "name": self.name, "uid": self.uid,
            "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip

    @classmethod
    def parse(cls, manifest: Manifest) -> TFJob:
        """Raises InvalidError."""
        metadata = _object(manifest, "metadata", "")
        name = str(metadata.get("name") or "")
        if not names.is_dns_1035(name):
            raise InvalidError(
                "metadata.name", f"{name!r} is no DNS-1035 label: lower case letters, digits and '-', a letter first,"
                f" at most {names.NAME_MAX} characters",
            )  # fmt: skip
        spec = _object(manifest, "spec", "")
        return cls(
            namespace=str(metadata.get("namespace") or "default"), name=name, uid=str(metadata.get("uid") or ""),
            generation=_whole(metadata, "generation", "metadata", least=0) or 0,
            annotations=dict(_object(metadata, "annotations", "metadata")),
            labels=dict(_object(metadata, "labels", "metadata")), status=dict(_object(manifest, "status", "")),
            specs=_replica_specs(name, spec),
            run_policy=_run_policy(_object(spec, "runPolicy", "spec")),
            success_policy=_choice(spec, "successPolicy", "spec", SUCCESS_POLICIES, ""),
            dynamic_worker=_boolean(spec, "enableDynamicWorker", "spec"),
        )  # fmt: skip


MANAGED_BY = "spec.runPolicy.managedBy"


def check_manager(manifest: Manifest) -> None:
    """For admission. Raises InvalidError where a new job names a controller that there is not."""
    found = manager_of(manifest)
    if found is not None and found not in MANAGERS:
        raise InvalidError(MANAGED_BY, f"is {found!r}; write {' or '.join(MANAGERS)}, or leave it out")


def check_update(old: Manifest, new: Manifest) -> None:
    """For admission. Raises InvalidError where a field has changed that must not."""
    if manager_of(old) != manager_of(new):
        raise InvalidError(MANAGED_BY, IMMUTABLE)


IMMUTABLE = "is immutable; delete the job and submit it anew"


def manager_of(manifest: Manifest) -> str | None:
    """Of a job that need not be valid; None: it does not say."""
    found: Any = manifest
    for key in ("spec", "runPolicy", "managedBy"):
        found = found.get(key) if isinstance(found, dict) else None
    return None if found is None else str(found)


# ---------------------------------------------------------------------------------------------------- replicas


_LIKE = 0.7
"""How much a key has to be like another (`difflib`) to be taken for a slip."""


def _replica_specs(job: str, spec: Manifest) -> dict[str, ReplicaSpec]:
    where = "spec.tfReplicaSpecs"
    found: dict[str, ReplicaSpec] = {}
    types = {type_.lower(): type_ for type_ in names.TYPES}
    for key, value in _object(spec, "tfReplicaSpecs", "spec").items():
        type_ = types.get(key.lower())
        if type_ is None:
            raise InvalidError(f"{where}.{key}", f"no such replica type; there are {', '.join(names.TYPES)}")
        if type_ in found:
            raise InvalidError(f"{where}.{key}", f"{type_} is there twice; upper and lower case are the same")
        if not isinstance(value, dict):
            raise InvalidError(f"{where}.{key}", "must be an object with replicas, restartPolicy and template")
        found[type_] = _replica_spec(job, type_, value, f"{where}.{key}")
    if not found:
        near = difflib.get_close_matches("tfReplicaSpecs", map(str, spec), n=1, cutoff=_LIKE)
        hint = f"; is spec.{near[0]} meant to be it?" if near and near[0] != "tfReplicaSpecs" else ""
        raise InvalidError(where, "is required: at least one of " + ", ".join(names.TYPES) + hint)
    if names.CHIEF in found and names.MASTER in found:
        raise InvalidError(found[names.MASTER].path, "a job has a Chief or a Master, not both; leave one of them out")
    return {type_: found[type_] for type_ in names.TYPES if type_ in found}


def _replica_spec(job: str, type_: str, value: Manifest, path: str) -> ReplicaSpec:
    replicas = _whole(value, "replicas", path, least=0)
    replicas = 1 if replicas is None else replicas
    if replicas > REPLICAS_MAX:
        raise InvalidError(f"{path}.replicas", f"is {replicas}; must be {REPLICAS_MAX} or less")
    if type_ in (names.CHIEF, names.MASTER) and replicas != 1:
        raise InvalidError(f"{path}.replicas", f"is {replicas}; a job has 1 {type_}")
    longest = names.pod_name(job, type_, replicas - 1) if replicas else ""
    if len(longest) > names.NAME_MAX:
        raise InvalidError(
            "metadata.name", f"{job!r} is too long: the pod {longest} would have {len(longest)} characters,"
            f" and a service has at most {names.NAME_MAX}",
        )  # fmt: skip
    template = _object(value, "template", path)
    return ReplicaSpec(
        type=type_, replicas=replicas, template=template, path=path,
        restart_policy=_choice(value, "restartPolicy", path, RESTART_POLICIES, "Never"),
        ports=_ports(*_container(template, f"{path}.template")),
    )  # fmt: skip


def _container(template: Manifest, path: str) -> tuple[Manifest, str]:
    """The container `tensorflow`, and its path. Every container is checked for what we build on."""
    metadata = _object(template, "metadata", path)
    for key in ("labels", "annotations"):
        _object(metadata, key, f"{path}.metadata")
    where = f"{path}.spec.containers"
    containers = _list(_object(template, "spec", path), "containers", f"{path}.spec")
    for index, container in enumerate(containers):
        if not container.get("image"):
            raise InvalidError(f"{where}[{index}].image", "is required")
        _list(container, "env", f"{where}[{index}]")
    for index, container in enumerate(containers):
        if container.get("name") == names.CONTAINER:
            return container, f"{where}[{index}]"
    raise InvalidError(where, f"there must be a container with the name {names.CONTAINER}: it is the one that trains")


def _ports(container: Manifest, path: str) -> tuple[Manifest, ...]:
    found: list[Manifest] = []
    for index, port in enumerate(_list(container, "ports", path)):
        where = f"{path}.ports[{index}]"
        number = port.get("containerPort")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 65536:
            raise InvalidError(f"{where}.containerPort", f"is {number!r}; must be a number from 1 to 65535")
        if port.get("name"):
            if any(other["name"] == port["name"] for other in found):
                raise InvalidError(f"{where}.name", f"{port['name']} is there twice")
            found.append(port)
    if not any(port["name"] == names.PORT_NAME for port in found):
        found.append({"name": names.PORT_NAME, "containerPort": names.PORT})
    taken: dict[tuple[int, str], str] = {}
    for port in found:
        other = taken.setdefault((port["containerPort"], port.get("protocol") or "TCP"), port["name"])
        if other != port["name"]:
            raise InvalidError(
                f"{path}.ports", f"{other} and {port['name']} are both {port['containerPort']}, which no service can"
                f" have; if TensorFlow listens there, call that port {names.PORT_NAME}",
            )  # fmt: skip
    return tuple(found)


# ---------------------------------------------------------------------------------------------------- run policy


def _run_policy(value: Manifest) -> RunPolicy:
    path = "spec.runPolicy"
    return RunPolicy(
        clean_pod_policy=_choice(value, "cleanPodPolicy", path, CLEAN_POD_POLICIES, "None"),
        ttl_seconds=_whole(value, "ttlSecondsAfterFinished", path, least=0),
        active_deadline_seconds=_whole(value, "activeDeadlineSeconds", path, least=0),
        backoff_limit=_whole(value, "backoffLimit", path, least=0),
        suspend=_boolean(value, "suspend", path), managed_by=manager_of({"spec": {"runPolicy": value}}),
        scheduling=_scheduling(_object(value, "schedulingPolicy", path)),
    )  # fmt: skip


def _scheduling(value: Manifest) -> SchedulingPolicy:
    path = "spec.runPolicy.schedulingPolicy"
    return SchedulingPolicy(
        min_available=_whole(value, "minAvailable", path, least=0), queue=str(value.get("queue") or ""),
        min_resources=_object(value, "minResources", path) or None,
        priority_class=str(value.get("priorityClass") or ""),
        schedule_timeout_seconds=_whole(value, "scheduleTimeoutSeconds", path, least=0),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- values


def _path(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _object(value: Manifest, key: str, path: str) -> Manifest:
    found = value.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidError(_path(path, key), "must be an object")
    return found


def _list(value: Manifest, key: str, path: str) -> list[Manifest]:
    found = value.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise InvalidError(_path(path, key), "must be a list of objects")
    return found


def _whole(value: Manifest, key: str, path: str, *, least: int) -> int | None:
    found = value.get(key)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or found < least:
        raise InvalidError(_path(path, key), f"is {found!r}; must be a whole number, {least} or more")
    return found


def _boolean(value: Manifest, key: str, path: str) -> bool:
    found = value.get(key)
    if found is None:
        return False
    if not isinstance(found, bool):
        raise InvalidError(_path(path, key), f"is {found!r}; must be true or false")
    return found


def _choice(value: Manifest, key: str, path: str, choices: tuple[str, ...], default: str) -> str:
    found = value.get(key)
    if found is None or found == "":
        return default
    if found not in choices:
        raise InvalidError(_path(path, key), f"is {found!r}; write {', '.join(choice for choice in choices if choice)}")
    return str(found)
