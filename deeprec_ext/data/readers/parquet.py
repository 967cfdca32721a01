"""Parquet: a batch is a dict of columns, read by pyarrow or, where it is missing, by tensorflow-io.

Shards do not cross row groups and are row numbers, not bytes. Numbers, booleans and strings; without nulls in number columns
(a null string is empty). One decoded row group is kept: neighbouring shards come from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from deeprec_ext.data import files
from deeprec_ext.data.errors import ChangedError, DataError
from deeprec_ext.data.readers.base import Scan, Shard, concatenate, shares, strings, take
from deeprec_ext.errors import UsageError

INSTALL = 'pip install "pyarrow<25"'
"""The last that work with NumPy 1, which TensorFlow has up to 2.17."""


MAGIC = b"PAR1"
"""At both ends of a file; tensorflow-io does not look, and takes the process with it (signal 11)."""


class ParquetReader:
    """Args:
    columns: names of the columns wanted; None: all.
    """

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        self._columns = list(columns) if columns is not None else None
        self.name = "parquet" + (f"-{','.join(self._columns)}" if self._columns else "")
        self._kept: tuple[tuple[str, int, int], dict[str, np.ndarray], int] | None = None

    def sample(self, path: str) -> dict[str, np.ndarray]:
        return self._file(path).sample()

    def scan(self, path: str, shard_records: int) -> Scan:
        begins: list[int] = []
        counts: list[int] = []
        first = 0
        for rows in self._file(path).groups():
            begins += range(first, first + rows, shard_records)
            counts += shares(rows, shard_records)
            first += rows
        return Scan(begins, counts, first)

    def read(self, shard: Shard) -> dict[str, np.ndarray]:
        parts, at, end = [], shard.first, shard.first + shard.records
        while at < end:  # mostly once; a scan without row groups (tensorflow-io) may cut across them
            columns, first = self._group_of(shard, at)
            rows = min(end - first, len(next(iter(columns.values()))))
            parts.append(take(columns, slice(at - first, rows)))
            at = first + rows
        return concatenate(parts)  # type: ignore[return-value]

    def _group_of(self, shard: Shard, row: int) -> tuple[dict[str, np.ndarray], int]:
        """The row group that has this row, and the number of its first row."""
        size = files.size(shard.path)
        if self._kept is not None:
            key, columns, first = self._kept
            if key[0] == shard.path and key[2] == size and first <= row < first + len(next(iter(columns.values()))):
                return columns, first
        file = self._file(shard.path)
        first = 0
        for number, rows in enumerate(file.groups()):
            if row < first + rows:
                columns = file.group(number, first, rows)
                self._kept = (shard.path, number, size), columns, first
                return columns, first
            first += rows
        raise ChangedError(f"{shard}: the file has only {first} records: it has shrunk since they were counted")

    def _file(self, path: str) -> Any:
        files.size(path)
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:  # not there, or made for another NumPy: 26 and later want NumPy 2
            return _TensorFlowFile(path, self._columns, error)
        return _ArrowFile(path, self._columns)


def _check(path: str, wanted: Sequence[str] | None, there: Sequence[str]) -> None:
    if missing := [name for name in wanted or () if name not in there]:
        raise DataError(f"{path} has no column {', '.join(missing)}; it has {', '.join(there)}")


class _ArrowFile:
    def __init__(self, path: str, columns: list[str] | None) -> None:
        import pyarrow
        import pyarrow.parquet

        self._path, self._columns = path, columns
        try:
            with files.opened(path) as file:
                data = file if "://" not in path else pyarrow.BufferReader(bytes(file.read()))
                self._file = pyarrow.parquet.ParquetFile(
                    data if "://" in path else path, page_checksum_verification=True
                )
        except pyarrow.ArrowInvalid as error:
            raise DataError(f"{path} is no Parquet file: {error}") from error
        _check(path, columns, self._file.schema_arrow.names)

    def groups(self) -> list[int]:
        metadata = self._file.metadata
        return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]

    def sample(self) -> dict[str, np.ndarray]:
        table = self._file.schema_arrow.empty_table()
        return self._arrays(table.select(self._columns) if self._columns else table)

    def group(self, number: int, first: int, rows: int) -> dict[str, np.ndarray]:
        try:
            return self._arrays(self._file.read_row_group(number, columns=self._columns))
        except (OSError, ValueError) as error:  # pyarrow's; a checksum of a page among them
            files.size(self._path)  # gone?
            raise ChangedError(
                f"{self._path}: row group {number}, from record {first} on, is damaged: {error}"
            ) from error

    def _arrays(self, table: Any) -> dict[str, np.ndarray]:
        import pyarrow

        found = {}
        for name in table.column_names:
            column, kind = table.column(name), table.schema.field(name).type
            if pyarrow.types.is_dictionary(kind):  # what pandas calls a category
                column, kind = column.cast(kind.value_type), kind.value_type
            if pyarrow.types.is_string(kind) or pyarrow.types.is_binary(kind) or pyarrow.types.is_large_string(kind):
                values = column.cast(pyarrow.large_binary()).to_pylist()
                found[name] = strings([value if value is not None else b"" for value in values])
            elif pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind):
                if column.null_count:
                    raise DataError(f"{self._path}: column {name} has nulls; fill them, or choose columns=")
                found[name] = column.to_numpy()
            else:
                raise DataError(f"{self._path}: column {name} is {kind}; readable are numbers, booleans and strings")
        return found


class _TensorFlowFile:
    """Through tensorflow-io: it does not tell row groups, so the whole file is one."""

    def __init__(self, path: str, columns: list[str] | None, why: ImportError) -> None:
        try:
            import tensorflow as tf
            import tensorflow_io as tfio
        except ImportError as error:
            raise UsageError(
                f"reading Parquet needs pyarrow, or tensorflow-io, which there is for Python up to 3.11: {INSTALL} "
                f"({why}; {error})"
            ) from error
        self._tensorflow = tf
        self._why = why
        end = files.size(path)
        if end < 12 or {files.read_range(path, at, at + 4) for at in (0, end - 4)} != {MAGIC}:
            raise DataError(f"{path} is no Parquet file: it does not begin and end with PAR1")  # else: a crash
        try:
            tensor = self._eagerly(lambda: tfio.IOTensor.from_parquet(path))
        except (tf.errors.OpError, ValueError) as error:
            raise DataError(f"{path} is no Parquet file: {error}") from error
        except NotImplementedError as error:  # its library does not load
            raise UsageError(
                f"reading Parquet needs pyarrow, since the tensorflow-io that is installed was not built for TensorFlow "
                f"{tf.__version__}: {INSTALL} ({why})"
            ) from error
        names = [bytes(column.numpy()).decode() for column in tensor.columns]
        self._columns = dict(zip(names, tensor._values))
        _check(path, columns, names)
        self._wanted = columns or names

    def _eagerly(self, work: Callable[[], Any]) -> Any:
        """In a thread of its own, where no graph is the default: an input_fn is called in one."""

        def checked() -> Any:
            if not self._tensorflow.executing_eagerly():
                raise UsageError(
                    f"reading Parquet in a script that disabled eager execution needs pyarrow: {INSTALL} ({self._why})"
                )
            return work()

        with ThreadPoolExecutor(1, "deeprec-parquet") as pool:
            return pool.submit(checked).result()

    def groups(self) -> list[int]:
        return [int(self._columns[self._wanted[0]].shape[0])]

    def sample(self) -> dict[str, np.ndarray]:
        return {name: values[:0] for name, values in self.group(0, 0, 1).items()}

    def group(self, number: int, first: int, rows: int) -> dict[str, np.ndarray]:
        return self._eagerly(
            lambda: {name: self._columns[name][first : first + rows].numpy().reshape(-1) for name in self._wanted}
        )
