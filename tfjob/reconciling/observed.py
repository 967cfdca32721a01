"""What the operator sees of one TFJob, and how a pod is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from tfjob.model import names
from tfjob.model.annotations import Elastic
from tfjob.model.kinds import Manifest
from tfjob.model.spec import ReplicaSpec, TFJob
from tfjob.model.times import parse_time
from tfjob.reconciling.actions import Deletion


@dataclass(frozen=True)
class Options:
    """Of the operator, for every job."""

    domain: str = ""
    """CUSTOM_CLUSTER_DOMAIN: appended to the hosts in TF_CONFIG."""

    scheduler: str = ""
    """The gang scheduler: `volcano`, or the name of one with the coscheduling plugin; empty: none."""

    arbiter_seconds: float | None = None
    """Elastic jobs have what the arbiter allows them (annotation `allowance`). One that it has not heard of yet waits for so
    long, then it begins as it is written. None: there is no arbiter, and the annotation says nothing."""


@dataclass(frozen=True)
class Observed:
    """One TFJob and all pods and services in its namespace that carry its label or one of its names."""

    manifest: Manifest
    pods: tuple[Manifest, ...] = ()
    services: tuple[Manifest, ...] = ()
    pod_group: Manifest | None = None
    options: Options = Options()
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Of PriorityClasses that templates name, as far as they are known; only with a gang scheduler."""


@dataclass(frozen=True)
class View:
    """The same, parsed and sorted: what the steps of deciding work with."""

    job: TFJob
    elastic: bool
    options: Elastic | None  # None in an elastic job: its annotations are broken
    pods: tuple[Manifest, ...]  # ours
    services: tuple[Manifest, ...]  # ours
    pod_group: Manifest | None  # ours or not
    taken_pods: dict[str, Manifest]  # name → somebody else's
    taken_services: dict[str, Manifest]
    cluster: Options
    priorities: Mapping[str, int]

    @classmethod
    def of(cls, observed: Observed, job: TFJob, elastic: bool, options: Elastic | None) -> View:
        pods, services = observed.pods, observed.services
        return cls(
            job, elastic, options, tuple(pod for pod in pods if owned(pod, job)),
            tuple(one for one in services if owned(one, job)), observed.pod_group,
            {name_of(pod): pod for pod in pods if not owned(pod, job)},
            {name_of(one): one for one in services if not owned(one, job)}, observed.options, observed.priorities,
        )  # fmt: skip

    def replicas(self, spec: ReplicaSpec) -> Iterator[tuple[int, Manifest]]:
        """(index, pod) of one type, those beyond `replicas` too."""
        for pod in self.pods:
            index = index_of(pod, spec.type)
            if index is not None:
                yield index, pod

    @property
    def aimaster(self) -> Manifest | None:
        """The AIMaster's pod."""
        return find(self.pods, names.aimaster_name(self.job.name))


# ---------------------------------------------------------------------------------------------------- any object


def name_of(manifest: Manifest) -> str:
    return str(manifest["metadata"].get("name") or "")


def find(manifests: Iterable[Manifest], name: str) -> Manifest | None:
    return next((one for one in manifests if name_of(one) == name), None)


def owner_of(manifest: Manifest) -> Manifest:
    """The controller's owner reference; empty: nobody's."""
    found = manifest["metadata"].get("ownerReferences") or []
    return next((one for one in found if one.get("controller")), {})


def owned(manifest: Manifest, job: TFJob) -> bool:
    return bool(job.uid) and owner_of(manifest).get("uid") == job.uid


def deleting(manifest: Manifest) -> bool:
    return bool(manifest["metadata"].get("deletionTimestamp"))


def deletion(manifest: Manifest) -> Deletion:
    return Deletion(name_of(manifest), str(manifest["metadata"].get("uid") or ""))


# ---------------------------------------------------------------------------------------------------- pods


def index_of(manifest: Manifest, type_: str) -> int | None:
    """Of a pod or service of this type; None: it is of another type, or of none."""
    labels = manifest["metadata"].get("labels") or {}
    index = labels.get(names.INDEX_LABEL, "")
    return int(index) if labels.get(names.TYPE_LABEL) == type_.lower() and index.isdigit() else None


def phase(pod: Manifest) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def container_statuses(pod: Manifest, key: str = "containerStatuses") -> list[Manifest]:
    return list((pod.get("status") or {}).get(key) or [])


def terminated(pod: Manifest) -> Manifest:
    """How the container `tensorflow` ended; empty: it has not, or nobody knows."""
    for status in container_statuses(pod):
        if status.get("name") == names.CONTAINER:
            return (status.get("state") or {}).get("terminated") or {}
    return {}


def exit_code(pod: Manifest) -> int | None:
    """Of the container `tensorflow`; None: not known (the node is lost, the pod was evicted)."""
    code = terminated(pod).get("exitCode")
    return None if code is None else int(code)


def retryable(pod: Manifest, spec: ReplicaSpec) -> bool:
    """Whether a pod that is Failed is made again: by the replica's policy, with `ExitCode` by signals and losses only."""
    if phase(pod) != "Failed":
        return False
    code = exit_code(pod)
    return spec.restart_policy in ("OnFailure", "Always") or (
        spec.restart_policy == "ExitCode" and (code is None or code >= 128)
    )


def restart_count(pod: Manifest) -> int:
    """How often kubelet has restarted its containers."""
    found = container_statuses(pod) + container_statuses(pod, "initContainerStatuses")
    return sum(int(status.get("restartCount") or 0) for status in found)


def left_over(pod: Manifest, start: str) -> bool:
    """Whether it was deleted before the job was started (anew): what goes with a suspension is no failure."""
    metadata = pod["metadata"]
    if not metadata.get("deletionTimestamp"):
        return False
    grace = timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    return parse_time(metadata["deletionTimestamp"]) - grace <= parse_time(start)
