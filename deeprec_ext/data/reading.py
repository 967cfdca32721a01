"""The files of a dataset, read by leases and with patience: an error of the file system may pass."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from deeprec_ext.data import files
from deeprec_ext.data.errors import ChangedError
from deeprec_ext.data.readers.base import Columns, Lenient, Reader, Shard
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")

RETRY_SECONDS = (0.5, 1.0, 2.0)
"""Waits after an error of the file system; then the shard has failed here."""

TOLD_MAX = 10
"""Damaged records of a shard that stand in the log one by one."""

T = TypeVar("T")


class LeasedFiles:
    """Raises what the reader raises, which may be the user's, and ChangedError for a file that is not what was declared.

    Args:
      declaration: of the dataset, with its files; reader: of them.
      skip: damaged records are left out, where the reader can do that.
      pause: waits so many seconds; whether to give up.
    """

    def __init__(
        self, declaration: pb.Dataset, reader: Reader, pause: Callable[[float], bool], skip: bool = False
    ) -> None:
        self._declaration, self._reader, self._pause = declaration, reader, pause
        self._lenient = reader if skip and isinstance(reader, Lenient) else None

    def path(self, lease: pb.Lease) -> str:
        return self._declaration.files[lease.file].path

    def shard(self, lease: pb.Lease) -> Shard:
        return Shard(self.path(lease), lease.shard, lease.first_record, lease.records, lease.begin_byte, lease.end_byte)

    def scan(self, lease: pb.Lease) -> pb.Scanned:
        """Counts the records of the lease's file."""
        records = max(1, self._declaration.shard_records)
        scan_ = self._reader.scan if self._lenient is None else self._lenient.scan_leniently
        scan = self._patiently(lease, lambda: scan_(self.path(lease), records))
        return pb.Scanned(lease=lease.id, begins=scan.begins, records=scan.records, end_byte=scan.end)

    def read(self, lease: pb.Lease) -> tuple[Columns, Sequence[int]]:
        """All records of the lease's shard, in the order of the file, and which of them are damaged and to be left out."""
        shard, lenient = self.shard(lease), self._lenient
        if lenient is None:
            return self._patiently(lease, lambda: self._reader.read(shard)), ()
        found = self._patiently(lease, lambda: lenient.read_leniently(shard))
        for error in found.errors[:TOLD_MAX]:
            log.warning("dataset %s: %s; it is left out", self._declaration.name, error)
        if len(found.bad) > TOLD_MAX:
            log.warning("dataset %s: %s: %d records are left out", self._declaration.name, shard, len(found.bad))
        return found.columns, found.bad

    def _patiently(self, lease: pb.Lease, work: Callable[[], T]) -> T:
        file = self._declaration.files[lease.file]
        for seconds in (*RETRY_SECONDS, 0.0):
            try:
                if file.path:
                    _check_size(file.path, file.bytes)
                return work()
            except OSError as error:
                if not seconds or self._pause(seconds):
                    raise
                log.warning("dataset %s: %s; trying again", self._declaration.name, error)
        raise AssertionError("the last attempt returns or raises")


def _check_size(path: str, before: int) -> None:
    """Raises ChangedError when the file is not as large as when the dataset was declared, or gone."""
    now = files.size(path)
    if now != before:
        how = "shrunk" if now < before else "grown"
        raise ChangedError(f"{path} has {how} from {before} to {now} bytes since the dataset was declared")
