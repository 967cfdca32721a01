"""What is to be done for one TFJob: the outcome of deciding, and all that the operator carries out.

Carried out in the order of the fields, so that an operator killed in between finds its way: what must be remembered is
written before what it is about is deleted, and the end of a job is written before anything of it is cleaned up. The status
comes before what is created: a job whose pods the server refuses has one, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tfjob.annotations import Elastic
from tfjob.model.kinds import Manifest

T = TypeVar("T")


@dataclass(frozen=True)
class Event:
    """A Kubernetes Event on the TFJob.

    Some tell of a state and come with every look at it (a pod of somebody else is in the way): who sends them remembers
    what it has sent.
    """

    type: str  # Normal or Warning
    reason: str
    message: str


@dataclass(frozen=True)
class Deletion:
    """Of this very object: one of the same name and another uid stays."""

    name: str
    uid: str


@dataclass(frozen=True)
class Actions:
    """Nothing in it: all is as it should be."""

    annotations: tuple[tuple[str, str], ...] = ()
    """To be set on the TFJob."""

    delete_pods: tuple[Deletion, ...] = ()
    delete_services: tuple[Deletion, ...] = ()
    delete_pod_group: Deletion | None = None
    write_pod_group: Manifest | None = None
    """To be created, or where one exists, its `spec` to be merged into that."""

    status: Manifest | None = None
    """The whole status, to be put in the place of the old one (what is not in it has to go); None: it has not changed."""

    create_services: tuple[Manifest, ...] = ()
    create_pods: tuple[Manifest, ...] = ()
    aimaster: Elastic | None = None
    """The AIMaster of this elastic job has to be there, with everything it needs."""

    events: tuple[Event, ...] = ()
    delete_job: bool = False
    again_seconds: float | None = field(default=None, compare=False)
    """Look again after so long even if nothing changes; None: no need."""

    def __add__(self, other: Actions) -> Actions:
        return together((self, other))

    @property
    def writes(self) -> bool:
        """Whether anything of the cluster is changed; events do not count."""
        return any((
            self.annotations, self.delete_pods, self.delete_services, self.delete_pod_group, self.write_pod_group,
            self.create_services, self.create_pods, self.status is not None, self.delete_job,
        ))  # fmt: skip


def together(parts: Sequence[Actions]) -> Actions:
    """All of them, in this order; of what there is only one of, the last one."""
    waits = [one.again_seconds for one in parts if one.again_seconds is not None]
    return Actions(
        annotations=tuple(pair for one in parts for pair in one.annotations),
        delete_pods=tuple(pod for one in parts for pod in one.delete_pods),
        delete_services=tuple(service for one in parts for service in one.delete_services),
        delete_pod_group=_last(one.delete_pod_group for one in parts),
        write_pod_group=_last(one.write_pod_group for one in parts),
        create_services=tuple(service for one in parts for service in one.create_services),
        create_pods=tuple(pod for one in parts for pod in one.create_pods),
        aimaster=_last(one.aimaster for one in parts), status=_last(one.status for one in parts),
        events=tuple(event for one in parts for event in one.events),
        delete_job=any(one.delete_job for one in parts), again_seconds=min(waits) if waits else None,
    )  # fmt: skip


def _last(values: Iterable[T | None]) -> T | None:
    found = None
    for value in values:
        found = found if value is None else value
    return found
