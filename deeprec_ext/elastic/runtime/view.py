"""The cluster view as the training side uses it, and the session configuration it leads to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import tensorflow as tf

from deeprec_ext.proto import deeprec_ext_pb2 as pb

v1 = tf.compat.v1


@dataclass(frozen=True)
class ClusterView:
    """Who serves what at one epoch. `ps` maps task numbers to addresses, `slot_map` slots to task numbers."""

    epoch: int
    ps: Mapping[int, str]
    slot_map: tuple[int, ...]
    live: bool = False
    generation: int = 0
    backup_map: tuple[int, ...] = ()
    names: Mapping[int, str] = field(default_factory=dict)
    """Of the PS, by task number."""
    trainers: int = 0
    cut: frozenset[str] = frozenset()
    """Variables that the chief has cut over slots; all there are, once the model is live."""

    @classmethod
    def from_proto(cls, view: pb.View) -> ClusterView:
        ps = MappingProxyType({member.task: member.address for member in view.ps})
        return cls(
            view.epoch, ps, tuple(view.slot_map), view.live, view.generation, tuple(view.backup_map),
            {member.task: member.name for member in view.ps}, len(view.workers), frozenset(view.cut),
        )  # fmt: skip

    def after_losses(self, held: Mapping[int, int] | None = None) -> list[ClusterView]:
        """What the view becomes when one PS dies and its slots go to those that hold their backups; one per PS that could.

        held: bytes by slot; the loss of the fullest PS comes first. None: in the order of their tasks.
        """
        loads: dict[int, int] = {}
        for slot, owner in enumerate(self.slot_map):
            loads[owner] = loads.get(owner, 0) + (held or {}).get(slot, 0)
        views = []
        if len(self.backup_map) == len(self.slot_map):
            for lost in sorted(loads, key=lambda task: (-loads[task], task)):
                slots = zip(self.slot_map, self.backup_map)
                slot_map = tuple(backup if owner == lost else owner for owner, backup in slots)
                if lost not in slot_map and all(task in self.ps for task in slot_map):
                    ps = MappingProxyType({task: address for task, address in self.ps.items() if task != lost})
                    views.append(ClusterView(self.epoch, ps, slot_map, self.live, self.generation, cut=self.cut))
        return views

    @property
    def serving(self) -> bool:
        """Whether every slot has a PS; not so between the loss of a PS and its replacement."""
        return bool(self.slot_map) and all(task in self.ps and self.ps[task] for task in self.slot_map)

    @property
    def placement(self) -> tuple[object, ...]:
        """What a session depends on; a view that differs only in its workers or epoch needs no new session."""
        used = sorted(set(self.slot_map))
        return self.slot_map, tuple((task, self.ps.get(task)) for task in used), self.generation


def elastic_config(
    ps: Mapping[int, str], base: v1.ConfigProto | None = None, member: tuple[str, int, str] | None = None
) -> v1.ConfigProto:
    """A session configuration that carries the ClusterSpec (membership is a property of a session).

    Args:
      ps: task number → address. Task numbers may be sparse.
      base: the user's configuration; everything else in it is kept.
      member: job name, task and address of the process itself, where it is no PS.
    """
    config = v1.ConfigProto()
    if base is not None:
        config.CopyFrom(base)
        del config.device_filters[:]  # nobody else is in the cluster, and a script's are by other names
    cluster: dict[str, dict[int, str]] = {"ps": dict(ps)}
    if member is not None:
        job, task, address = member
        cluster.setdefault(job, {})[task] = address
    config.cluster_def.CopyFrom(tf.train.ClusterSpec(cluster).as_cluster_def())
    config.experimental.share_session_state_in_clusterspec_propagation = True
    return config
