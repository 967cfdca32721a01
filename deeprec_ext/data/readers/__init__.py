"""Readers: how records lie in a file. One file each; `by_name` is the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deeprec_ext.data.readers.base import Columns, Reader, Scan, Shard
from deeprec_ext.data.readers.indices import IndexReader
from deeprec_ext.data.readers.iterable import IterableReader
from deeprec_ext.data.readers.lines import LineReader
from deeprec_ext.data.readers.parquet import ParquetReader
from deeprec_ext.data.readers.tfrecord import TFRecordReader
from deeprec_ext.errors import UsageError


def by_name(reader: str | Callable[..., Any] | Reader, **options: Any) -> Reader:
    """The reader of that name, a user's own, or one around a function `path -> iterable of records`.

    Raises UsageError for an unknown name, or options that the reader does not have.
    """
    makers: dict[str, Callable[..., Reader]] = {
        "lines": LineReader,
        "csv": lambda **given: LineReader(**{"quotes": True, **given}),
        "tfrecord": TFRecordReader,
        "parquet": ParquetReader,
        "range": IndexReader,
    }
    if not isinstance(reader, str):
        if options:
            raise UsageError(f"reader options {', '.join(sorted(options))}: a reader of your own takes them itself")
        if hasattr(reader, "scan") and hasattr(reader, "read"):
            return reader  # type: ignore[return-value]
        if callable(reader):
            return IterableReader(reader)
        raise UsageError(f"reader={reader!r}: a name ({', '.join(makers)}), a function path -> records, or a Reader")
    if reader not in makers:
        raise UsageError(f"there is no reader {reader!r}; there are: {', '.join(makers)}")
    try:
        return makers[reader](**options)
    except TypeError as error:
        raise UsageError(f"reader {reader!r}: {error}") from error


__all__ = [
    "Columns",
    "IndexReader",
    "IterableReader",
    "LineReader",
    "ParquetReader",
    "Reader",
    "Scan",
    "Shard",
    "TFRecordReader",
    "by_name",
]
