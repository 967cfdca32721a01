"""What there is of one job in a cluster, for whoever asks by its name: the TFJob, or what stands for it, and its pods."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deeprec_ext.errors import UsageError
from tfjob.api.client import Api, ForbiddenError, NotFoundError
from tfjob.model import conditions, names
from tfjob.model.kinds import CONFIG_MAPS, EVENTS, PODS, TFJOBS, Manifest
from tfjob.model.spec import TFJob


@dataclass(frozen=True)
class Found:
    """A job that need not be valid. `manifest`: of the TFJob; without an operator as the ConfigMap has it, with its uid."""

    manifest: Manifest
    operator: bool = True

    @property
    def job(self) -> TFJob:
        """Raises InvalidError."""
        return TFJob.parse(self.manifest)

    @property
    def namespace(self) -> str:
        return str(self.manifest["metadata"].get("namespace"))

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.manifest["metadata"].get("uid"))

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.manifest["metadata"].get("annotations") or {}

    @property
    def elastic(self) -> bool:
        """Whether it has an AIMaster, or is to have one."""
        enabled = self.annotations.get(f"{names.ANNOTATION_PREFIX}enabled", "")
        return names.STARTED_WITH_ANNOTATION in self.annotations or enabled.strip().lower() == "true"

    @property
    def finished(self) -> bool:
        """As the conditions say; a job without an operator has none."""
        return conditions.is_finished(self.manifest.get("status") or {})


async def find(api: Api, namespace: str, name: str) -> Found:
    """Raises UsageError when there is no such job, ApiError, UnreachableError."""
    try:
        return Found(await api.get(TFJOBS, namespace, name))
    except (NotFoundError, ForbiddenError) as error:
        refused = error
    try:
        found = await api.get(CONFIG_MAPS, namespace, names.config_map_name(name))
    except (NotFoundError, ForbiddenError):
        if isinstance(refused, ForbiddenError):
            raise refused from None
        raise UsageError(
            f"there is no TFJob {name} in namespace {namespace}, and no ConfigMap {names.config_map_name(name)} of a job "
            "without an operator"
        ) from None
    return Found(written(found, namespace), operator=False)


def written(config_map: Manifest, namespace: str) -> Manifest:
    """The TFJob in the ConfigMap of a job without an operator. Raises UsageError."""
    metadata = config_map["metadata"]
    try:
        manifest: Manifest = json.loads((config_map.get("data") or {})[names.CONFIG_MAP_KEY])
        manifest["metadata"].update(namespace=namespace, uid=metadata["uid"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(
            f"ConfigMap {metadata['name']} has no TFJob under {names.CONFIG_MAP_KEY}: {error!r}"
        ) from error
    return manifest


async def pods_of(api: Api, namespace: str, name: str) -> list[Manifest]:
    """All of the job, the AIMaster's among them, by name. Raises ApiError, UnreachableError."""
    found, _ = await api.list_all(PODS, namespace, labels=f"{names.JOB_LABEL}={name}")
    return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))


async def events_of(api: Api, namespace: str, found: Found) -> list[Manifest]:
    """Events of the job, oldest first. Raises ApiError, UnreachableError."""
    about = found.name if found.operator else names.config_map_name(found.name)
    listed, _ = await api.list_all(EVENTS, namespace, fields=f"involvedObject.name={about}")
    ours = [one for one in listed if (one.get("involvedObject") or {}).get("uid") in ("", None, found.uid)]
    return sorted(ours, key=when)


def when(event: Manifest) -> str:
    """The last time it happened."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


async def aimaster_pod(api: Api, namespace: str, name: str) -> Manifest | None:
    """Raises ApiError, UnreachableError."""
    try:
        return await api.get(PODS, namespace, names.aimaster_name(name))
    except NotFoundError:
        return None


def is_running(pod: Manifest | None, container: str = names.AIMASTER_CONTAINER) -> bool:
    """Whether a command can be run in it."""
    if pod is None or pod["metadata"].get("deletionTimestamp"):
        return False
    return any(one.get("name") == container and "running" in (one.get("state") or {}) for one in _containers(pod))


def why_not_running(pod: Manifest | None) -> str:
    """For people: `Pending, ErrImagePull: …`."""
    if pod is None:
        return "there is no such pod"
    if pod["metadata"].get("deletionTimestamp"):
        return "it is being deleted"
    status = pod.get("status") or {}
    for one in _containers(pod):
        for state, about in (one.get("state") or {}).items():
            if state != "running" and about and about.get("reason") not in ("ContainerCreating", "PodInitializing"):
                text = f"{about.get('reason') or state}" + (f": {about['message']}" if about.get("message") else "")
                return f"{status.get('phase', 'Pending')}, {text.strip()}"
    for one in status.get("conditions") or []:
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            return f"{status.get('phase', 'Pending')}, {one.get('message') or one.get('reason')}"
    return str(status.get("message") or status.get("reason") or status.get("phase") or "Pending")


def _containers(pod: Manifest) -> Sequence[Manifest]:
    status = pod.get("status") or {}
    found: list[Manifest] = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    return [one for one in found if ((one.get("state") or {}).get("terminated") or {}).get("reason") != "Completed"]


async def has_crd(api: Api) -> bool:
    """Whether the server knows TFJobs. Raises ApiError, UnreachableError."""
    try:
        found = await api.request("GET", f"/apis/{names.API_VERSION}")
    except NotFoundError:
        return False
    return any(one.get("name") == names.PLURAL for one in found.get("resources") or [])
