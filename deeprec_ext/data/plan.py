"""What the user asks for, checked and turned into the declaration that the ledger gets. No TensorFlow, no thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Union

from deeprec_ext.data import files as disk
from deeprec_ext.data.readers import IndexReader, Reader, by_name
from deeprec_ext.errors import UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

PURPOSES = ("train", "evaluate", "predict")

SHARD_BATCHES = 32
"""Batches in a shard, where the user does not say: a lease is then worth about a second of training."""

SHARD_RECORDS = (256, 65536)
"""Bounds of that default: shards are shuffled among each other and records only inside one; a shard is read at once."""

SHARDS_LEAST, SHARD_BATCHES_LEAST = 64, 2
"""An epoch over rows has so many shards, if that leaves them so many batches: else some processes had all rows of it, and
others none."""

Files = Union[str, "os.PathLike[str]", Iterable[Union[str, "os.PathLike[str]"]], int, range]


@dataclass(frozen=True)
class Plan:
    """A checked dataset."""

    declaration: pb.Dataset
    reader: Reader
    batch_size: int
    with_ids: bool = False
    drop_remainder: bool = False
    """There is no batch of fewer records."""
    whole_shards: bool = False
    """A batch is a shard, of which `ShardFeeder.shard` tells the place."""

    def of_its_own(self, name: str, epochs: int, content: str = "", in_turn: bool = True) -> Plan:
        """The same records as a dataset of its own.

        Args:
          epochs: how often the whole plan is read; 0: without end.
          content: of what the records hold: processes whose contents differ are told.
          in_turn: an epoch begins when all processes have trained the one before.
        """
        declaration = pb.Dataset()
        declaration.CopyFrom(self.declaration)
        declaration.name, declaration.epochs, declaration.in_turn = name, epochs, in_turn
        declaration.content = content
        return replace(self, declaration=declaration)

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self.declaration.files]


def plan(
    files: Files, batch_size: int, epochs: int | None, shuffle: bool, seed: int, reader: str | Callable[..., Any] | Reader,
    shard_records: int | None, name: str | None, purpose: str, set_aside: bool, reader_options: dict[str, Any],
    drop_remainder: bool = False,
) -> Plan:  # fmt: skip
    """Raises UsageError naming the argument and the remedy."""
    _whole("batch_size", batch_size, 1)
    if epochs is not None:
        _whole("epochs", epochs, 1, " (None: without end)")
    if purpose not in PURPOSES:
        raise UsageError(f"purpose={purpose!r}: one of {', '.join(PURPOSES)}")
    if not -(2**63) <= int(seed) < 2**63:
        raise UsageError(f"seed={seed}: must fit 64 bits")
    if name is not None and not 0 < len(name) <= 100:
        raise UsageError(f"name={name!r}: 1 to 100 characters")
    if shard_records is None:
        least, most = SHARD_RECORDS
        shard_records = max(batch_size, min(most, max(least, SHARD_BATCHES * batch_size)))
        if drop_remainder:  # else a shard of rows that batches divide would leave some of them
            shard_records -= shard_records % batch_size
    _whole("shard_records", shard_records, 1)
    if isinstance(files, (int, range)) and reader == "lines":
        reader = "range"
    found = by_name(reader, **reader_options)
    declaration = pb.Dataset(
        name=name or purpose, files=_files(files, found), epochs=epochs or 0, shuffle=bool(shuffle), seed=int(seed),
        shard_records=shard_records, reader=found.name, set_aside=set_aside, purpose=purpose,
    )  # fmt: skip
    return Plan(declaration, found, batch_size, drop_remainder=drop_remainder)


def shard_of(count: int, batch_size: int) -> int | None:
    """Rows that are leased at once. None: the default."""
    few = max(SHARD_BATCHES_LEAST, count // batch_size // SHARDS_LEAST)
    return batch_size * few if few < SHARD_BATCHES else None


def _files(files: Files, reader: Reader) -> list[pb.DataFile]:
    if isinstance(reader, IndexReader):
        if isinstance(files, range):
            if files.start != 0 or files.step != 1:
                raise UsageError(f"files={files}: an index range begins at 0 and has step 1; add the start in a map")
            files = len(files)
        if not isinstance(files, int) or isinstance(files, bool) or files < 1:
            raise UsageError(f"files={files!r}: reader 'range' wants the number of records, at least 1")
        return [pb.DataFile(records=files)]
    if isinstance(files, (int, range)):
        raise UsageError(f"files={files!r}: a number of records goes with reader='range'")
    return [pb.DataFile(path=path, bytes=disk.size(path)) for path in disk.matching(files)]


def _whole(what: str, value: Any, least: int, hint: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{what}={value!r}: a whole number, at least {least}{hint}")
