"""TFRecord files as TensorFlow itself checks them. Its public readers begin at the first record of a file only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def record_readers() -> Callable[[str], Any]:
    """Makes a reader of a path, with `read(offset)`, which returns (record, offset of the next).

    Raises ImportError without TensorFlow, which is imported here: `elastic_records` may do without.
    """
    from tensorflow.python.lib.io import _pywrap_record_io

    return _pywrap_record_io.RandomRecordReader
