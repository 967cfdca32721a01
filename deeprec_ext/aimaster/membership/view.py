"""The cluster as it is agreed on: PS, slot map, generation, epoch. Immutable; functions make the next one.

Two counters never go back and are never reused, also not after a rolled-back scaling: `next_epoch` and `next_task`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deeprec_ext.aimaster.core.records import PsInfo
from deeprec_ext.aimaster.placement.planner import initial_map, laid_out
from deeprec_ext.decoding import alike, built
from deeprec_ext.proto import deeprec_ext_pb2 as pb


@dataclass(frozen=True)
class AgreedCluster:
    """`epoch` 0: the first view has not been formed."""

    epoch: int = 0
    generation: int = 0
    live: bool = False
    ps: tuple[PsInfo, ...] = ()
    slot_map: tuple[int, ...] = ()
    marked: tuple[int, ...] = ()
    lost: tuple[str, ...] = ()  # names of PS of this view that died and are not replaced yet
    cut: tuple[str, ...] = ()  # variables that the chief has cut over slots; every other role cuts these and no others
    next_epoch: int = 1
    next_task: int = 0

    @property
    def formed(self) -> bool:
        return self.epoch > 0

    @property
    def gone(self) -> bool:
        """Whether it has PS, and all are lost."""
        return bool(self.ps) and len(self.lost) == len(self.ps)

    def by_name(self, name: str) -> PsInfo | None:
        return next((ps for ps in self.ps if ps.name == name), None)

    def by_task(self, variables: Iterable[pb.Variable]) -> dict[int, list[pb.Variable]]:
        """Those of each PS that has any."""
        found: dict[int, list[pb.Variable]] = {}
        for variable in variables:
            found.setdefault(self.slot_map[variable.slot], []).append(variable)
        return found

    def to_proto(self, workers: Iterable[pb.WorkerMember] = ()) -> pb.View:
        return alike(pb.View, self, ps=[ps.to_proto() for ps in self.ps], workers=workers, marked_slots=self.marked)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> AgreedCluster:
        """Raises one of `store.UNREADABLE`."""
        values = json.loads(text)
        cluster = built(AgreedCluster, {**values, "ps": values["ps"]})
        if unknown := set(cluster.slot_map) - {ps.task for ps in cluster.ps}:
            raise ValueError(f"slots are on the tasks {sorted(unknown)}, which are nobody's")
        return cluster


def take_task(cluster: AgreedCluster) -> tuple[AgreedCluster, int]:
    """A task number for a new incarnation of a PS."""
    return dataclasses.replace(cluster, next_task=cluster.next_task + 1), cluster.next_task


def take_epoch(cluster: AgreedCluster) -> tuple[AgreedCluster, int]:
    """An epoch for a view that is to come (and may never come)."""
    return dataclasses.replace(cluster, next_epoch=cluster.next_epoch + 1), cluster.next_epoch


def advance(cluster: AgreedCluster) -> AgreedCluster:
    """The same cluster as a new view: its workers changed, or its flags."""
    cluster, epoch = take_epoch(cluster)
    return dataclasses.replace(cluster, epoch=epoch)


def first_view(cluster: AgreedCluster, ps: tuple[PsInfo, ...], slots: int, sizes: Sequence[int] = ()) -> AgreedCluster:
    """All PS are there: slot s goes to PS s mod P, or, where it is known what will lie on it, to where bytes are balanced.

    Args:
        slots: S.
        sizes: [S] bytes of each; all 0, or none: not known.
    """
    tasks = [member.task for member in ps]
    placed = laid_out(sizes, len(ps)) if any(sizes) else initial_map(slots, len(ps))
    slot_map = tuple(tasks[number] for number in placed)
    return advance(dataclasses.replace(cluster, ps=ps, slot_map=slot_map, generation=1))


def laid_out_on(cluster: AgreedCluster, names: Sequence[str], sizes: Sequence[int]) -> AgreedCluster:
    """The same slots on these PS of it alone; as it was where these are all. What lay on any PS is gone.

    Args:
        names: at least one.
        sizes: [S] bytes of each slot.
    """
    staying = tuple(ps for ps in cluster.ps if ps.name in names)
    if len(staying) == len(cluster.ps):
        return cluster
    slot_map = tuple(staying[number].task for number in laid_out(sizes, len(staying)))
    return dataclasses.replace(cluster, ps=staying, slot_map=slot_map, lost=())


def lose(cluster: AgreedCluster, name: str) -> AgreedCluster:
    """A PS died: what was on its slots is gone, until it is promoted from backups or restored."""
    lost = cluster.lost if name in cluster.lost else (*cluster.lost, name)
    return dataclasses.replace(cluster, lost=lost)


def promote(cluster: AgreedCluster, takers: Mapping[int, int]) -> AgreedCluster:
    """The survivors have taken over the slots of the lost PS (slot -> task): the same generation, nothing to restore."""
    return advance(
        dataclasses.replace(
            cluster,
            ps=tuple(ps for ps in cluster.ps if ps.name not in cluster.lost),
            slot_map=tuple(takers.get(slot, task) for slot, task in enumerate(cluster.slot_map)),
            lost=(),
        )
    )


def replace_lost(cluster: AgreedCluster, replacements: Mapping[str, PsInfo]) -> AgreedCluster:
    """Every lost PS has come back as another incarnation with a new task: it gets the slots of the old one."""
    tasks = {ps.task: replacements[ps.name].task for ps in cluster.ps if ps.name in replacements}
    return advance(
        dataclasses.replace(
            cluster,
            ps=tuple(replacements.get(ps.name, ps) for ps in cluster.ps),
            slot_map=tuple(tasks.get(task, task) for task in cluster.slot_map),
            generation=cluster.generation + 1,
            live=False,
            lost=(),
            marked=(),
        )
    )


def refill(cluster: AgreedCluster, replacements: Mapping[str, PsInfo]) -> AgreedCluster:
    """The same, where the replacements have got the variables from backups: the same generation, nothing to restore."""
    return dataclasses.replace(
        replace_lost(cluster, replacements), generation=cluster.generation, live=cluster.live, marked=cluster.marked
    )
