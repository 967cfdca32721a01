"""The records of `--data`: which files, how they are read, and what `feed` is given of them.

`feed` gets a dataset of single records: a serialised Example, a line, a row of strings, or a dict of columns.
"""

from __future__ import annotations

import csv
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from deeprec_ext.data import files as disk
from deeprec_ext.data.readers import Columns, by_name
from deeprec_ext.errors import UsageError
from deeprec_ext.modeldef.words import Metadata

READERS = ("auto", "tfrecord", "lines", "csv", "columns", "parquet")
"""`columns`: CSV with a header line, a record is the row of its values. `csv`: a line, of which quotes may go over several."""

_BY_ENDING = {
    "tfrecord": "tfrecord",
    "tfrecords": "tfrecord",
    "parquet": "parquet",
    "csv": "csv",
    "tsv": "lines",
    "txt": "lines",
}
_RECORDIO = b"\x04\x03\x02\x01"
"""How a chunk of a RecordIO file begins."""


@dataclass(frozen=True)
class Source:
    """Files, and how they are read."""

    paths: tuple[str, ...]
    reader: str
    skip_lines: int = 0
    metadata: Metadata = field(default_factory=Metadata)

    @property
    def reading(self) -> dict[str, Any]:
        """Keyword arguments of `elastic_dataset` and `plan`: reader and its options."""
        if self.reader == "columns":
            return {"reader": "csv", "reader_options": {"skip_lines": max(1, self.skip_lines)}}
        options = {"skip_lines": self.skip_lines} if self.skip_lines else {}
        return {"reader": self.reader, "reader_options": options}

    def records(self, batch: Any) -> Any:
        """Within a graph: what `feed` shall see of a batch of the reader: tensors whose first dimension is the record."""
        if self.reader != "columns":
            return batch
        names = self.metadata.column_names or ()
        return tf.stack(tf.io.decode_csv(batch, [[""]] * len(names)), axis=1)


def source(data: str, reader: str = "auto", skip_lines: int = 0) -> Source:
    """
    Args:
      data: directory (its files), file or pattern, or several of these with commas between.
      reader: one of READERS.
      skip_lines: lines at the beginning of each file that are no records.

    Raises UsageError when nothing is there, or it cannot be read so.
    """
    if reader not in READERS:
        raise UsageError(f"--reader {reader}: one of {', '.join(READERS)}")
    paths = tuple(path for place in data.split(",") for path in _files(place.strip()))
    if reader == "auto":
        reader = _reader_of(paths[0])
    if skip_lines and reader not in ("lines", "csv", "columns"):
        raise UsageError(f"--skip-lines {skip_lines}: files read as {reader} have no lines")
    return Source(paths, reader, skip_lines, _metadata(paths[0], reader))


def _files(place: str) -> Sequence[str]:
    if not place:
        raise UsageError("--data: an empty path; name a directory, files or a pattern")
    if tf.io.gfile.isdir(place):
        names = sorted(name for name in tf.io.gfile.listdir(place) if not name.startswith((".", "_")))
        found = [path for path in (os.path.join(place, name) for name in names) if not tf.io.gfile.isdir(path)]
        if not found:
            raise UsageError(f"--data {place}: the directory has no files")
        return found
    return disk.matching(place)


def _reader_of(path: str) -> str:
    ending = path.rpartition(".")[2].lower()
    if ending in _BY_ENDING:
        return _BY_ENDING[ending]
    with disk.opened(path) as file:
        begin = bytes(file.read(12))
    if begin[:4] == _RECORDIO:
        raise UsageError(f"{path}: looks like RecordIO, which is not read here; write its records into a TFRecord file")
    if len(begin) == 12 and 0 < struct.unpack("<Q", begin[:8])[0] <= disk.size(path) and b"\0\0\0" in begin[2:8]:
        return "tfrecord"  # a length of 8 bytes
    return "lines"


def _metadata(path: str, reader: str) -> Metadata:
    if reader == "columns":
        with disk.opened(path) as file:
            block = bytes(file.read(1 << 20))
        header = block.splitlines()[:1]
        if not header:
            raise UsageError(
                f"{path}: it is empty, and --reader columns wants a header line with the names of the columns"
            )
        return Metadata(tuple(next(csv.reader([header[0].decode("utf-8", "replace")]))))
    if reader == "parquet":
        columns: Columns | None = by_name("parquet").sample(path)
        if isinstance(columns, dict):
            return Metadata(tuple(columns), {name: column.dtype for name, column in columns.items()})
    return Metadata()
