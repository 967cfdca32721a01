"""`elastic_dataset`: a tf.data.Dataset of batches whose records are leased from the AIMaster."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.data import streams
from deeprec_ext.data.ids import as_features
from deeprec_ext.data.plan import Files, Plan, plan
from deeprec_ext.data.readers import Reader
from deeprec_ext.data.readers.base import Columns
from deeprec_ext.errors import UsageError
from deeprec_ext.graph.marks import READS, RECORD, Mark

FORMATS = {"lines": "text", "csv": "csv", "tfrecord": "tfrecord", "parquet": "parquet"}
"""Reader → format of its files."""

PATHS_MAX = 10_000
"""Files that are named to the graph."""


def elastic_dataset(
    files: Files,
    batch_size: int,
    epochs: int | None = 1,
    shuffle: bool = True,
    seed: int = 0,
    reader: str | Callable[..., Any] | Reader = "lines",
    *,
    with_ids: bool = False,
    drop_remainder: bool = False,
    shard_records: int | None = None,
    name: str | None = None,
    purpose: str = "train",
    set_aside: bool = False,
    reader_options: dict[str, Any] | None = None,
) -> tf.data.Dataset:
    """Batches of the records of `files`, each record once an epoch, over all workers of the job together.

    In a job, records are leased from the AIMaster and acknowledged when the training step that used them has run; outside,
    the same batches come from this process alone. Shuffling, epochs and batching are done here: stages that keep the order
    one to one (map, prefetch) may follow; shuffle, filter, repeat, batch and the like are refused, unless `with_ids`.

    Args:
      files: a pattern, a path, a list of these, anything that tf.io.gfile reads; for reader "range" the number of records.
      batch_size: records in a batch. The last one, and one before a wait for other workers, may have fewer: the first
        dimension of the elements is None.
      epochs: how often each record is given; None: without end.
      shuffle: shards among each other, and records inside a shard; the order depends on `seed` and epoch alone.
      seed: of the order.
      reader: "lines", "csv" (lines whose line ends may be quoted), "tfrecord": elements are strings, shape [batch];
        "parquet": a dict of columns; "range": int64 [batch]; a function path -> iterable of records; a `readers.Reader`.
      with_ids: elements are dicts (a plain batch is the feature `record`) that also have `deeprec_record`, int64 [batch, 2];
        keep it among the features, and stages after it may also shuffle, filter and batch anew.
      drop_remainder: elements have the shape [batch_size]; fewer records that a process has left at the end of an epoch are
        in no batch, and count as trained. Not `with_ids`: `batch` after it does that.
      shard_records: records in a lease; default: 32 batches.
      name: tells the datasets of a job apart; default: the purpose.
      purpose: "train", or "evaluate" or "predict": then every pass is one of its own, and reading acknowledges.
      set_aside: a shard that keeps failing is left out, and reported, instead of ending the job.
      reader_options: "lines" and "csv": skip_lines=; "parquet": columns=.

    Raises UsageError for arguments that cannot be, and for a pattern that matches nothing.
    """
    try:
        made = plan(
            files, batch_size, epochs, shuffle, seed, reader, shard_records, name, purpose, set_aside, reader_options or {},
            drop_remainder,
        )  # fmt: skip
        if with_ids and drop_remainder:
            raise UsageError(
                "drop_remainder=True goes without with_ids=True: drop it in the batch() after this dataset"
            )
        made = dataclasses.replace(made, with_ids=with_ids)
        streams.prepare(made)
    except UsageError as error:
        home = streams.trainer()
        if home is not None:  # no use to start the process again and again
            home.refused(f"elastic_dataset: {error}")
        raise
    signature = signature_of(made)
    if not tf.executing_eagerly():
        _tell_graph(made)
    return tf.data.Dataset.from_generator(
        lambda: streams.batches(made),
        output_signature=signature,
        name=Mark(made.declaration.name, batch_size, with_ids).identifier(),
    )


def _tell_graph(made: Plan) -> None:
    """What it reads: the graph itself has a Python generator."""
    graph = tf.compat.v1.get_default_graph()
    for one in reads_of(made) if made.declaration.purpose == "train" else ():
        graph.add_to_collection(READS, one)


def reads_of(made: Plan) -> Sequence[str]:
    """The format and the files, as `graph.marks.READS` has them."""
    paths = made.paths[:PATHS_MAX] if made.reader.name in FORMATS else ()
    return [f"format:{FORMATS.get(made.reader.name, 'python')}", *(f"text:{path}" for path in paths)]


def signature_of(made: Plan) -> Any:
    """Of its batches: TensorSpecs, whose first dimension is not known unless all are full."""
    sample = made.reader.sample(made.paths[0])
    if sample is None:
        sample = np.empty(0, object)
    if made.with_ids:
        sample = {**as_features(sample), RECORD: np.empty([0, 2], np.int64)}
    size = made.batch_size if made.drop_remainder else None
    return tf.nest.map_structure(
        lambda column: _spec(column, size), dict(sample) if not isinstance(sample, np.ndarray) else sample
    )  # fmt: skip


def _spec(column: np.ndarray, size: int | None) -> tf.TensorSpec:
    kind = tf.string if column.dtype.kind in "OSU" else tf.as_dtype(column.dtype)
    return tf.TensorSpec([size, *column.shape[1:]], kind)


__all__ = ["RECORD", "Columns", "elastic_dataset"]
