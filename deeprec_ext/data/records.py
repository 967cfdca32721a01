"""`elastic_records`: the data ledger for Python loops, without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from deeprec_ext.data import streams
from deeprec_ext.data.plan import Files, plan
from deeprec_ext.data.readers import Reader
from deeprec_ext.data.readers.base import Columns


def elastic_records(
    files: Files,
    batch_size: int,
    epochs: int | None = 1,
    shuffle: bool = True,
    seed: int = 0,
    reader: str | Callable[..., Any] | Reader = "lines",
    *,
    shard_records: int | None = None,
    name: str | None = None,
    purpose: str = "train",
    set_aside: bool = False,
    reader_options: dict[str, Any] | None = None,
) -> Iterator[Columns]:
    """Batches as NumPy arrays (strings: arrays of bytes objects). Arguments as of `elastic_dataset`.

    A batch counts as trained when the next one is asked for, so do what is to be done with it before. The iterator waits
    for data, also for records that other workers may give back; it ends when the data has ended.
    """
    made = plan(
        files, batch_size, epochs, shuffle, seed, reader, shard_records, name, purpose, set_aside, reader_options or {}
    )  # fmt: skip
    return streams.batches(made)
