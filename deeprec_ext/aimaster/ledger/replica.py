"""What a ledger knows of datasets that nobody has declared again since the store was rebuilt; how replicas are packed."""

from __future__ import annotations

import base64
import json
import logging
import zlib
from collections.abc import Iterable, Mapping

from deeprec_ext.aimaster.ledger import position as positions
from deeprec_ext.aimaster.ledger.position import Position
from deeprec_ext.aimaster.ledger.rebuild import DatasetReplica, DatasetSources
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)

REPLICA, TABLE = "ledger", "shards/"
"""Keys of what PS keep: one replica of all datasets, and a table of shards per dataset."""

RECALLED_KEY = "ledger_recalled"
MEMO_BYTES_MAX = 256 << 20


def pack_replica(replicas: Mapping[str, DatasetReplica], unused: Mapping[str, Position], last_lease: int) -> bytes:
    """`unused`: positions that were restored for datasets that nobody has declared."""
    values = {
        "lease": last_lease, "unused": base64.b64encode(positions.pack(unused)).decode(),
        "datasets": {name: replica.plain() for name, replica in replicas.items()},
    }  # fmt: skip
    return zlib.compress(json.dumps(values, separators=(",", ":")).encode(), 1)


def unpack_replica(packed: bytes) -> tuple[dict[str, DatasetReplica], bytes, int]:
    """Memos, packed positions that were not used yet, the highest lease. Damaged bytes are as good as none."""
    try:
        values = json.loads(zlib.decompressobj().decompress(packed, MEMO_BYTES_MAX) or b"{}")
        replicas = {str(name): DatasetReplica.from_plain(one) for name, one in values.get("datasets", {}).items()}
        return replicas, base64.b64decode(values.get("unused", "")), int(values.get("lease", 0))
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("the replica of the data ledger cannot be read (%r): it is rebuilt from the trainers alone", error)
        return {}, b"", 0


def dataset_sources(
    remembered: Mapping[str, bytes], told: Mapping[str, Iterable[pb.DataKnown]]
) -> tuple[dict[str, DatasetSources], bytes, int]:
    """By dataset; positions that were not used yet, packed; the highest lease ever given.

    Args:
        remembered: key → value, as the PS kept them.
        told: incarnation → what it knows.
    """
    replicas, unused, lease = unpack_replica(remembered.get(REPLICA, b""))
    by_dataset: dict[str, dict[str, pb.DataKnown]] = {name: {} for name in replicas}
    for who, datasets in told.items():
        for known in datasets:
            by_dataset.setdefault(known.dataset, {})[who] = known
            lease = max([lease, known.highest_lease, *(one.id for one in known.held)])
    found = {
        name: DatasetSources(replicas.get(name), remembered.get(TABLE + name, b""), some)
        for name, some in by_dataset.items()
    }
    return found, unused, lease


def pack(known: Mapping[str, DatasetSources]) -> bytes:
    """For the store, under `RECALLED_KEY`."""
    return json.dumps({name: one.plain() for name, one in known.items()}).encode() if known else b""


class RebuiltDatasets:
    """Recollections, from a rebuilt store, until their datasets are declared."""

    def __init__(self, store: Store) -> None:
        self._store = store
        packed = store.blob(RECALLED_KEY)
        self._known = {name: DatasetSources.from_plain(one) for name, one in json.loads(packed or b"{}").items()}
        self._changed = False

    def save(self) -> None:
        """In the transaction that writes the datasets that were taken."""
        if self._changed:
            self._store.put_blob(RECALLED_KEY, pack(self._known))
            self._store.after_commit(self._saved)

    def _saved(self) -> None:
        self._changed = False

    def take(self, dataset: str) -> DatasetSources | None:
        found = self._known.pop(dataset, None)
        self._changed = self._changed or found is not None
        return found

    def clear(self) -> None:
        """The model was restored: the data follows it."""
        self._changed = self._changed or bool(self._known)
        self._known = {}

    def release(self, incarnation: str) -> None:
        """It is gone; what it held is nobody's."""
        if incarnation in self.holders():
            self._known = {name: one.without(incarnation) for name, one in self._known.items()}
            self._changed = True

    def holders(self) -> set[str]:
        return {who for one in self._known.values() for who in one.holders}

    def replicas(self) -> dict[str, DatasetReplica]:
        return {name: one.replica for name, one in self._known.items() if one.replica is not None}

    def tables(self) -> dict[str, bytes]:
        return {name: one.shards for name, one in self._known.items()}

    def positions(self) -> dict[str, Position]:
        return {name: replica.position for name, replica in self.replicas().items()}
