"""A Kubernetes API server in memory: versions, conflicts, watches that fall behind, graceful deletion, a kubelet by hand."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

from deeprec_ext.errors import UnreachableError
from tfjob.api.client import ApiError, ConflictError, ExpiredError, ForbiddenError, NotFoundError
from tfjob.model.kinds import CONFIG_MAPS, EVENTS, PODS, SERVICES, Manifest, Resource
from tfjob.model.names import INDEX_LABEL, JOB_LABEL, TYPE_LABEL

OWNER = "uid-of-the-job"
NAMESPACE = "team"


class FakeApi:
    """Has the methods of tfjob.api.client.Api that the AIMaster uses."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Manifest] = {}
        self.calls: list[tuple[str, str, str]] = []  # verb, plural, name
        self.forbidden: set[tuple[str, str]] = set()  # verb, plural
        self.gone: set[str] = set()  # plurals of kinds that are no more
        self.unreachable = 0  # so many calls to come get no answer
        self.graces: dict[str, float | None] = {}
        self._versions, self._uids = itertools.count(1), itertools.count(1)
        self._log: list[tuple[int, str, str, Manifest]] = []  # version, plural, kind, object
        self._compacted = 0
        self._wake = asyncio.Event()
        self._broken = 0
        self.silent = False  # watches lag behind
        self.groups: dict[str, dict[str, list[str]]] = {}  # group → version → plurals: what discovery tells

    # ------------------------------------------------------------------------------------------------ the client's side

    def _enter(self, verb: str, resource: Resource, name: str = "") -> None:
        self.calls.append((verb, resource.plural, name))
        if self.unreachable:
            self.unreachable -= 1
            raise UnreachableError("the Kubernetes API does not answer")
        if resource.plural in self.gone:
            raise NotFoundError(404, "NotFound", "the server could not find the requested resource")
        if (verb, resource.plural) in self.forbidden:
            raise ForbiddenError(403, "Forbidden", f'User "aimaster" cannot {verb} resource "{resource.plural}"')

    def _object(self, resource: Resource, name: str) -> Manifest:
        try:
            return self.objects[resource.plural, name]
        except KeyError:
            raise NotFoundError(404, "NotFound", f"{resource.plural} {name} not found") from None

    async def request(self, method: str, path: str) -> Manifest:
        """Discovery alone."""
        _, _, group, version, *_ = [*path.split("/"), ""]
        self._enter("discover", Resource(group))
        versions = self.groups.get(group)
        if versions is None or (version and version not in versions):
            raise NotFoundError(404, "NotFound", "the server could not find the requested resource")
        if version:
            return {"kind": "APIResourceList", "resources": [{"name": name} for name in versions[version]]}
        return {"kind": "APIGroup", "versions": [{"version": name} for name in versions]}

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest:
        self._enter("get", resource, name)
        return copy.deepcopy(self._object(resource, name))

    async def list_all(
        self, resource: Resource, namespace: str | None, *, labels: str = "", fields: str = "",
        shrink: Callable[[Manifest], Any] | None = None,
    ) -> tuple[list[Any], str]:  # fmt: skip
        self._enter("list", resource)
        found = [copy.deepcopy(one) for (plural, _), one in self.objects.items()
                 if plural == resource.plural and _selected(one, labels, fields)]  # fmt: skip
        return [shrink(one) if shrink else one for one in found], str(self._log[-1][0] if self._log else 0)

    async def create(self, resource: Resource, namespace: str | None, body: Manifest) -> Manifest:
        name = body["metadata"].get("name") or f"{body['metadata']['generateName']}{len(self._log)}"
        self._enter("create", resource, name)
        if (resource.plural, name) in self.objects:
            raise ConflictError(409, "AlreadyExists", f"{resource.plural} {name} already exists")
        made = copy.deepcopy(body)
        made["metadata"].update(name=name, namespace=namespace, uid=f"u{next(self._uids)}")
        if resource is PODS:
            made.setdefault("status", {"phase": "Pending"})
        return self._store(resource, name, made, "ADDED")

    async def replace(
        self, resource: Resource, namespace: str | None, body: Manifest, subresource: str = ""
    ) -> Manifest:
        name = body["metadata"]["name"]
        self._enter("update", resource, name)
        before = self._object(resource, name)
        given = body["metadata"].get("resourceVersion")
        if given and given != before["metadata"]["resourceVersion"]:
            raise ConflictError(409, "Conflict", f"{resource.plural} {name} has been modified")
        after = copy.deepcopy(body)
        after["metadata"]["uid"] = before["metadata"]["uid"]
        return self._store(resource, name, after, "MODIFIED")

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Manifest, subresource: str = ""
    ) -> Manifest:
        self._enter("patch", resource, name)
        before = self._object(resource, name)
        given = (body.get("metadata") or {}).get("resourceVersion")
        if given and given != before["metadata"]["resourceVersion"]:
            raise ConflictError(409, "Conflict", f"{resource.plural} {name} has been modified")
        after = merged(before, body)
        return self._store(resource, name, after, "MODIFIED")

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, grace_seconds: float | None = None, uid: str = ""
    ) -> bool:
        self._enter("delete", resource, name)
        found = self.objects.get((resource.plural, name))
        if found is None or (uid and found["metadata"]["uid"] != uid):
            return False
        self.graces[name] = grace_seconds
        if resource is PODS and grace_seconds != 0 and found["status"].get("phase") == "Running":
            if "deletionTimestamp" not in found["metadata"]:
                self._store(resource, name, merged(found, {"metadata": {"deletionTimestamp": "now"}}), "MODIFIED")
            return True
        self._store(resource, name, found, "DELETED")
        return True

    async def watch(
        self, resource: Resource, namespace: str | None, version: str, *, labels: str = "", fields: str = ""
    ) -> AsyncIterator[tuple[str, Manifest]]:
        self._enter("watch", resource)
        at, broken = int(version), self._broken
        while True:
            if at < self._compacted:
                raise ExpiredError(410, "Expired", "too old resource version")
            if broken != self._broken:
                raise UnreachableError("the connection broke")
            self._wake.clear()
            for number, plural, kind, one in list(self._log) if not self.silent else ():
                if number > at:
                    at = number
                    if plural == resource.plural and _selected(one, labels, fields):
                        yield kind, copy.deepcopy(one)
            await self._wake.wait()

    # ------------------------------------------------------------------------------------------------ what happens there

    def _store(self, resource: Resource, name: str, one: Manifest, kind: str) -> Manifest:
        number = next(self._versions)
        one = copy.deepcopy(one)
        one["metadata"]["resourceVersion"] = str(number)
        if kind == "DELETED":
            del self.objects[resource.plural, name]
        else:
            self.objects[resource.plural, name] = one
        self._log.append((number, resource.plural, kind, copy.deepcopy(one)))
        self._wake.set()
        return copy.deepcopy(one)

    def put(self, resource: Resource, one: Manifest) -> None:
        """Somebody else makes it."""
        one = {**one, "metadata": {"uid": f"u{next(self._uids)}", **one["metadata"]}}
        self._store(resource, one["metadata"]["name"], one, "ADDED")

    def change(self, resource: Resource, name: str, changes: Manifest) -> None:
        """Somebody else patches it."""
        self._store(resource, name, merged(self._object(resource, name), changes), "MODIFIED")

    def vanish(self, resource: Resource, name: str) -> None:
        """Deleted by force, or at the end of its grace."""
        self._store(resource, name, self._object(resource, name), "DELETED")

    def speak(self) -> None:
        """Watches tell what they have kept to themselves."""
        self.silent = False
        self._wake.set()

    def break_watches(self) -> None:
        self._broken += 1
        self._wake.set()

    def compact(self) -> None:
        """Watches that break now have to list again."""
        self._compacted = next(self._versions)
        self._log.append((self._compacted, "", "", {"metadata": {}}))
        self.break_watches()

    def status(self, pod: str, status: Manifest) -> None:
        found = self._object(PODS, pod)
        self._store(PODS, pod, {**found, "status": status}, "MODIFIED")

    def run(self, pod: str, container: str = "c1", restarts: int = 0, last: Manifest | None = None) -> None:
        """The kubelet has started the container."""
        self.status(pod, status("Running", {"running": {}}, container, restarts, last))

    def exit(self, pod: str, code: int, container: str = "c1", restarts: int = 0, **ended: Any) -> None:
        """The container has ended; phase as the kubelet sets it for restartPolicy OnFailure."""
        phase = "Succeeded" if code == 0 else "Running"
        end = {"exitCode": code, "containerID": container, **ended}
        self.status(pod, status(phase, {"terminated": end}, container, restarts))

    def count(self, verb: str, resource: Resource) -> int:
        return sum(call[:2] == (verb, resource.plural) for call in self.calls)

    def names(self, resource: Resource) -> list[str]:
        return sorted(name for plural, name in self.objects if plural == resource.plural)

    def told(self) -> list[tuple[str, str, str]]:
        """(type, reason, message) of the Events."""
        found = [one for (plural, _), one in self.objects.items() if plural == EVENTS.plural]
        return [(one["type"], one["reason"], one["message"]) for one in found]


def status(phase: str, state: Manifest, container: str, restarts: int, last: Manifest | None = None) -> Manifest:
    one = {"name": "tensorflow", "state": state, "containerID": container, "restartCount": restarts}
    return {"phase": phase, "containerStatuses": [{**one, **({"lastState": {"terminated": last}} if last else {})}]}


def merged(before: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict) or not isinstance(before, dict):
        return copy.deepcopy(patch)
    after = copy.deepcopy(before)
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = merged(after.get(key, {}), value)
    return after


def _selected(one: Manifest, labels: str, fields: str) -> bool:
    metadata = one["metadata"]
    carried = metadata.get("labels") or {}
    terms = [pair.partition("=") for pair in labels.split(",")] if labels else []
    named = dict(pair.split("=") for pair in fields.split(",")) if fields else {}
    return all(carried.get(key) == value if equals else key in carried for key, equals, value in terms) and (
        "metadata.name" not in named or named["metadata.name"] == metadata["name"]
    )


def manifests(name: str, requests: Any = None) -> tuple[Manifest, Manifest]:
    """A factory for job `ctr` with a chief: a service and a pod."""
    role, _, index = name.rpartition("-")
    labels = {JOB_LABEL: "ctr", TYPE_LABEL: role, INDEX_LABEL: index}
    metadata = {"name": f"ctr-{name}", "labels": labels, "ownerReferences": [{"uid": OWNER}]}
    limits = dict(requests or {"cpu": "1", "memory": "1Gi"})
    container = {"name": "tensorflow", "resources": {"limits": limits}}
    return {"kind": "Service", "metadata": copy.deepcopy(metadata)}, {
        "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], "nodeName": "node-1"}
    }  # fmt: skip


__all__ = [
    "CONFIG_MAPS",
    "NAMESPACE",
    "OWNER",
    "PODS",
    "SERVICES",
    "ApiError",
    "FakeApi",
    "manifests",
    "merged",
    "status",
]
