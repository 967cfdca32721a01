"""What a ledger remembers of datasets that nobody has declared again since the store was rebuilt; and how memos are packed."""

from __future__ import annotations

import base64
import json
import logging
import zlib
from collections.abc import Iterable, Mapping

from deeprec_ext.aimaster.ledger import position as positions
from deeprec_ext.aimaster.ledger.position import Position
from deeprec_ext.aimaster.ledger.recalling import Memo, Recollection
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger(__name__)

MEMO, TABLE = "ledger", "shards/"
"""Keys of what PS keep: one memo of all datasets, and a table of shards per dataset."""

RECALLED_KEY = "ledger_recalled"
MEMO_BYTES_MAX = 256 << 20


def pack_memos(memos: Mapping[str, Memo], unused: Mapping[str, Position], last_lease: int) -> bytes:
    """`unused`: positions that were restored for datasets that nobody has declared."""
    values = {
        "lease": last_lease, "unused": base64.b64encode(positions.pack(unused)).decode(),
        "datasets": {name: memo.plain() for name, memo in memos.items()},
    }  # fmt: skip
    return zlib.compress(json.dumps(values, separators=(",", ":")).encode(), 1)


def unpack_memos(packed: bytes) -> tuple[dict[str, Memo], bytes, int]:
    """Memos, packed positions that were not used yet, the highest lease. Damaged bytes are as good as none."""
    try:
        values = json.loads(zlib.decompressobj().decompress(packed, MEMO_BYTES_MAX) or b"{}")
        memos = {str(name): Memo.from_plain(one) for name, one in values.get("datasets", {}).items()}
        return memos, base64.b64decode(values.get("unused", "")), int(values.get("lease", 0))
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("the memo of the data ledger cannot be read (%r): it is rebuilt from the trainers alone", error)
        return {}, b"", 0


def recollections(
    remembered: Mapping[str, bytes], told: Mapping[str, Iterable[pb.DataKnown]]
) -> tuple[dict[str, Recollection], bytes, int]:
    """By dataset; positions that were not used yet, packed; the highest lease ever given.

    Args:
        remembered: key → value, as the PS kept them.
        told: incarnation → what it knows.
    """
    memos, unused, lease = unpack_memos(remembered.get(MEMO, b""))
    by_dataset: dict[str, dict[str, pb.DataKnown]] = {name: {} for name in memos}
    for who, datasets in told.items():
        for known in datasets:
            by_dataset.setdefault(known.dataset, {})[who] = known
            lease = max([lease, known.highest_lease, *(one.id for one in known.held)])
    found = {
        name: Recollection(memos.get(name), remembered.get(TABLE + name, b""), some)
        for name, some in by_dataset.items()
    }
    return found, unused, lease


def pack(known: Mapping[str, Recollection]) -> bytes:
    """For the store, under `RECALLED_KEY`."""
    return json.dumps({name: one.plain() for name, one in known.items()}).encode() if known else b""


class Recalled:
    """Recollections, from a rebuilt store, until their datasets are declared."""

    def __init__(self, store: Store) -> None:
        self._store = store
        packed = store.blob(RECALLED_KEY)
        self._known = {name: Recollection.from_plain(one) for name, one in json.loads(packed or b"{}").items()}
        self._changed = False

    def save(self) -> None:
        """In the transaction that writes the datasets that were taken."""
        if self._changed:
            self._store.put_blob(RECALLED_KEY, pack(self._known))
            self._store.after_commit(self._saved)

    def _saved(self) -> None:
        self._changed = False

    def take(self, dataset: str) -> Recollection | None:
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

    def memos(self) -> dict[str, Memo]:
        return {name: one.memo for name, one in self._known.items() if one.memo is not None}

    def tables(self) -> dict[str, bytes]:
        return {name: one.shards for name, one in self._known.items()}

    def positions(self) -> dict[str, Position]:
        return {name: memo.position for name, memo in self.memos().items()}
