"""Beside Kubeflow's training operator: what becomes of an annotated TFJob when it is created.

Kubeflow makes the pods, all replicas of a type from one template. So the template gets what an elastic pod gets (`injection`),
and which replica a pod is says its label. Pure; `operator.webhook` serves it. Doing it twice is the same as once.

Restart policies become OnFailure: a process that failed is started again in its pod, and one that has left by exiting 0 stays
away. `Never` would not bring back the first, `Always` would bring back the second. (`ExitCode` does both in its own way.)
"""

from __future__ import annotations

import base64
import copy
import json
from dataclasses import dataclass
from typing import Any

from tfjob.model import names
from tfjob.model.annotations import OURS, SIZES_OF_PODS, Elastic, started_with
from tfjob.model.annotations import parse as parse_annotations
from tfjob.model.kinds import Manifest
from tfjob.model.spec import InvalidError, TFJob, check_manager
from tfjob.model.templates import check as check_templates
from tfjob.pods import injection

ENABLED = f"{names.ANNOTATION_PREFIX}enabled"
CHANGED_POLICIES = ("Never", "Always")

LEAVE_SECONDS = 40
"""How long a PS goes on before it is told to end, when `replicas` is lowered by hand: Kubeflow deletes its pod at once, and its
slots have to move first. It exits as soon as they have. Less than `injection.PS_GRACE_SECONDS`."""


@dataclass(frozen=True)
class Admitted:
    job: Manifest
    warnings: tuple[str, ...] = ()


def admit(manifest: Manifest, namespace: str, *, package_image: str, domain: str = "") -> Admitted:
    """The TFJob as it is to be created; one that is not annotated stays as it is, whatever it contains.

    Args:
        namespace: of the request; the manifest need not say it.
        package_image, domain: see `injection.elastic_pod`.

    Raises InvalidError for an annotated job that cannot be elastic.
    """
    metadata = manifest.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(annotations, dict) or ENABLED not in annotations:
        return Admitted(manifest)
    check_manager(manifest)
    check_templates(manifest)
    metadata = {**metadata, "namespace": namespace}
    if not metadata.get("name"):
        text = "an elastic job has to have one: its pods are told it before the server has made one up (generateName)"
        raise InvalidError("metadata.name", text)
    ours = {names.ANNOTATION_PREFIX + key for key in OURS}  # of another job, from whose manifest this one was copied
    metadata["annotations"] = {key: value for key, value in metadata["annotations"].items() if key not in ours}
    job = TFJob.parse({**manifest, "metadata": metadata})
    elastic, warnings = parse_annotations(job)
    if elastic is None:
        return Admitted(manifest, warnings)
    specs, policies = {}, _noted(manifest) if is_injected(job) else {}
    for key, spec in manifest["spec"]["tfReplicaSpecs"].items():
        type_ = next(name for name in names.TYPES if name.lower() == key.lower())
        specs[key] = {**spec, "template": _template(job, elastic, type_, package_image, domain)}
        policy = job.specs[type_].restart_policy
        if policy in CHANGED_POLICIES:
            specs[key]["restartPolicy"], policies[type_] = "OnFailure", policy
    annotations = {**metadata["annotations"], names.STARTED_WITH_ANNOTATION: started_with(job)}
    if policies:
        annotations[names.RESTART_POLICIES_ANNOTATION] = json.dumps(policies)
    made = {
        **manifest, "metadata": {**manifest["metadata"], "annotations": annotations},
        "spec": {**manifest["spec"], "tfReplicaSpecs": specs},
    }  # fmt: skip
    return Admitted(made, (*warnings, *_useless(metadata["annotations"])))


def is_injected(job: TFJob) -> bool:
    """Whether its pods will be elastic ones: it was admitted here."""
    templates = [spec.template["spec"] for spec in job.specs.values()]
    inits = [{one.get("name") for one in spec.get("initContainers") or []} for spec in templates]
    return all(injection.INIT_CONTAINER in found for found in inits)


def policies_told(job: TFJob) -> str:
    """What has become of the restart policies, for people; empty: nothing."""
    noted = _noted({"metadata": {"annotations": job.annotations}})
    changed = ", ".join(f"{type_} ({policy})" for type_, policy in sorted(noted.items()))
    return f"restartPolicy is OnFailure instead of what was written for {changed}: {WHY}" if changed else ""


WHY = "an elastic job starts failed processes again, and those that have left stay away"


def _template(job: TFJob, elastic: Elastic, type_: str, package_image: str, domain: str) -> Manifest:
    template: Manifest = copy.deepcopy(dict(job.specs[type_].template))
    policy = template["spec"].get("restartPolicy")
    pod = injection.elastic_pod(
        {"metadata": {**(template.get("metadata") or {}), "name": f"{job.name}-{type_.lower()}"}, "spec": template["spec"]},
        job=job.name, namespace=job.namespace, role="chief" if type_ == job.chief else type_.lower(), index=None,
        slots=elastic.slots, package=elastic.package, package_image=package_image, evaluator=elastic.evaluator,
        chief=(job.chief or names.WORKER).lower(), layout=elastic.layout, cluster_domain=domain,
    )  # fmt: skip
    container = injection.training_container(pod)
    container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    if type_ == names.PS:
        container["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", str(LEAVE_SECONDS)]}},
                                  **(container.get("lifecycle") or {})}  # fmt: skip
    del pod["spec"]["restartPolicy"], pod["metadata"]["name"]  # both are Kubeflow's to say
    if policy:
        pod["spec"]["restartPolicy"] = policy
    return {**template, "metadata": pod["metadata"], "spec": pod["spec"]}


def _noted(manifest: Manifest) -> dict[str, str]:
    try:
        text = (manifest["metadata"].get("annotations") or {}).get(names.RESTART_POLICIES_ANNOTATION)
        return {str(type_): str(policy) for type_, policy in json.loads(text or "{}").items()}
    except (ValueError, AttributeError, TypeError):
        return {}


def _useless(annotations: dict[str, Any]) -> tuple[str, ...]:
    given = [names.ANNOTATION_PREFIX + key for key in SIZES_OF_PODS if names.ANNOTATION_PREFIX + key in annotations]
    why = "does nothing beside Kubeflow, where all pods of a type have one template"
    return tuple(f"annotation {key} {why}" for key in given)


# ---------------------------------------------------------------------------------------------------- AdmissionReview


def review(request: Manifest, admitted: Admitted | InvalidError) -> Manifest:
    """The answer to an AdmissionReview (v1) with this `request`."""
    answer: Manifest = {"uid": request["uid"], "allowed": True}
    if isinstance(admitted, InvalidError):
        status = {"code": 422, "reason": "Invalid", "message": str(admitted)}
        answer = {**answer, "allowed": False, "status": status}
    else:
        if admitted.warnings:
            answer["warnings"] = list(admitted.warnings)
        patch = json_patch(request["object"], admitted.job)
        if patch:
            answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}


def json_patch(before: Manifest, after: Manifest) -> list[Manifest]:
    """RFC 6902, of the two parts that are changed."""
    if before == after:
        return []
    found = []
    for path in (("metadata", "annotations"), ("spec", "tfReplicaSpecs")):
        value = after[path[0]].get(path[1])
        if before[path[0]].get(path[1]) != value:
            found.append({"op": "add", "path": "/" + "/".join(path), "value": value})
    return found
