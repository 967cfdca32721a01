"""Which variables lie on which slot and PS, and what each slot costs: of a running job from its AIMaster, of an ended one from
its store."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from google.protobuf.message import DecodeError

from deeprec_ext.aimaster.membership.view import AgreedCluster
from deeprec_ext.aimaster.store.store import Store, StoreError
from deeprec_ext.cli.slots import owners, slot_load
from deeprec_ext.errors import UsageError
from deeprec_ext.gazer.series import Series
from deeprec_ext.launch.client import JobClient
from deeprec_ext.proto import deeprec_ext_pb2 as pb2
from deeprec_ext.rundir import RunDirectory


@dataclass(frozen=True)
class Placement:
    """`owners`: slot → name of its PS. `loads`: slot → seconds of look-ups and updates per second, where it was measured."""

    catalogue: pb2.Catalogue
    passes: list[dict[str, Any]]
    owners: Mapping[int, str] = field(default_factory=dict)
    loads: Mapping[int, float] = field(default_factory=dict)

    @cached_property
    def _by_slot(self) -> Mapping[int, list[pb2.Variable]]:
        found: dict[int, list[pb2.Variable]] = defaultdict(list)
        for variable in sorted(self.catalogue.variables, key=lambda one: (-one.bytes, one.name)):
            found[variable.slot].append(variable)
        return found

    def variables(self, slot: int) -> list[pb2.Variable]:
        """Largest first."""
        return self._by_slot.get(slot, [])

    def slots(self) -> list[int]:
        return sorted({*self.owners, *self._by_slot})

    def bytes(self, slot: int) -> int:
        return sum(variable.bytes for variable in self.variables(slot))


async def ask(directory: RunDirectory) -> Placement:
    """Of a running job. Raises UnreachableError."""
    async with JobClient.of(directory) as client:
        reply, status = await client.graph(), await client.status()
    loads = {one.slot: load for one in status.slot_load if (load := slot_load(one))}
    return Placement(reply.catalogue, passes_of(reply.passes_json), owners(status), loads)


def read(directory: RunDirectory) -> Placement:
    """Of an ended job: the last placement, and means over the run. Raises UsageError."""
    try:
        with contextlib.closing(Store(directory.store, read_only=True)) as store:
            return _stored(store)
    except (StoreError, sqlite3.Error, ValueError, KeyError, TypeError, DecodeError) as error:
        raise UsageError(f"{directory.store} cannot be read ({error}); give another run directory") from error


def _stored(store: Store) -> Placement:
    cluster = AgreedCluster.from_json(text) if (text := store.get("cluster")) else AgreedCluster()
    names = {ps.task: ps.name for ps in cluster.ps}
    found = {slot: names.get(task, "") for slot, task in enumerate(cluster.slot_map)}
    lines = Series(store).query([f"slot-{slot}" for slot in found], ["lookup_share", "update_share"], points=50)
    loads: dict[int, float] = {}
    for line in lines:
        slot = int(line.subject.partition("-")[2])
        loads[slot] = loads.get(slot, 0.0) + sum(line.means) / len(line.means)
    catalogue = pb2.Catalogue.FromString(store.blob("catalogue"))
    return Placement(catalogue, passes_of(store.blob("passes").decode()), found, loads)


def passes_of(text: str) -> list[dict[str, Any]]:
    """What the graph passes reported; [] before the first session."""
    found = json.loads(text) if text else []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
