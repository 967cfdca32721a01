"""What a successor needs when the AIMaster's pod is gone with its disk, small enough for a ConfigMap.

It has what a few PS keep as well (`replicated`: history, the data ledger as ranges), and the cluster, who takes part, the
model's catalogue and the scaling under way. It may be some seconds old, but has every decision that anybody has acted on.

Two ways back, `rebuilding` knows both. While agents live, they say the rest: a store is rebuilt from their word, and the
snapshot is one more witness. When nobody is left to ask, the snapshot alone becomes the store: roles start anew, the model
comes from a backup or checkpoint, and the ledger is rewound to match; what had been handed out and not told is given out
again, so nothing is lost and some is repeated.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from deeprec_ext.aimaster.core.records import RoleRecord, Scaling
from deeprec_ext.aimaster.job import replicated
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.ledger.replica import TABLE, dataset_sources
from deeprec_ext.aimaster.membership.view import AgreedCluster
from deeprec_ext.aimaster.rebuilding.state import RebuiltState, Stored
from deeprec_ext.aimaster.rebuilding.writing import write
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.decoding import built
from deeprec_ext.errors import DeepRecError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

VERSION = 1
PACKED_BYTES_MAX = 900 << 10
"""A ConfigMap holds 1 MiB, and base64 is not counted: the API server counts the bytes themselves, with the keys."""

SCALINGS_LOOKED_AT = 100
"""The newest: more are never queued or under way."""

UNPACKED_BYTES_MAX = 256 << 20


class SnapshotError(DeepRecError):
    """It cannot be read, or is too large; the message says what to do."""


@dataclass(frozen=True)
class Snapshot:
    """`holder`: which process has written it; two of the same incarnation can be told apart."""

    incarnation: int
    holder: str
    cluster: AgreedCluster
    view: bytes  # pb.View, with its workers
    catalogue: bytes
    roles: tuple[RoleRecord, ...] = ()
    fenced: Mapping[str, str] = field(default_factory=dict)  # incarnation → name
    moved: Mapping[int, bytes] = field(default_factory=dict)  # of scalings under way: pb.Catalogue
    remembered: tuple[bytes, ...] = ()  # pb.Remember
    core: str = ""  # see `core`

    @property
    def stored(self) -> Stored:
        """As a witness in a rebuild."""
        remembered = tuple(pb.Remember.FromString(one) for one in self.remembered)
        return Stored(self.incarnation, self.cluster, pb.View.FromString(self.view), remembered)

    @property
    def began(self) -> float:
        """Since when the job runs, Unix seconds; 0: not known."""
        job = replicated.newest([pb.Remember.FromString(one) for one in self.remembered]).get(replicated.JOB, b"")
        value = replicated.unpack(job).meta.get("started")
        return float(value) if isinstance(value, (int, float)) else 0.0

    def says(self, other: Snapshot) -> bool:
        """Whether it says the same as another one, taken at another time."""
        return self.core == other.core and self._values() == other._values()

    def _values(self) -> dict[str, bytes]:
        return {one.key: one.value for one in self.stored.remembered}


def take(job: Job, holder: str) -> Snapshot:
    """Of this moment."""
    store = job.store
    return Snapshot(
        job.incarnation, holder, job.cluster, job.view().SerializeToString(),
        job.catalogues.known.SerializeToString(),
        tuple(job.members.records[name] for name in sorted(job.members.records)),
        dict(store.rows("SELECT incarnation, name FROM fenced")),
        {one.id: store.moved(one.id) for one in _under_way(store)},
        tuple(one.SerializeToString() for one in job.replicated.remember()), core=core(job),
    )  # fmt: skip


def core(job: Job) -> str:
    """A digest that changes when something was decided or somebody came or went; not with every step. Asked often."""
    roles = [asdict(job.members.records[name]) for name in sorted(job.members.records)]
    scalings = [one.to_json() for one in _under_way(job.store)]
    parts = [job.incarnation, job.cluster.to_json(), roles, scalings, job.catalogue.fingerprint, job.ending, job.held,
             job.store.get("scalings", 0)]  # fmt: skip
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def _under_way(store: Store) -> list[Scaling]:
    return [one for one in map(Scaling.from_json, store.newest_scalings(SCALINGS_LOOKED_AT)) if not one.outcome]


# ------------------------------------------------------------------------------------------------------------- to bytes


def _encode(value: bytes) -> str:
    return base64.b64encode(value).decode()


def pack(snapshot: Snapshot) -> tuple[bytes, tuple[str, ...]]:
    """Compressed, and what had to be left out: tables of shards, the largest first. Raises SnapshotError if that is too little.

    Without its table a dataset is read from its position on again, as after a restored checkpoint: repeated, not lost.
    """
    left_out: list[str] = []
    while True:
        packed = _pack(snapshot)
        if len(packed) <= PACKED_BYTES_MAX:
            return packed, tuple(left_out)
        tables = [one for one in map(pb.Remember.FromString, snapshot.remembered) if one.key.startswith(TABLE)]
        if not tables:
            raise SnapshotError(
                f"the state of the job is {len(packed)} bytes, more than a ConfigMap holds: give the AIMaster a volume "
                "(annotation aimaster.deeprec.io/state-volume)"
            )
        largest = max(tables, key=lambda one: len(one.value))
        left_out.append(largest.key[len(TABLE) :])
        rest = tuple(one for one in snapshot.remembered if pb.Remember.FromString(one).key != largest.key)
        snapshot = dataclasses.replace(snapshot, remembered=rest)


def _pack(snapshot: Snapshot) -> bytes:
    values: dict[str, Any] = {
        "version": VERSION, "incarnation": snapshot.incarnation, "holder": snapshot.holder,
        "cluster": snapshot.cluster.to_json(), "view": _encode(snapshot.view), "catalogue": _encode(snapshot.catalogue),
        "roles": [asdict(role) for role in snapshot.roles], "fenced": dict(snapshot.fenced),
        "moved": {str(number): _encode(one) for number, one in snapshot.moved.items()},
        "remembered": [_encode(one) for one in snapshot.remembered], "core": snapshot.core,
    }  # fmt: skip
    return zlib.compress(json.dumps(values, separators=(",", ":")).encode(), 6)


def unpack(packed: bytes) -> Snapshot:
    """Raises SnapshotError."""
    try:
        values = json.loads(zlib.decompressobj().decompress(packed, UNPACKED_BYTES_MAX))
        if values["version"] > VERSION:
            raise SnapshotError(
                f"the snapshot has version {values['version']}, known is {VERSION}: use a newer deeprec-ext"
            )
        return Snapshot(
            int(values["incarnation"]), str(values["holder"]), AgreedCluster.from_json(values["cluster"]),
            base64.b64decode(values["view"]), base64.b64decode(values["catalogue"]),
            tuple(built(RoleRecord, one, newer=True) for one in values["roles"]),
            {str(who): str(name) for who, name in values["fenced"].items()},
            {int(number): base64.b64decode(one) for number, one in values["moved"].items()},
            tuple(base64.b64decode(one) for one in values["remembered"]), core=str(values["core"]),
        )  # fmt: skip
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SnapshotError(
            f"the snapshot of the job's state is damaged ({error!r}): delete the ConfigMap to start without it"
        ) from error


# ------------------------------------------------------------------------------------------------------------- and back


def restore(store: Store, snapshot: Snapshot, wall: float) -> None:
    """Into a fresh store: as if the AIMaster had been restarted, a moment earlier."""
    stored = snapshot.stored
    remembered = replicated.newest(list(stored.remembered))
    kept = replicated.unpack(remembered.get(replicated.JOB, b""))
    datasets, unused, last_lease = dataset_sources(remembered, {})
    found = RebuiltState(
        aimaster=snapshot.incarnation, cluster=snapshot.cluster, workers=tuple(stored.view.workers), roles=snapshot.roles,
        fenced=snapshot.fenced, catalogue=pb.Catalogue.FromString(snapshot.catalogue), step=int(kept.meta.get("step", 0)),
        marks=str(kept.meta.get("marks", "")), scalings=kept.scalings,
        moved={number: pb.Catalogue.FromString(one) for number, one in snapshot.moved.items()}, kept=kept,
        datasets=datasets, unused_positions=unused, last_lease=last_lease, told=(), missing=(),
    )  # fmt: skip
    write(store, found, wall)


def describe(left_out: Iterable[str]) -> str:
    """For people."""
    names = ", ".join(repr(name) for name in left_out)
    return (
        f"the state of the job is too large for a ConfigMap; the shards of dataset {names} are left out: if the AIMaster's pod "
        "is lost, more of that data may be trained again; a volume (annotation aimaster.deeprec.io/state-volume) has room"
    )
