"""Gang scheduling: all pods of a job are placed, or none. The job's PodGroup, and what a pod needs to belong to it.

Two schedulers: Volcano (the name `volcano`), or any other name, which is a scheduler with the coscheduling plugin of
scheduler-plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfjob.model import names
from tfjob.model.kinds import Manifest, Resource
from tfjob.model.quantities import add, parse_quantity
from tfjob.model.spec import InvalidError, ReplicaSpec, TFJob

VOLCANO = "volcano"
VOLCANO_GROUPS = Resource("podgroups", "v1beta1", "scheduling.volcano.sh")
PLUGIN_GROUPS = Resource("podgroups", "v1alpha1", "scheduling.x-k8s.io")

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
TASK_ANNOTATION = "volcano.sh/task-spec"
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Of another object than the PodGroup: the one annotation of the job that it does not get."""


def resource(scheduler: str) -> Resource:
    """Of the PodGroups of this scheduler."""
    return VOLCANO_GROUPS if scheduler == VOLCANO else PLUGIN_GROUPS


def enlist(pod: Manifest, job: TFJob, type_: str, scheduler: str) -> Manifest:
    """The pod as a member of the job's PodGroup; a scheduler that the user has named stays."""
    spec = {**pod["spec"], "schedulerName": pod["spec"].get("schedulerName") or scheduler}
    metadata = dict(pod["metadata"])
    if scheduler == VOLCANO:
        own = {GROUP_ANNOTATION: job.name, TASK_ANNOTATION: type_.lower()}
        metadata["annotations"] = {**metadata.get("annotations", {}), **own}
    else:
        metadata["labels"] = {**metadata.get("labels", {}), GROUP_LABEL: job.name}
    return {**pod, "metadata": metadata, "spec": spec}


def pod_group(
    job: TFJob, scheduler: str, members: Mapping[str, int] | None = None, priorities: Mapping[str, int] | None = None
) -> Manifest:
    """The PodGroup of the job. Raises InvalidError where a template requests what is no quantity.

    Args:
        members: how many pods of each type must be there together; None: all. The user's `minAvailable` has the first word.
        priorities: of PriorityClasses by name. Where not all pods are needed, those of the highest priority are counted.
    """
    policy, kind = job.run_policy.scheduling, resource(scheduler)
    if members is None or policy.min_available is not None:
        members = {type_: spec.replicas for type_, spec in job.specs.items()}
    count = sum(members.values()) if policy.min_available is None else policy.min_available
    least = dict(policy.min_resources) if policy.min_resources else _resources(job, members, count, priorities or {})
    spec: Manifest = {"minMember": count, "minResources": least}
    if scheduler == VOLCANO:
        spec["queue"] = policy.queue or "default"
        if policy.priority_class:
            spec["priorityClassName"] = policy.priority_class
    elif policy.schedule_timeout_seconds is not None:
        spec["scheduleTimeoutSeconds"] = policy.schedule_timeout_seconds
    return {
        "apiVersion": f"{kind.group}/{kind.version}", "kind": "PodGroup",
        "metadata": {
            "name": job.name, "namespace": job.namespace, "labels": names.job_labels(job.name),
            "annotations": {key: value for key, value in job.annotations.items() if key != LAST_APPLIED},
            "ownerReferences": [job.owner_reference],
        },
        "spec": spec,
    }  # fmt: skip


def differs(existing: Manifest, wanted: Manifest) -> bool:
    """Whether the PodGroup has to be written; what others have added does not count, nor a queue that it was moved to."""
    have = existing.get("spec") or {}
    return any(_plain(have.get(key)) != _plain(value) for key, value in wanted["spec"].items() if key != "queue")


def _plain(value: Any) -> Any:
    """Resources by their amounts: others write the same in another way."""
    if not isinstance(value, dict):
        return value
    try:
        return {name: parse_quantity(amount) for name, amount in value.items()}
    except ValueError:
        return value


def admitted(group: Manifest | None, scheduler: str) -> bool:
    """Whether pods may be created: Volcano wants them only once it has put the group in its queue."""
    if scheduler != VOLCANO:
        return True
    phase = ((group or {}).get("status") or {}).get("phase") or ""
    return phase not in ("", "Pending")


def priority_class(spec: ReplicaSpec) -> str:
    """That the pods of a type name; empty: none."""
    return str(spec.template["spec"].get("priorityClassName") or "")


def foreign_scheduler(job: TFJob, scheduler: str) -> bool:
    """Whether a template names another scheduler, which then does not know of the gang."""
    found = {spec.template["spec"].get("schedulerName") or scheduler for spec in job.specs.values()}
    return bool(found - {scheduler})


def _resources(job: TFJob, members: Mapping[str, int], count: int, priorities: Mapping[str, int]) -> dict[str, str]:
    """What the first `count` of these pods request together (where a container names only limits, they are its requests)."""
    found: list[dict[str, str]] = []
    for type_, spec in sorted(job.specs.items(), key=lambda item: -priorities.get(priority_class(item[1]), 0)):
        number = min(members.get(type_, 0), count)
        containers = [container.get("resources") or {} for container in spec.template["spec"]["containers"]]
        wanted = [one.get("limits") or {} if one.get("requests") is None else one["requests"] for one in containers]
        try:
            found += [add(wanted)] * number
        except ValueError as error:
            raise InvalidError(f"{spec.path}.template.spec.containers", f"resources: {error}") from None
        count -= number
    return add(found)
