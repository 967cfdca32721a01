"""Pods and services of a job, made and removed at the API server: idempotent by name, and never somebody else's."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import datetime
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Optional, TypeVar

from deeprec_ext.aimaster.kubernetes.naming import Naming
from deeprec_ext.aimaster.kubernetes.reading import CONTAINER, read
from deeprec_ext.aimaster.pods.backend import TRY_SECONDS
from deeprec_ext.errors import DeepRecError, UnreachableError, UsageError
from deeprec_ext.retries import Sleep, retried
from tfjob.api.client import Api, ApiError, ConflictError, ForbiddenError, NotFoundError
from tfjob.model.events import MESSAGE_MAX, Event
from tfjob.model.kinds import EVENTS, PODS, SERVICES, Manifest, Resource

log = logging.getLogger(__name__)
T = TypeVar("T")

Factory = Callable[[str, Optional[Mapping[str, str]]], tuple[Manifest, Manifest]]
"""(the AIMaster's name, other requests than the template's: `{"cpu": "500m", "memory": "2147483648"}`) → service, pod."""

IN_THE_WAY_SECONDS, LOOK_SECONDS = 30.0, 0.5
"""How long a pod of the same name that is ending is waited for before it is removed by force, and how often it is looked at."""

SERVICE_SECONDS = 30.0
"""A service outlives its pod by so much: names that were not found are remembered by resolvers."""


TOLD_MAX = 1000


def may_change(error: Exception) -> bool:
    """Whether the server may answer otherwise a moment later."""
    return isinstance(error, UnreachableError) or (
        isinstance(error, ApiError) and (error.status >= 500 or error.status == 429)
    )


async def insist(what: str, call: Callable[[], Awaitable[T]], seconds: float, sleep: Sleep = asyncio.sleep) -> T:
    """Tries again while the server does not answer, for so long. Raises UnreachableError; what `call` refuses, it refuses."""
    try:
        return await retried(call, may_change, seconds, sleep=sleep)
    except (UnreachableError, ApiError) as error:
        rights = "; look at the rights of the AIMaster's service account, and at quotas"
        hint = rights if isinstance(error, ForbiddenError) else ""
        raise UnreachableError(f"the cluster did not {what}: {error}{hint}") from error


class Maker:
    """`owner_uid`: of the TFJob, which everything belongs to."""

    own_pods = True
    """Made here; else by somebody else, all of a role from one template (`replicas`)."""

    def __init__(
        self, api: Api, namespace: str, naming: Naming, factory: Factory, owner_uid: str, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._api, self._namespace, self._naming, self._factory = api, namespace, naming, factory
        self._owner, self._sleep = owner_uid, sleep
        self._refusals = Refusals(api, namespace)
        self.change: Callable[[Manifest], Manifest] = lambda pod: pod
        """What else is to be different in a pod that is made."""

    async def insist(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """Tries again while the server does not answer, for half a minute. Raises UnreachableError."""
        return await insist(what, call, TRY_SECONDS, self._sleep)

    def owns(self, found: Manifest) -> bool:
        """Whether it belongs to this job, and not to an earlier one of the same name, or to somebody else."""
        return any(one.get("uid") == self._owner for one in found["metadata"].get("ownerReferences") or [])

    async def pods(self) -> list[Manifest]:
        """All there are of this job."""
        found, _ = await self._api.list_all(PODS, self._namespace, labels=self._naming.selector)
        return [pod for pod in found if self.owns(pod)]

    async def make(
        self, name: str, requests: Mapping[str, str] | None, *, estimate: Mapping[str, str] | None = None, over: str = "",
        avoid: str = "",
    ) -> Manifest:  # fmt: skip
        """Service and pod; the pod as it is then: new, or the one of ours that had the name already and may keep it.

        Args:
          requests: None: as its template says.
          estimate: requested besides, where nothing else is.
          over: uid of a pod that may not keep the name.
          avoid: a node where it shall not run if there is another.

        Raises UsageError when others' are in the way, ApiError, UnreachableError.
        """
        service, pod = self._factory(name, requests)
        pod = self.change(pod)
        if avoid:
            pod = avoiding(pod, avoid)
        if estimate:
            pod = requesting(pod, estimate)
        await self._create(SERVICES, service, lambda found, force: self._may_stay(found))
        return await self._create(PODS, pod, lambda found, force: self._may_keep(found, over, force))

    async def _create(
        self, resource: Resource, body: Manifest, allow: Callable[[Manifest, bool], Awaitable[bool]]
    ) -> Manifest:
        """Until it is there: a new one, or the one that `allow` lets stay. What is others' may be about to go: bounded."""
        name, waited = body["metadata"]["name"], 0.0
        while True:
            try:
                return await self._api.create(resource, self._namespace, body)
            except ConflictError:
                pass
            except ApiError as error:
                if not may_change(error):
                    await self._refusals.tell(body, error)
                raise
            with contextlib.suppress(NotFoundError):
                found = await self._api.get(resource, self._namespace, name)
                late = waited >= IN_THE_WAY_SECONDS
                if late and not self.owns(found):
                    raise UsageError(
                        f"{name} exists in namespace {self._namespace} and does not belong to this job: delete it, or give "
                        "the job another name"
                    )
                if self.owns(found) and await allow(found, late):
                    return found
            await self._sleep(LOOK_SECONDS)
            waited += LOOK_SECONDS

    async def _may_stay(self, found: Manifest) -> bool:
        return not found["metadata"].get("deletionTimestamp")

    async def _may_keep(self, found: Manifest, over: str, force: bool) -> bool:
        """Whether the pod that has the name already may keep it; else it is on its way out afterwards."""
        seen = read(found)
        if not seen.terminating and not seen.finished and seen.uid != over:
            return True
        if force or not seen.terminating:
            grace = 0 if force or seen.finished else None
            name = found["metadata"]["name"]
            await self._api.delete(PODS, self._namespace, name, grace_seconds=grace, uid=seen.uid)
        return False

    async def delete(self, name: str, grace_seconds: float) -> bool:
        """Whether there was a pod. Raises UnreachableError."""
        pod, grace = self._naming.pod(name), math.ceil(max(0.0, grace_seconds))
        return await self.insist(
            f"delete {name}", lambda: self._api.delete(PODS, self._namespace, pod, grace_seconds=grace)
        )

    async def delete_this(self, name: str, uid: str) -> None:
        """Only this very pod, whose container has ended: at once. Raises ApiError, UnreachableError."""
        await self._api.delete(PODS, self._namespace, self._naming.pod(name), grace_seconds=0, uid=uid)

    async def give_up(self, name: str, uid: str) -> None:
        """This very pod must not start its container again. Raises ApiError, UnreachableError."""
        await self.delete_this(name, uid)

    async def forget_service(self, name: str) -> None:
        """After a while; cancelled when the name is wanted again."""
        await self._sleep(SERVICE_SECONDS)
        service = self._naming.pod(name)
        try:
            await self.insist(f"delete service {service}", lambda: self._api.delete(SERVICES, self._namespace, service))
        except UnreachableError as error:
            log.warning("service %s stays: %s", service, error)


def avoiding(pod: Manifest, node: str) -> Manifest:
    """The same pod, which prefers other nodes."""
    pod = copy.deepcopy(pod)
    affinity = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    others = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [node]}
    term = {"weight": 100, "preference": {"matchExpressions": [others]}}
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    affinity[field] = [*(affinity.get(field) or []), term]
    return pod


def requesting(pod: Manifest, amounts: Mapping[str, str]) -> Manifest:
    """The same pod, with a request of its training container for each amount that it neither requests nor is held to."""
    pod = copy.deepcopy(pod)
    container = next(one for one in pod["spec"]["containers"] if one.get("name") == CONTAINER)
    resources = container.get("resources") or {}
    named = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    more = {name: amount for name, amount in amounts.items() if name not in named}
    if more:
        container["resources"] = {**resources, "requests": {**more, **(resources.get("requests") or {})}}
    return pod


class Refusals:
    """A pod or service of an elastic job that the server refuses: a Warning of the TFJob, as the operator tells it of others.

    What has been told once is not told again.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._told: set[str] = set()

    async def tell(self, body: Manifest, error: ApiError) -> None:
        """`body`: what was refused. Raises nothing: who made it hears the error itself."""
        message = f"Error creating: {body['metadata']['name']}: {error}"[:MESSAGE_MAX]
        owner = next(iter(body["metadata"].get("ownerReferences") or []), None)
        if owner is None or message in self._told or len(self._told) >= TOLD_MAX:
            return
        self._told.add(message)
        name = body["metadata"]["name"]
        about = {key: owner[key] for key in ("apiVersion", "kind", "name", "uid") if key in owner}
        event = Event("Warning", f"FailedCreate{body['kind']}", message).manifest(
            {"generateName": f"{owner.get('name', name)}."}, {**about, "namespace": self._namespace},
            "deeprec-aimaster", datetime.datetime.now(datetime.timezone.utc),
        )  # fmt: skip
        try:
            await self._api.create(EVENTS, self._namespace, event)
        except DeepRecError as failed:
            log.warning("that %s was refused was not told: %s", body["metadata"]["name"], failed)
