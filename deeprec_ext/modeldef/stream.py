"""Leased records, as `feed` makes batches of them, acknowledged when the step that used them has run.

`feed` is the user's, and may shuffle and filter, so records cannot be followed through it. It is applied to one leased batch at
a time: a batch goes through the whole of `feed` before the next is asked for, and whoever asks for the next is done with the
one before. So nothing may run ahead: what parses is not prefetched (the records themselves are, by the feeder).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.data import files as disk
from deeprec_ext.data import streams
from deeprec_ext.data.dataset import signature_of
from deeprec_ext.data.feeder import Feeder
from deeprec_ext.data.plan import Plan, plan
from deeprec_ext.data.readers.base import Columns
from deeprec_ext.graph.marks import DIVIDED
from deeprec_ext.modeldef.definition import bound
from deeprec_ext.modeldef.records import Source


def leased(
    source: Source, batch_size: int, epochs: int, shuffle: bool, seed: int, shard_records: int | None, name: str
) -> Plan:
    """What is read through the ledger of the job, by all its trainers together. Raises UsageError."""
    options = source.reading
    return plan(
        list(source.paths), batch_size, epochs, shuffle, seed, options["reader"], shard_records, name, "train", False,
        options["reader_options"],
    )  # fmt: skip


class Epochs:
    """Batches of leased records, epoch by epoch as they come to this process.

    An epoch ends here with the first batch of a later one, which comes at the beginning of the next. The ledger gives the
    epochs in order, so all processes cross over within a few batches.

    Args:
      feeder: of the dataset.
    """

    def __init__(self, feeder: Feeder) -> None:
        self._feeder = feeder
        self._batches = self._all()
        self._next: Columns | None = None
        self.epoch = 0
        """Of the batches that are given now, from 0; after `advance` of the next ones."""

    def advance(self) -> bool:
        """Waits for the next batch; whether there is one. Called before each epoch."""
        if self._next is None:
            self._next = next(self._batches, None)
        if self._next is None:
            return False
        self.epoch = max(self.epoch, self._feeder.epoch)
        return True

    def __call__(self) -> Iterator[Columns]:
        """Of one epoch."""
        while True:
            if self._next is None:
                self._next = next(self._batches, None)
            if self._next is None or self._feeder.epoch > self.epoch:
                return
            batch, self._next = self._next, None
            yield batch

    def _all(self) -> Iterator[Columns]:
        """Also through eras of the feeder, which end when the ledger goes back."""
        while not self._feeder.exhausted:
            yield from self._feeder.batches()


def open_feeder(made: Plan) -> Feeder:
    """That of this dataset in this process; outside a job one with a ledger of its own."""
    home = streams.trainer()
    return streams.alone(made) if home is None else streams.shared(made, home.inputs)


def through_feed(
    given: Callable[[], Iterator[Columns]],
    made: Plan,
    source: Source,
    feed: Callable[..., Any],
    mode: str,
    batch_size: int,
) -> tf.data.Dataset:
    """What `feed` makes of each of the batches, batched anew. Nothing is read before it is asked for."""
    dataset = tf.data.Dataset.from_generator(given, output_signature=signature_of(made), name=DIVIDED)

    fed = bound(feed, mode, source.metadata)

    def one(batch: Any) -> tf.data.Dataset:
        return fed(tf.data.Dataset.from_tensor_slices(source.records(batch))).batch(batch_size)

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # it would ask for batches whose steps nobody has run
    return dataset.flat_map(one).with_options(options)


def first_records(source: Source, count: int) -> Columns:
    """Of the first file that has some, to try things with; fewer where it has fewer."""
    path = next((one for one in source.paths if disk.size(one)), source.paths[0])
    made = leased(replace(source, paths=(path,)), count, 1, False, 0, count, "try")
    feeder = streams.alone(made)
    try:
        return next(feeder.batches(), np.empty(0, object))
    finally:
        feeder.close()
