"""Sees to it that an elastic job has its AIMaster, and all that the AIMaster needs. Only creates; what is there stays.

Everything is looked at once by each operator, and again whenever the AIMaster's pod is missing: afterwards a look at a job
costs nothing here. One thing changes: the disruption budget follows the number of PS. The operator does that and not the
AIMaster, which scales them: it is told of the job's new size anyway, and the AIMaster needs no right for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from deeprec_ext.errors import UnreachableError, UsageError
from tfjob.api.client import Api, ApiError, ConflictError, NotFoundError
from tfjob.model import names
from tfjob.model.annotations import Elastic
from tfjob.model.kinds import Manifest, Resource, resource_of
from tfjob.model.spec import TFJob
from tfjob.operator.certificates.history_certificates import HistoryAuthority
from tfjob.pods import aimaster, certificates

log = logging.getLogger(__name__)

CHECKED_AT_MOST = 10_000
BUDGETS = Resource("poddisruptionbudgets", group="policy")


class AIMasters:
    def __init__(self, api: Api, options: aimaster.Options, history: HistoryAuthority | None = None) -> None:
        """`history`: gives certificates for the history service that `options` names."""
        self._api, self._options, self._history = api, options, history
        self._checked: dict[str, int] = {}  # uids of jobs → PS that the budget counts on
        self._budgets: bool | None = None  # whether the server has policy/v1; None: not asked yet

    async def ensure(self, manifest: Manifest, elastic: Elastic, pods: Sequence[Manifest]) -> None:
        """Raises ApiError; UsageError without an image, InvalidError for a template that cannot be."""
        job = TFJob.parse(manifest)
        name = names.aimaster_name(job.name)
        if job.uid in self._checked and any(pod["metadata"]["name"] == name for pod in pods):
            if self._checked[job.uid] != elastic.ps:
                await self._follow(job, elastic)
            return
        if not self._options.image:
            raise UsageError("elastic jobs need an image for the AIMaster: start the operator with --image")
        for one in await self._wanted(job, elastic):
            if one["kind"] != "PodDisruptionBudget":
                await self._create(job, one)
        while len(self._checked) >= CHECKED_AT_MOST:
            del self._checked[next(iter(self._checked))]
        await self._follow(job, elastic)

    async def _follow(self, job: TFJob, elastic: Elastic) -> None:
        """The budget as it has to be for so many PS; nothing is written where it is that already."""
        if elastic.ps and self._options.budgets and await self._has_budgets():
            wanted = aimaster.budget(job, elastic.ps)
            found = await self._create(job, wanted)
            least = wanted["spec"]["minAvailable"]
            if found["spec"].get("minAvailable") != least:
                patch = {"spec": {"minAvailable": least}}
                await self._api.patch(BUDGETS, job.namespace, wanted["metadata"]["name"], patch)
        self._checked[job.uid] = elastic.ps

    async def _wanted(self, job: TFJob, elastic: Elastic) -> list[Manifest]:
        """Certificates are made only where the job has none: a second authority would shut out those who know the first.

        What a Secret of an earlier operator lacks is added where certificates are renewed (`renewals`).
        """
        try:
            secret = await self._api.get(_resource("Secret", "v1"), job.namespace, certificates.secret_name(job.name))
        except NotFoundError:
            secret = None
        if secret is not None:
            _check_owner(secret, job, "Secret")
            if lacking := certificates.lacking(secret.get("data") or {}):
                log.warning(
                    "%s/%s: Secret %s is of an earlier operator and lacks %s: new pods of these stay in ContainerCreating "
                    "until the operator that leads has added them",
                    job.namespace, job.name, secret["metadata"]["name"], ", ".join(lacking),
                )  # fmt: skip
            made = aimaster.manifests(job, elastic, {}, self._options)
            return [one for one in made if one["kind"] != "Secret"]
        loop = asyncio.get_running_loop()
        files = await loop.run_in_executor(None, certificates.issue, job.namespace, job.name)
        files.update(await self._for_history(job, elastic))
        return aimaster.manifests(job, elastic, files, self._options)

    async def _for_history(self, job: TFJob, elastic: Elastic) -> dict[str, bytes]:
        """Nothing where there is none: the job starts without it."""
        if self._history is None or not elastic.history:
            return {}
        try:
            return certificates.issue_history(await self._history.files(), job.namespace)
        except (ApiError, UnreachableError, ValueError) as error:
            log.warning("%s/%s starts without the history: %s", job.namespace, job.name, error)
            return {}

    async def _create(self, job: TFJob, manifest: Manifest) -> Manifest:
        """As it is then: new, or the one that is there already."""
        namespace, resource = job.namespace, _resource(manifest["kind"], manifest["apiVersion"])
        try:
            return await self._api.create(resource, namespace, manifest)
        except ConflictError as error:
            if error.reason != "AlreadyExists":
                raise
            found = await self._api.get(resource, namespace, manifest["metadata"]["name"])
            _check_owner(found, job, manifest["kind"])
            return found

    async def _has_budgets(self) -> bool:
        if self._budgets is None:
            try:
                await self._api.request("GET", "/apis/policy/v1")
                self._budgets = True
            except NotFoundError:
                self._budgets = False
            except ApiError:
                return False
        return self._budgets


def _check_owner(found: Manifest, job: TFJob, kind: str) -> None:
    """Of a deleted job of the same name, things may still be there for a while. Raises UsageError."""
    owners = [one.get("uid") for one in found["metadata"].get("ownerReferences") or []]
    if job.uid not in owners:
        name = found["metadata"]["name"]
        raise UsageError(f"{kind} {name} is in the way and belongs to another job or to nobody: it has to go first")


def _resource(kind: str, api_version: str) -> Resource:
    return resource_of({"kind": kind, "apiVersion": api_version})
