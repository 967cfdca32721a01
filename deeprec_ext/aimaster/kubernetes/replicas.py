"""Beside Kubeflow: pods come and go by `replicas` of the TFJob, which Kubeflow's operator follows.

To grow, `replicas` is raised until it counts the pod that is wanted, and Kubeflow makes it. To shrink, the highest indices
leave: their processes have been told to and have exited 0, and only then `replicas` is lowered. The other way round Kubeflow
would delete a PS that still has slots. In between, a pod that has exited 0 is counted: Kubeflow takes it for succeeded, which
says nothing of the job, and nobody starts it again. A pod that hangs or was lost is deleted, and Kubeflow makes it again under
its name.

With each number goes the note of it (`scaled-to`), so that it is not taken for a user's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NoReturn

from deeprec_ext.aimaster.kubernetes.following import PATCH_TRIES, read
from deeprec_ext.aimaster.kubernetes.making import IN_THE_WAY_SECONDS, LOOK_SECONDS, Maker
from deeprec_ext.aimaster.kubernetes.naming import Naming
from deeprec_ext.errors import UnreachableError, UsageError
from deeprec_ext.retries import Sleep
from tfjob.api.client import Api, ConflictError, NotFoundError
from tfjob.model import names
from tfjob.model.kinds import PODS, TFJOBS, Manifest

log = logging.getLogger(__name__)

MADE_SECONDS = 60.0
"""How long Kubeflow may take to make a pod."""


class Replicas:
    """`looked`, `wrote`, `wanted`, `coming` are set by whoever wires it."""

    def __init__(self, api: Api, namespace: str, naming: Naming) -> None:
        self._api, self._namespace, self._naming = api, namespace, naming
        self.looked: Callable[[Manifest], Awaitable[None]] = _nothing
        """Sees the TFJob before it is changed: what its user has written there must not be overwritten unseen."""

        self.wrote: Callable[[Manifest, str], None] = lambda manifest, type_: None
        self.wanted: Callable[[], Mapping[str, int]] = dict
        """`replicas` by type, as they are to be: up to the highest index that is wanted."""

        self.coming: Callable[[], Collection[str]] = tuple
        """All that the scaling under way adds: they are asked for together."""

    async def reach(self, name: str) -> None:
        """`replicas` counts this pod, and the others that come with it. Raises ApiError, UnreachableError."""
        coming = self.coming()
        found = [names.replica_of(self._naming, one) for one in (coming if name in coming else (name,))]
        type_ = names.replica_of(self._naming, name)[0]
        most = max(index + 1 for kind, index in found if kind == type_)
        await self._set(type_, lambda count: max(count, most))

    async def leave(self, name: str) -> bool:
        """Nobody is counted beyond the highest that is wanted; whether this pod is not counted any more.

        Raises ApiError, UnreachableError.
        """
        type_, index = names.replica_of(self._naming, name)
        most = self.wanted().get(type_)
        if most is None or most > index:
            return False
        return await self._set(type_, lambda count: min(count, most)) <= index

    async def _set(self, type_: str, change: Callable[[int], int]) -> int:
        """The number as it is then."""
        for _ in range(PATCH_TRIES):
            manifest = await self._api.get(TFJOBS, self._namespace, self._naming.name)
            await self.looked(manifest)
            asked = read(manifest)
            before = asked.sizes.get(type_)
            if before is None or asked.going:  # a chief's or an evaluator's, which stays; or nothing is made any more
                return before or 0
            count = change(before)
            if count == before:
                return count
            noted = {**asked.sizes, **asked.noted, type_: count}
            patch = {
                "metadata": {
                    "resourceVersion": asked.version, "annotations": {names.SCALED_TO_ANNOTATION: json.dumps(noted)},
                },
                "spec": {"tfReplicaSpecs": {asked.keys[type_]: {"replicas": count}}},
            }  # fmt: skip
            try:
                after = await self._api.patch(TFJOBS, self._namespace, self._naming.name, patch)
            except ConflictError:
                continue
            self.wrote(after, type_)
            log.info("%s: replicas %d → %d", type_, before, count)
            return count
        raise UnreachableError(f"the TFJob changes all the time: replicas of {type_} could not be set")


class ReplicasMaker(Maker):
    """Has pods made by Kubeflow. `wants` (whether this name is to be there) is set by whoever wires it."""

    own_pods = False

    def __init__(
        self, api: Api, namespace: str, naming: Naming, owner_uid: str, replicas: Replicas, sleep: Sleep
    ) -> None:
        super().__init__(api, namespace, naming, _no_template, owner_uid, sleep)
        self._replicas = replicas
        self.wants: Callable[[str], bool] = lambda name: True

    async def make(
        self, name: str, requests: Mapping[str, str] | None, *, estimate: Mapping[str, str] | None = None, over: str = "",
        avoid: str = "",
    ) -> Manifest:  # fmt: skip
        """The pod once Kubeflow has made it, or the one that is there. Size and node are its template's to say.

        Raises UsageError when it does not come, ApiError, UnreachableError.
        """
        await self._replicas.reach(name)
        pod, waited, strange = self._naming.pod(name), 0.0, False
        while waited < MADE_SECONDS:
            try:
                found = await self._api.get(PODS, self._namespace, pod)
                strange = not self.owns(found)
                if not strange and await self._may_keep(found, over, waited >= IN_THE_WAY_SECONDS):
                    return found
            except NotFoundError:
                strange = False
            await self._sleep(LOOK_SECONDS)
            waited += LOOK_SECONDS
        if strange:
            raise UsageError(f"pod {pod} does not belong to this job: delete it, or give the job another name")
        raise UsageError(
            f"Kubeflow's training operator has not made the pod {pod} in {MADE_SECONDS:.0f} s: look whether it runs, and at "
            "the Events of the TFJob"
        )

    async def delete(self, name: str, grace_seconds: float) -> bool:
        """Whether there was a pod. Of one that is not wanted, `replicas` is lowered first: it would be made again. Where it is
        not the highest, it stays as it has ended, and is killed only if it hangs. Raises UnreachableError."""
        if not self.wants(name):
            gone = await self.insist(f"take {name} out of replicas", lambda: self._replicas.leave(name))
            if not gone and grace_seconds > 0:
                return await self.insist(f"look at {name}", lambda: self._exists(name))
        return await super().delete(name, grace_seconds)

    async def give_up(self, name: str, uid: str) -> None:
        """Deleted, it would be made again at once; as it is, the kubelet starts it ever more slowly."""

    async def forget_service(self, name: str) -> None:
        """It is Kubeflow's."""

    async def _exists(self, name: str) -> bool:
        try:
            return self.owns(await self._api.get(PODS, self._namespace, self._naming.pod(name)))
        except NotFoundError:
            return False


async def _nothing(manifest: Manifest) -> None: ...


def _no_template(name: str, requests: Mapping[str, str] | None) -> NoReturn:
    raise UsageError(f"{name}: pods of this job are made by Kubeflow")
