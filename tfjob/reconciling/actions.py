"""What is to be done for one TFJob: the outcome of deciding, and all that the operator carries out.

Carried out in the order of the fields, so that an operator killed in between finds its way: what must be remembered is
written before what it is about is deleted, and the end of a job is written before anything of it is cleaned up. The status
comes before what is created: a job whose pods the server refuses has one, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tfjob.model.annotations import Elastic
from tfjob.model.events import Event
from tfjob.model.kinds import Manifest


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
    """Some tell of a state and come with every look at it (a pod of somebody else is in the way): who sends them remembers
    what it has sent."""

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
    joined: dict[str, Any] = {}
    for one in parts:
        for name, value in vars(one).items():
            if isinstance(value, tuple):
                joined[name] = (*joined.get(name, ()), *value)
            elif value is not None and value is not False:
                joined[name] = value
    return Actions(**{**joined, "again_seconds": min(waits) if waits else None})
