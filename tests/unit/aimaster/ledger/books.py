"""A ledger of one dataset on a real store, without a job around it."""

from __future__ import annotations

from pathlib import Path

from deeprec_ext.aimaster.ledger.dataset import Dataset
from deeprec_ext.aimaster.ledger.tables import Tables
from deeprec_ext.aimaster.ledger.visits import Numbers
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.proto import deeprec_ext_pb2 as pb


def index_range(records: int, shard_records: int = 10, **fields: object) -> pb.Dataset:
    values: dict[str, object] = {"name": "train", "epochs": 1, "reader": "range", **fields}
    return pb.Dataset(files=[pb.DataFile(records=records)], shard_records=shard_records, **values)  # type: ignore[arg-type]


def text_files(count: int, **fields: object) -> pb.Dataset:
    values: dict[str, object] = {"name": "train", "epochs": 1, "reader": "text", "shard_records": 10, **fields}
    return pb.Dataset(files=[pb.DataFile(path=f"f{i}", bytes=100) for i in range(count)], **values)  # type: ignore[arg-type]


class Book:
    """`dataset`, written to `path` after every request, as the group commit does."""

    def __init__(self, path: Path | str, declaration: pb.Dataset) -> None:
        self.store = Store(Path(path))
        self.tables = Tables(self.store)
        self.numbers = self.tables.numbers()
        self.dataset = Dataset(declaration, self.numbers)
        self.now = 0.0
        self._sequences: dict[str, int] = {}
        self.save()

    def save(self) -> None:
        with self.store.transaction():
            self.tables.save(self.dataset)
            self.tables.save_numbers(self.numbers)
        self.dataset.saved()

    def restart(self) -> None:
        """Another AIMaster reads what the one before wrote."""
        self.tables = Tables(self.store)
        self.numbers = self.tables.numbers()
        self.dataset = self.tables.load(self.numbers, 3)[self.dataset.name]

    def ask(self, who: str, want: int = 0, **fields: object) -> pb.DataReply:
        """A request with the next sequence number, unless one is given."""
        sequence = fields.pop("sequence", None)
        if sequence is None:
            sequence = self._sequences[who] = self._sequences.get(who, 0) + 1
        fields.setdefault("rewinds", self.dataset.counters.rewinds)
        request = pb.DataRequest(sequence=sequence, dataset="train", want=want, **fields)  # type: ignore[arg-type]
        reply = self.dataset.answer(who, request, self.now)
        self.save()
        return reply

    def progress(self, who: str, lease: pb.Lease, done: int | None = None, **fields: object) -> pb.DataReply:
        count = lease.records if done is None else done
        return self.ask(who, progress=[pb.LeaseProgress(lease=lease.id, done=count)], **fields)


def numbers() -> Numbers:
    return Numbers()
