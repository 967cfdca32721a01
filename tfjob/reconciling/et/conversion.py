"""A TrainingJob as a TFJob: equal pods without PS, each of which runs the script that the launcher would have started in it.

Pods are called as the ET operator calls them (`NAME-worker-0`, ...), worker 0 leads, and there is no launcher. What a pod is
comes from the worker's template: image, resources, volumes, place. From the launcher's container come the command, the
environment (Horovod's launcher hands its own on), and the directory.
"""

from __future__ import annotations

import copy
from typing import Any

from tfjob.model import names
from tfjob.model.annotations import OURS
from tfjob.model.annotations import parse as parse_annotations
from tfjob.model.kinds import Manifest
from tfjob.model.spec import REPLICAS_MAX, InvalidError, TFJob
from tfjob.model.templates import check as check_templates
from tfjob.reconciling.et import words
from tfjob.reconciling.et.command import Script, script_of

SPECS = "spec.etReplicaSpecs"
ENABLED = names.ANNOTATION_PREFIX + "enabled"
_POLICIES = {"": "Running", "Running": "Running", "All": "All", "None": "None"}
"""What is left of pods at the end. The ET operator deletes workers unless told otherwise, running or not; with us those that
have ended stay, with their logs, as long as it is not All."""


UNLIMITED = 1000
"""Workers of a job that says nothing of a most, as the ET operator has none; where the AIMaster decides, a TFJob's default."""


def converted(training_job: Manifest) -> Manifest:
    """The TFJob to be created. Raises InvalidError with the field of the TrainingJob that keeps it from being run."""
    spec = _object(training_job.get("spec"), "spec")
    specs = _object(spec.get("etReplicaSpecs"), SPECS)
    launcher, worker = (_object(specs.get(key), f"{SPECS}.{key}") for key in ("launcher", "worker"))
    slots = _count(spec, "slotsPerWorker", "spec") or 1
    if slots > 1:
        raise InvalidError("spec.slotsPerWorker", f"is {slots}: a pod has one process here; write 1, or more workers")
    leading = _container(launcher, f"{SPECS}.launcher")[0]
    script = script_of([str(word) for key in ("command", "args") for word in leading.get(key) or []])
    policy = spec.get("cleanPodPolicy") or ""
    if policy not in _POLICIES:
        raise InvalidError("spec.cleanPodPolicy", f"is {policy!r}; write None, Running or All")
    metadata = training_job["metadata"]
    suspended = wants_suspension(training_job)
    made: Manifest = {
        "apiVersion": names.API_VERSION, "kind": names.KIND,
        "metadata": {
            "name": metadata["name"], "namespace": metadata.get("namespace") or "default",
            "labels": dict(metadata.get("labels") or {}), "annotations": _annotations(training_job, worker, script),
            "ownerReferences": words.controller_of(training_job, words.TRAINING_JOB, words.API_VERSION),
        },
        "spec": {
            "runPolicy": {"cleanPodPolicy": _POLICIES[policy], **({"suspend": True} if suspended else {})},
            "tfReplicaSpecs": {names.WORKER: {
                "replicas": _sizes(worker, script)[0], "restartPolicy": "OnFailure",
                "template": _template(metadata["name"], worker, leading, script),
            }},
        },
    }  # fmt: skip
    _check(made)
    return made


def wants_suspension(training_job: Manifest) -> bool:
    annotations = training_job["metadata"].get("annotations") or {}
    return str(annotations.get(words.SUSPENDED_ANNOTATION, "")).strip().lower() == "true"


def is_left_alone(training_job: Manifest) -> bool:
    """Its user says that it is not for us."""
    annotations = training_job["metadata"].get("annotations") or {}
    return str(annotations.get(ENABLED, "")).strip().lower() == "false"


def _check(made: Manifest) -> None:
    """As the TFJob will be looked at. Raises InvalidError, in the words of the TrainingJob."""
    try:
        check_templates(made)
        parse_annotations(TFJob.parse(made))
    except InvalidError as error:
        field, message = (
            text.replace("spec.tfReplicaSpecs.Worker", f"{SPECS}.worker") for text in (error.field, error.message)
        )
        raise InvalidError(field, message) from None


def _sizes(worker: Manifest, script: Script) -> tuple[int, int, int | None]:
    """Workers to begin with, fewest and most. Raises InvalidError.

    Fewest, where nobody says it, is 1: the ET operator, too, takes a ScaleIn below `replicas` then.
    """
    path = f"{SPECS}.worker"
    replicas = _count(worker, "replicas", path) or 1
    least = _count(worker, "minReplicas", path) or script.least or 1
    most = _count(worker, "maxReplicas", path) or script.most
    if not least <= replicas <= (replicas if most is None else most):
        text = f"{least} or more" if most is None else f"from {least} to {most}"
        raise InvalidError(
            f"{path}.replicas", f"is {replicas}; must be {text} (minReplicas, maxReplicas, or the launcher's flags)"
        )
    return replicas, least, most


def _annotations(training_job: Manifest, worker: Manifest, script: Script) -> dict[str, str]:
    """What makes it elastic; the TrainingJob's own under our prefix are the user's choice and stand above."""
    replicas, least, most = _sizes(worker, script)
    prefix = names.ANNOTATION_PREFIX
    given = training_job["metadata"].get("annotations") or {}
    users = {
        key: str(value) for key, value in given.items() if key.startswith(prefix) and key[len(prefix) :] not in OURS
    }
    if most is None and users.get(f"{prefix}autoscale", "").strip().lower() != "true":
        most = max(UNLIMITED, replicas)
    return {
        f"{prefix}strategy": "allreduce", f"{prefix}min-workers": str(least),
        **({} if most is None else {f"{prefix}max-workers": str(most)}), **users, ENABLED: "true",
    }  # fmt: skip


def _template(name: str, worker: Manifest, leading: Manifest, script: Script) -> Manifest:
    """Of the pods. What is no object where one belongs is refused by `_check`, with its place."""
    container, template = _container(worker, f"{SPECS}.worker")
    container["name"] = names.CONTAINER
    container["command"] = list(script.command)
    container.pop("args", None)
    for key in ("env", "envFrom"):
        own = [one for one in container.get(key) or [] if isinstance(one, dict)]
        taken = {one.get("name") for one in own} if key == "env" else set()
        handed = [
            one for one in leading.get(key) or [] if isinstance(one, dict) and one.get("name") not in taken | {None}
        ]
        if key == "envFrom":
            handed = [one for one in leading.get(key) or [] if one not in own]
        if handed or own:
            container[key] = [*handed, *own]
    if script.environment:
        said = dict(script.environment)
        others = [one for one in container.get("env") or [] if one.get("name") not in said]
        container["env"] = [*others, *({"name": key, "value": value} for key, value in said.items())]
    if directory := script.directory or leading.get("workingDir"):
        container["workingDir"] = directory
    metadata = template.get("metadata") if isinstance(template.get("metadata"), dict) else {}
    labels = {
        **((metadata or {}).get("labels") or {}), "group-name": names.ET_GROUP, "training-job-name": name,
        names.ET_ROLE_LABEL: "worker",
    }  # fmt: skip
    template["metadata"] = {
        **{key: value for key, value in (metadata or {}).items() if key != "name"},
        "labels": labels,
    }
    template["spec"].pop("restartPolicy", None)
    return template


def _container(replica: Manifest, path: str) -> tuple[Manifest, Manifest]:
    """(container that trains, template) of a copy: the one named `tensorflow`, else the first. Raises InvalidError."""
    template = copy.deepcopy(_object(replica.get("template"), f"{path}.template"))
    spec = _object(template.get("spec"), f"{path}.template.spec")
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers or not all(isinstance(one, dict) for one in containers):
        raise InvalidError(f"{path}.template.spec.containers", "must be a list of containers, of one at least")
    found: Manifest = next((one for one in containers if one.get("name") == names.CONTAINER), containers[0])
    return found, template


def _object(value: Any, path: str) -> Manifest:
    if not isinstance(value, dict):
        raise InvalidError(path, "is required" if value is None else "must be an object")
    return value


def _count(value: Manifest, key: str, path: str) -> int | None:
    found = value.get(key)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= REPLICAS_MAX:
        raise InvalidError(f"{path}.{key}", f"is {found!r}; must be a whole number from 1 to {REPLICAS_MAX}")
    return found
