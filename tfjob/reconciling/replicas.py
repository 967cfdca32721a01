"""Which pods and services a running job has to get, and which have to go: what is missing is created, what is beyond
`replicas` is deleted, and what failed and may be restarted is deleted, to be created anew once its name is free.

A pod or service of the right name that belongs to somebody else is never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tfjob.model import names
from tfjob.model.conditions import RESTARTING, reason_of
from tfjob.model.events import Event
from tfjob.model.kinds import Manifest
from tfjob.model.spec import ReplicaSpec
from tfjob.pods import replica
from tfjob.pods.gang import foreign_scheduler
from tfjob.reconciling.actions import Actions, together
from tfjob.reconciling.limits import count_recreations
from tfjob.reconciling.observed import View, deleting, deletion, exit_code, index_of, name_of, owner_of, retryable

TAKEN_SECONDS = 30.0
"""How often to look whether a name has become free, besides being told."""
GOING_SECONDS = 2.0
"""The same for the leftovers of a job of the same name: the garbage collector is at them."""
EXITS_TOLD = 10
"""Of pods that failed at the same moment; the rest is the same again."""


def create_missing(view: View) -> Actions:
    """Services first: a pod that starts looks for the names of the others."""
    parts: list[Actions] = []
    have_pods = {name_of(pod) for pod in view.pods}
    have_services = {name_of(service) for service in view.services}
    for type_, spec in view.job.specs.items():
        made = 0
        for index in range(spec.replicas):
            name = names.pod_name(view.job.name, type_, index)
            if name in view.taken_services:
                parts.append(_blocked(view, "service", view.taken_services[name]))
            elif name not in have_services:
                parts.append(Actions(create_services=(replica.service(view.job, type_, index),)))
            if name in view.taken_pods:
                parts.append(_blocked(view, "pod", view.taken_pods[name]))
            elif name not in have_pods:
                parts.append(Actions(create_pods=(_pod(view, type_, index),)))
                made += 1
        if made:
            parts.append(Actions(events=_warnings(view, spec)))
    return together(parts)


def delete_surplus(view: View) -> Actions:
    """Indices that `replicas` does not reach."""
    actions = Actions()
    for spec in view.job.specs.values():
        actions += Actions(
            delete_pods=tuple(map(deletion, _surplus(view.pods, spec))),
            delete_services=tuple(map(deletion, _surplus(view.services, spec))),
        )
    return actions


def _surplus(manifests: Iterable[Manifest], spec: ReplicaSpec) -> Iterator[Manifest]:
    for manifest in manifests:
        index = index_of(manifest, spec.type)
        if index is not None and index >= spec.replicas and not deleting(manifest):
            yield manifest


def restart_failed(view: View) -> Actions:
    """Pods that failed and whose policy lets them be made again."""
    job, actions = view.job, Actions()
    for spec in job.specs.values():
        failed = [
            pod for index, pod in view.replicas(spec)
            if index < spec.replicas and retryable(pod, spec) and not deleting(pod)
        ]  # fmt: skip
        if failed:
            message = f"job {job.name} is restarting because {spec.type} replica(s) failed."
            events = (*exit_events(failed), Event("Warning", reason_of(RESTARTING), message))
            actions += Actions(delete_pods=tuple(map(deletion, failed)), events=events)
    noted = count_recreations(job, [one.uid for one in actions.delete_pods], [deletion(pod).uid for pod in view.pods])
    return actions if noted is None else Actions(annotations=((names.RESTARTS_ANNOTATION, noted),)) + actions


def exit_events(failed: Sequence[Manifest]) -> tuple[Event, ...]:
    """How the first of them ended, where that is known."""
    found = []
    for pod in failed[:EXITS_TOLD]:
        code = exit_code(pod)
        if code is not None:
            message = f"Pod: {pod['metadata'].get('namespace')}.{name_of(pod)} exited with code {code}"
            found.append(Event("Normal", "ExitedWithCode", message))
    return tuple(found)


def _pod(view: View, type_: str, index: int) -> Manifest:
    return replica.pod(view.job, type_, index, domain=view.cluster.domain, scheduler=view.cluster.scheduler)


def _blocked(view: View, kind: str, manifest: Manifest) -> Actions:
    """What to do where the name is taken."""
    owner = owner_of(manifest)
    if deleting(manifest) or (owner.get("kind"), owner.get("name")) == (names.KIND, view.job.name):
        return Actions(again_seconds=GOING_SECONDS)
    holder = f"belongs to {owner['kind']} {owner['name']}" if owner else "belongs to nobody"
    message = f"{kind} {name_of(manifest)} {holder} and is in the way; delete it, or call the job otherwise"
    return Actions(events=(Event("Warning", "NameTaken", message),), again_seconds=TAKEN_SECONDS)


def _warnings(view: View, spec: ReplicaSpec) -> tuple[Event, ...]:
    """What of the template is overwritten or left out, told when pods are made of it."""
    found = []
    if spec.template["spec"].get("restartPolicy"):
        message = "Restart policy in pod template will be overwritten by restart policy in replica spec"
        found.append(Event("Warning", "SetPodTemplateRestartPolicy", message))
    if view.cluster.scheduler and foreign_scheduler(view.job, view.cluster.scheduler):
        message = "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"
        found.append(Event("Warning", "SetPodTemplateSchedulerName", message))
    return tuple(found)
