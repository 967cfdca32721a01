"""`deeprec-ext train`: what each process does. One process of its own, or the chief and the workers of a job, run the same."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext import env
from deeprec_ext.data import elastic_dataset, streams
from deeprec_ext.data.errors import DataError
from deeprec_ext.graph.marks import DIVIDED
from deeprec_ext.modeldef import model as models
from deeprec_ext.modeldef import records, stream
from deeprec_ext.modeldef.definition import Definition, bound
from deeprec_ext.modeldef.records import Source
from deeprec_ext.modeldef.words import Mode

log = logging.getLogger("deeprec_ext")

LIVE_LIMIT_SECONDS = 900.0
"""How long a worker waits for the chief to initialise the model; then it goes on, and its session says what is missing."""

EVALUATED_AT_ONCE = 1024
"""Records that are read together for an evaluation, at least; `feed` gets them one by one."""


@dataclass(frozen=True)
class Training:
    data: str
    validation_data: str = ""
    reader: str = "auto"
    skip_lines: int = 0
    epochs: int = 1
    batch_size: int = 64
    shuffle: bool = True
    seed: int = 0
    shard_records: int | None = None
    weights: str = ""
    """To begin with."""
    output: str = ""


def train(definition: Definition, asked: Training) -> Mapping[str, float]:
    """Trains until every record of every epoch is trained; the figures of the last validation, or of the last epoch.

    Raises UsageError before anything is trained, DataError where the records cannot be read.
    """
    source = records.source(asked.data, asked.reader, asked.skip_lines)
    home = streams.trainer()
    chief = home is None or home.chief
    model = models.make(definition, "train")
    definition = models.suited(definition, model)
    validation = None
    if asked.validation_data and chief:
        judged = records.source(asked.validation_data, asked.reader, asked.skip_lines)
        validation = evaluated(definition, judged, asked.batch_size, "validation")
    assert definition.feed is not None
    made = stream.leased(
        source, asked.batch_size, asked.epochs, asked.shuffle, asked.seed, asked.shard_records, "train"
    )  # fmt: skip
    if asked.weights:
        models.build(model, next(iter(sample(definition, source, Mode.EVALUATION, 2))))
        models.load_weights(model, asked.weights)
    feeder = stream.open_feeder(made)
    epochs = stream.Epochs(feeder)
    dataset = stream.through_feed(epochs, made, source, definition.feed, Mode.TRAINING, asked.batch_size)
    dataset = models.like_images(dataset, lambda: next(iter(sample(definition, source, Mode.TRAINING, 2))))
    try:
        if home is not None:
            _meet(home, lambda: model.fit(sample(definition, source, Mode.TRAINING, asked.batch_size), verbose=0))
        figures = _fit(model, dataset, epochs, validation, definition, asked.epochs)
    except tf.errors.OpError as error:
        if feeder.failure:
            raise DataError(feeder.failure) from error
        raise
    finally:
        if home is None:
            feeder.close()
    if chief and (place := output_of(asked.output)):
        models.save(model, place)
        print(f"the model is in {place}", flush=True)
    return figures


def _meet(home: Any, step: Callable[[], Any]) -> None:
    """Whoever asks for records shall have a model to train: else workers could hold the last of them and wait for a chief that
    waits for records. So workers begin when the model lives.

    A chief that was started again finds it alive, and may find no record left. It makes one step on records that are trained,
    which connects it with the model: it has to restore it when PS are lost, and to save it at the end.
    """
    deadline = time.monotonic() + LIVE_LIMIT_SECONDS
    home.view  # waits for the first  # noqa: B018
    if home.chief:
        if home.model_is_live:
            log.info("the model lives already: a step on the first records connects this chief with it")
            step()
        return
    while not home.wait_live(1.0) and not home.leaving.is_set() and time.monotonic() < deadline:
        pass


def output_of(output: str) -> str:
    """Where the trained model goes: as asked, or below the run directory; empty: nowhere."""
    return output or (os.path.join(run, "output") if (run := env.workdir()) else "")


def evaluated(definition: Definition, source: Source, batch_size: int, name: str) -> tf.data.Dataset:
    """All records once, in this process, as `feed` gives them for an evaluation."""
    assert definition.feed is not None
    read = elastic_dataset(
        list(source.paths), max(batch_size, EVALUATED_AT_ONCE), shuffle=False, purpose="evaluate", name=name,
        **source.reading,
    )  # fmt: skip
    single = read.map(source.records).unbatch()
    made: tf.data.Dataset = (
        bound(definition.feed, Mode.EVALUATION, source.metadata)(single).batch(batch_size).prefetch(2)
    )
    return made


def sample(definition: Definition, source: Source, mode: str, count: int) -> tf.data.Dataset:
    """One batch of the first records."""
    assert definition.feed is not None
    found = source.records(stream.first_records(source, count))
    single = tf.data.Dataset.from_tensor_slices(found, name=DIVIDED)
    made: tf.data.Dataset = bound(definition.feed, mode, source.metadata)(single).batch(count).take(1)
    return made


def _fit(
    model: Any, dataset: tf.data.Dataset, epochs: stream.Epochs, validation: Any, definition: Definition, count: int
) -> Mapping[str, float]:
    """Keras's `fit`, epoch by epoch: it would take the length of the first one for that of the others, and how many of an
    epoch's batches come to one process nobody knows."""
    callbacks = list(definition.callbacks() or ()) if definition.callbacks is not None else []
    ends = [_once(one) for one in callbacks]
    figures: dict[str, float] = {}
    while epochs.advance():
        history = model.fit(
            dataset, initial_epoch=epochs.epoch, epochs=epochs.epoch + 1, validation_data=validation, callbacks=callbacks,
            verbose=0,
        )  # fmt: skip
        figures = {
            name: float(values[-1]) for name, values in history.history.items() if values and np.ndim(values[-1]) == 0
        }
        print(f"epoch {epochs.epoch + 1}/{count}: {shown(figures)}", flush=True)
        if model.stop_training:
            break
    for end in ends:
        end()
    if not figures:
        log.info("there was nothing left to train for this process")
    return figures


def shown(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in figures.items())


def _once(callback: Any) -> Callable[[], None]:
    """Of several calls of `fit` a callback sees one training: it begins once, and ends when what this gives is called."""
    begin, end = callback.on_train_begin, callback.on_train_end
    begun: list[bool] = []

    def on_train_begin(logs: Any = None) -> None:
        if not begun:
            begun.append(True)
            begin(logs)

    callback.on_train_begin, callback.on_train_end = on_train_begin, lambda logs=None: None
    return lambda: end() if begun else None
