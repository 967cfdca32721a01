"""A model as its module defines it, ready for Keras's own `fit` and `evaluate`; and its weights as files.

A module's loss takes labels and predictions as they are, of all outputs at once; Keras would call it for each output apart, and
would make labels and predictions alike first. So the loss and the metrics of a step are computed here, and the rest of the step
is Keras's own.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import tensorflow as tf

from deeprec_ext.errors import UsageError
from deeprec_ext.modeldef.definition import Definition, bound

keras = tf.keras
log = logging.getLogger("deeprec_ext")

WEIGHTS = "model.weights.h5"
EXPORTED = "saved_model"

_STEPS = ("train_step", "test_step", "compute_loss", "compute_metrics")


def make(definition: Definition, command: str) -> Any:
    """A model, compiled where the command needs it. Raises UsageError naming what is wrong."""
    model = definition.model()
    if not isinstance(model, keras.Model):
        raise UsageError(
            f"{definition.module}: the function that --model-def names gave {type(model).__name__}, and not a keras.Model"
        )
    missing = [*definition.missing(command), *definition.missing_of_model(model, command)]
    if missing:
        raise UsageError("; ".join(missing))
    if command != "predict":
        _compile(model, definition)
    return model


def _compile(model: Any, definition: Definition) -> None:
    """With what the module has; a model that its function has compiled stays so where the module has nothing else."""
    loss = definition.loss
    metrics = definition.eval_metrics_fn() if definition.eval_metrics_fn is not None else {}
    compiled = getattr(model, "optimizer", None)
    optimizer = definition.optimizer() if definition.optimizer is not None else compiled
    if any(getattr(type(model), name) is not getattr(keras.Model, name) for name in _STEPS):
        if loss is not None or compiled is None:  # its class has steps of its own, which know what they need
            model.compile(optimizer=optimizer, loss=loss, metrics=list(metrics.values()) or None)
        return
    if loss is not None or compiled is None:
        model.compile(optimizer=optimizer)
    measured, theirs, reset_theirs = Measured(metrics), model.compute_metrics, model.reset_metrics

    def compute_loss(x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, **_: Any) -> Any:
        value = mean_loss(loss(y, y_pred) if loss is not None else 0.0, sample_weight)
        if model.losses:  # regularisation
            value += tf.add_n([tf.cast(one, value.dtype) for one in model.losses])
        measured.loss.update_state(value, count(y))
        return value

    def compute_metrics(x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        measured.update(y, y_pred)
        found = theirs(x, y, y_pred, sample_weight) if loss is None else {"loss": measured.loss.result()}
        return {**found, **measured.results()}

    def reset_metrics() -> None:
        reset_theirs()
        measured.reset()

    if loss is not None or compiled is None:
        model.compute_loss = compute_loss
    model.compute_metrics, model.reset_metrics = compute_metrics, reset_metrics


def mean_loss(value: Any, weights: Any = None) -> Any:
    """One number of a module's loss, which may be one, or one for each record: then their mean, by weights if there are any."""
    value = tf.convert_to_tensor(value)
    if weights is None or value.shape.rank == 0:
        return tf.reduce_mean(value)
    weights = tf.cast(tf.reshape(weights, [-1] + [1] * (value.shape.rank - 1)), value.dtype)
    return tf.reduce_mean(value * weights)


def count(labels: Any) -> Any:
    """How many records a batch has: the last one of an epoch, which has fewer, counts for less."""
    return tf.cast(tf.shape(tf.nest.flatten(labels)[0])[0], tf.float32)


class Measured:
    """What `eval_metrics_fn` gives, over the batches since the last reset.

    Args:
      given: name -> metric of Keras, or function (labels, predictions) -> values, whose mean counts. Of a model with several
        outputs: output -> such a dict; then names are `output_name`.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.loss = keras.metrics.Mean(name="loss")
        self._metrics: list[tuple[str, str | None, Any, Callable[..., Any] | None]] = []
        for name, one in given.items():
            several = isinstance(one, Mapping)
            for inner, metric in one.items() if several else [(name, one)]:
                full, output = (f"{name}_{inner}", name) if several else (inner, None)
                if isinstance(metric, keras.metrics.Metric):
                    self._metrics.append((full, output, metric, None))
                elif callable(metric):
                    self._metrics.append((full, output, keras.metrics.Mean(name=full), metric))
                else:
                    raise UsageError(f"eval_metrics_fn: {full} is neither a metric of Keras nor a function: {metric!r}")

    def update(self, labels: Any, predictions: Any) -> None:
        for name, output, metric, function in self._metrics:
            if output is not None and (not isinstance(predictions, Mapping) or output not in predictions):
                raise UsageError(f"eval_metrics_fn: {name} is of the output {output!r}, which the model does not have")
            predicted = predictions if output is None else predictions[output]
            if function is None:
                metric.update_state(labels, predicted)
            else:
                value = tf.cast(function(labels, predicted), tf.float32)
                metric.update_state(value, None if value.shape.rank else count(labels))

    def results(self) -> dict[str, Any]:
        return {name: metric.result() for name, _, metric, _ in self._metrics}

    def reset(self) -> None:
        for metric in (self.loss, *(metric for _, _, metric, _ in self._metrics)):
            metric.reset_state()


def suited(definition: Definition, model: Any) -> Definition:
    """With a `feed` whose features fit the model: of one with one input the only feature may have any name."""
    feed, names = definition.feed, list(getattr(model, "input_names", None) or ())
    if feed is None or len(names) != 1:
        return definition

    def one(*parts: Any) -> Any:
        features = parts[0]
        if isinstance(features, dict) and len(features) == 1 and names[0] not in features:
            features = next(iter(features.values()))
        return (features, *parts[1:]) if len(parts) > 1 else features

    def renamed(dataset: Any, mode: str, metadata: Any) -> Any:
        return bound(feed, mode, metadata)(dataset).map(one)

    return replace(definition, feed=renamed)


def like_images(dataset: tf.data.Dataset, sample: Callable[[], Any]) -> tf.data.Dataset:
    """With the sizes of images (four dimensions) that the dataset does not know, as decoded ones: those of a first batch.

    Layers are made when Keras traces a step, and need them; a batch by itself would tell.
    """
    leaves = tf.nest.flatten(dataset.element_spec)
    known = [one.shape[1:].is_fully_defined() or one.shape.rank != 4 for one in leaves]
    if all(known):
        return dataset
    sizes = [[None, *one.shape[1:]] for one in tf.nest.flatten(sample())]

    def sized(*parts: Any) -> Any:
        given = parts if len(parts) > 1 else parts[0]
        flat = [
            one if fine else tf.ensure_shape(one, size) for one, fine, size in zip(tf.nest.flatten(given), known, sizes)
        ]
        return tf.nest.pack_sequence_as(given, flat)

    return dataset.map(sized)


def features_of(batch: Any) -> Any:
    """Of what `feed` gives: features alone, or features and labels (and weights)."""
    return batch[0] if isinstance(batch, tuple) else batch


def build(model: Any, batch: Any) -> None:
    """A subclassed model has its weights once it was called."""
    if not model.built or not model.weights:
        model(features_of(batch), training=False)


def load_weights(model: Any, place: str) -> None:
    """Of a directory that `train --output` has written, or of a file of weights. Raises UsageError.

    The model has to be built.
    """
    path = os.path.join(place, WEIGHTS) if tf.io.gfile.isdir(place) else place
    if not tf.io.gfile.exists(path):
        raise UsageError(f"--weights {place}: there is no {path}; name what `deeprec-ext train --output` has written")
    try:
        model.load_weights(path)
    except (ValueError, KeyError, OSError) as error:
        text = " ".join(str(error).split())[:300]
        raise UsageError(f"--weights {place}: not of this model: {text}") from error


def save(model: Any, directory: str) -> None:
    """Weights, and a SavedModel for serving, into a directory that is made; of a model that cannot be exported the weights."""
    tf.io.gfile.makedirs(directory)
    model.save_weights(os.path.join(directory, WEIGHTS))
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints pages
            model.export(os.path.join(directory, EXPORTED))
    except Exception as error:  # of all kinds: a model that was trained shall not be lost by it
        log.warning("there is no SavedModel in %s: %s", directory, " ".join(str(error).split())[:300])
