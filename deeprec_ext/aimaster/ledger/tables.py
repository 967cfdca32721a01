"""The ledger in the store: one row per dataset, epoch that has begun, visit that is open, and counted file.

A shard that is TODO or DONE has no row. `save` writes what has changed since the last time; the caller holds the transaction.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import Any

from deeprec_ext.aimaster.ledger import position as positions
from deeprec_ext.aimaster.ledger.dataset import Counters, Dataset
from deeprec_ext.aimaster.ledger.declaration import check
from deeprec_ext.aimaster.ledger.files import FileShards
from deeprec_ext.aimaster.ledger.leasing import Holder
from deeprec_ext.aimaster.ledger.visits import SCAN, Epoch, Numbers, Visit
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.decoding import built
from deeprec_ext.proto import bounds
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.units import saturated

log = logging.getLogger(__name__)

LEASE_KEY = "ledger_lease"


class Tables:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._ids: dict[str, int] = {}

    def numbers(self) -> Numbers:
        return Numbers(int(self._store.get(LEASE_KEY, 0)))

    def rolled_back(self) -> None:
        """The transaction of the last `save` came to nothing: datasets may have no row."""
        self._ids = dict(self._store.rows("SELECT name, id FROM ledger_datasets"))

    def save_numbers(self, numbers: Numbers) -> None:
        self._store.put(**{LEASE_KEY: numbers.last})

    # ------------------------------------------------------------------------------------------------ writing

    def save(self, dataset: Dataset) -> None:
        """Writes what has changed; the caller says `dataset.saved()` when it is committed."""
        changes = dataset.visits.changes
        if dataset.changed or changes.everything or changes.epochs:
            self._save_row(dataset)
        identifier = self._ids[dataset.name]
        if changes.everything:
            self._store.write("DELETE FROM ledger_visits WHERE dataset=?", [(identifier,)])
            self._store.write("DELETE FROM ledger_epochs WHERE dataset=?", [(identifier,)])
            epochs = dataset.visits.epochs.values()
            changes.epochs = {epoch.number for epoch in epochs}
            changes.visits = {(epoch.number, rank) for epoch in epochs for rank in epoch.open}
        self._save_visits(identifier, dataset, changes.visits)
        self._save_epochs(identifier, dataset, changes.epochs)
        files = [(identifier, file, dataset.table.shards(file)) for file in changes.files]
        self._store.write(
            "INSERT OR REPLACE INTO ledger_files VALUES (?, ?, ?)",
            [(identifier, file, shards.pack()) for identifier, file, shards in files if shards is not None],
        )
        told = dataset.replayed_changes
        self._store.write(
            "INSERT OR REPLACE INTO ledger_replayed VALUES (?, ?, ?)",
            [(identifier, incarnation, dataset.replayed[incarnation]) for incarnation in told],
        )

    def _save_row(self, dataset: Dataset) -> None:
        visits = dataset.visits
        values = {
            "counters": dataclasses.asdict(dataset.counters), "failures": dataset.failures, "error": dataset.error,
            "complete": visits.complete, "complete_aside": visits.complete_aside, "aside": sorted(visits.aside),
            "told_end": dataset.told_end, "came_to": dataset.ends.came_to, "begun": dataset.ends.begun,
            "reached": dataset.ends.reached, "passes": dataset.ends.passes,
        }  # fmt: skip
        pending = b"" if dataset.pending is None else positions.pack({dataset.name: dataset.pending})
        text = json.dumps(values, separators=(",", ":"))
        if (identifier := self._ids.get(dataset.name)) is not None:
            self._store.write("UPDATE ledger_datasets SET json=?, pending=? WHERE id=?", [(text, pending, identifier)])
            return
        declaration = dataset.declaration.SerializeToString(deterministic=True)
        row = (dataset.name, declaration, text, pending)
        self._store.write("INSERT INTO ledger_datasets VALUES (NULL, ?, ?, ?, ?)", [row])
        [(self._ids[dataset.name],)] = self._store.rows("SELECT id FROM ledger_datasets WHERE name=?", (dataset.name,))

    def _save_visits(self, identifier: int, dataset: Dataset, keys: set[tuple[int, int]]) -> None:
        epochs, kept, gone = dataset.visits.epochs, [], []
        for number, rank in keys:
            epoch = epochs.get(number)
            visit = epoch.open.get(rank) if epoch is not None else None
            if visit is None:
                gone.append((identifier, number, rank))
            else:
                kept.append((identifier, number, rank, visit.records, visit.done, visit.lease, visit.incarnation,
                             visit.sequence))  # fmt: skip
        self._store.write("DELETE FROM ledger_visits WHERE dataset=? AND epoch=? AND rank=?", gone)
        self._store.write("INSERT OR REPLACE INTO ledger_visits VALUES (?, ?, ?, ?, ?, ?, ?, ?)", kept)

    def _save_epochs(self, identifier: int, dataset: Dataset, numbers: set[int]) -> None:
        epochs = dataset.visits.epochs
        gone = [(identifier, number) for number in numbers if number not in epochs]
        kept = [epochs[number] for number in numbers if number in epochs and number != SCAN]
        self._store.write("DELETE FROM ledger_epochs WHERE dataset=? AND number=?", gone)
        self._store.write(
            "INSERT OR REPLACE INTO ledger_epochs VALUES (?, ?, ?, ?, ?)",
            [(identifier, epoch.number, epoch.cursor, epoch.issued, epoch.aside) for epoch in kept],
        )

    def remove(self, name: str) -> None:
        """All of this dataset."""
        identifier = self._ids.pop(name, 0)
        for table in ("files", "epochs", "visits", "replayed"):
            self._store.write(f"DELETE FROM ledger_{table} WHERE dataset=?", [(identifier,)])  # nosec B608 # the names are ours
        self._store.write("DELETE FROM ledger_datasets WHERE id=?", [(identifier,)])

    def redeclare(self, dataset: Dataset) -> None:
        declaration = dataset.declaration.SerializeToString(deterministic=True)
        self._store.write("UPDATE ledger_datasets SET declaration=? WHERE name=?", [(declaration, dataset.name)])

    # ------------------------------------------------------------------------------------------------ reading

    def load(self, numbers: Numbers, failures_max: int) -> dict[str, Dataset]:
        """All datasets, as they were at the last `save`; none in a store that is older than the ledger."""
        if not self._store.has_table("ledger_datasets"):
            return {}
        found = {}
        for row in self._store.rows("SELECT id, name, declaration, json, pending FROM ledger_datasets ORDER BY id"):
            identifier, name, declaration, text, pending = row
            self._ids[name] = identifier
            try:
                found[name] = self._read(identifier, declaration, text, pending, numbers, failures_max)
            except Exception as error:  # whatever it is: it would be the same at each start
                log.exception("dataset %r of the data ledger cannot be read", name)
                self._put_aside(name, declaration, text, error)
        return found

    def _read(
        self, identifier: int, declaration: bytes, text: str, pending: bytes, numbers: Numbers, failures_max: int
    ) -> Dataset:
        declared = pb.Dataset.FromString(declaration)
        if (violation := bounds.check(declared, "dataset.") or check(declared)) is not None and violation:
            raise ValueError(str(violation))
        dataset = Dataset(declared, numbers, failures_max)
        self._fill(identifier, dataset, json.loads(text))
        if pending:
            dataset.pending = positions.unpack(pending)[declared.name]
            dataset.visits.blocked = True
        dataset.saved()
        saturated(
            dataset.visits.trained + dataset.visits.current + dataset.repeated
        )  # asked for all the time: must work
        return dataset

    def _put_aside(self, name: str, declaration: bytes, text: str, error: Exception) -> None:
        """It begins anew when it is declared again."""
        self._store.quarantine("dataset", name, declaration, f"{type(error).__name__}: {error}")
        self._store.quarantine("state of dataset", name, text, "its dataset cannot be read")
        if not self._store.is_read_only:
            with self._store.transaction():
                self.remove(name)

    def _fill(self, identifier: int, dataset: Dataset, values: dict[str, Any]) -> None:
        rows, visits = self._store.rows, dataset.visits
        for file, packed in rows("SELECT file, shards FROM ledger_files WHERE dataset=?", (identifier,)):
            dataset.table.set(file, FileShards.unpack(packed))
        query = "SELECT number, cursor, issued, aside FROM ledger_epochs WHERE dataset=?"
        epochs = {row[0]: Epoch(*row) for row in rows(query, (identifier,))}
        query = "SELECT epoch, rank, records, done, lease, incarnation, sequence FROM ledger_visits WHERE dataset=?"
        scans = []
        for row in rows(query, (identifier,)):
            visit = Visit(*row)
            if visit.epoch == SCAN:
                scans.append(visit)
            else:
                epochs[visit.epoch].open[visit.rank] = visit
        dataset.counters = built(Counters, values["counters"], newer=True)
        dataset.failures, dataset.error = dict(values["failures"]), values["error"]
        dataset.told_end = values["told_end"]
        dataset.ends.came_to = [str(one) for one in values.get("came_to", ())]
        dataset.ends.begun = bool(values.get("begun", True))
        dataset.ends.reached, dataset.ends.passes = int(values.get("reached", 0)), int(values.get("passes", 1))
        visits.aside = set(values["aside"])
        visits.restore(values["complete"], values["complete_aside"], epochs.values())
        visits.restore_scans(scans)
        dataset.holders = {incarnation: Holder(incarnation) for incarnation in visits.holders()}
        query = "SELECT incarnation, records FROM ledger_replayed WHERE dataset=?"
        dataset.replayed = dict(rows(query, (identifier,)))
