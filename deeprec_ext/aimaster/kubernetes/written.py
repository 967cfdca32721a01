"""Where the job is written down: in a TFJob, or, where nobody may install its CRD, in a ConfigMap.

Without an operator the ConfigMap `<job>-tfjob` has the manifest (key `tfjob.json`), owns everything of the job, and takes it
along when it is deleted. Nobody follows it: such a job is scaled by `deeprec-ext scale` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deeprec_ext.aimaster.kubernetes.making import Factory
from deeprec_ext.errors import UsageError
from tfjob.api.client import Api
from tfjob.api.finding import written
from tfjob.model import names
from tfjob.model.annotations import Elastic
from tfjob.model.annotations import parse as parse_annotations
from tfjob.model.kinds import CONFIG_MAPS, TFJOBS, Manifest
from tfjob.model.spec import TFJob
from tfjob.pods import injection, replica
from tfjob.pods.aimaster import config_map_reference


@dataclass(frozen=True)
class Source:
    job: TFJob
    elastic: Elastic
    owner: Manifest  # reference, of everything that is made
    followed: bool  # whether there is a TFJob that users change

    @property
    def makes_workers(self) -> bool:
        """Else there is no template to make one of."""
        return not self.job.chief or names.WORKER in self.job.specs

    @property
    def about(self) -> Manifest:
        """As Events name it."""
        fields = {key: self.owner[key] for key in ("apiVersion", "kind", "name", "uid")}
        return {**fields, "namespace": self.job.namespace}


async def find(api: Api, namespace: str, name: str, *, operator: bool) -> Source:
    """Raises UsageError for what is no elastic TFJob, ApiError, UnreachableError."""
    if operator:
        job = TFJob.parse(await api.get(TFJOBS, namespace, name))
        return Source(job, _elastic(job), job.owner_reference, followed=True)
    found = await api.get(CONFIG_MAPS, namespace, names.config_map_name(name))
    job = TFJob.parse(written(found, namespace))
    if job.name != name:
        raise UsageError(f"ConfigMap {names.config_map_name(name)} has a TFJob {job.name}; it must be {name}")
    return Source(job, _elastic(job), config_map_reference(job), followed=False)


def _elastic(job: TFJob) -> Elastic:
    found, _ = parse_annotations(job)
    if found is None:
        enabled = f'{names.ANNOTATION_PREFIX}enabled: "true"'
        raise UsageError(f"TFJob {job.namespace}/{job.name} is not elastic: annotate it with {enabled}")
    return found


def make_factory(
    source: Source, slots: int, package_image: str, domain: str = "", scheduler: str = ""
) -> Factory:  # fmt: skip
    """Service and pod of a role, from the TFJob as it was when the AIMaster started.

    `domain`: see `injection`; `scheduler`: of the job's gang, see `pods`."""
    job, elastic = source.job, source.elastic

    def make(name: str, requests: Mapping[str, str] | None) -> tuple[Manifest, Manifest]:
        type_, index = names.replica_of(job, name)
        if type_ not in job.specs:
            raise UsageError(
                f"{name}: the TFJob has no {type_}; name it in tfReplicaSpecs (replicas may be 0) to have some"
            )
        role, _, number = name.rpartition("-")
        pod = injection.elastic_pod(
            replica.pod(job, type_, index, domain=domain, scheduler=scheduler), job=job.name, namespace=job.namespace,
            role=role, index=int(number), slots=slots, package=elastic.package, package_image=package_image,
            evaluator=elastic.evaluator, chief=(job.chief or names.WORKER).lower(), layout=elastic.layout, resources=requests,
            cluster_domain=domain,
        )  # fmt: skip
        container = injection.training_container(pod)
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")  # why it ended, for people
        service = injection.elastic_service(replica.service(job, type_, index))
        for one in (service, pod):
            one["metadata"]["ownerReferences"] = [source.owner]
        return service, pod

    return make
