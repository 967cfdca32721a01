"""What a model of Keras is like, read off the graph of its step before anything of it is on a PS."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.autoscaler.observe.features import declared_model, trained
from deeprec_ext.graph import GraphIndex, describe, saved_names
from deeprec_ext.keras.door import Door
from deeprec_ext.keras.entry import patch
from deeprec_ext.proto.deeprec_ext_pb2 import Variable
from deeprec_ext.tf_private import keras_classes
from tests.unit.keras import job, models

keras = tf.keras
ROWS, WIDTH, BATCH = 40_000, 16, 32


class Finished(Exception):
    """The graph is, and a session is about to be opened on it."""


@pytest.fixture
def declared(monkeypatch, host):
    """Fits a model as far as its first session, and returns what is declared of it."""
    trainer = job.trainer(host, [])
    found = []

    def opened(graph, examples):
        found.append(describe(graph, GraphIndex(graph.as_graph_def()), saved_names(graph)))
        raise Finished

    for name in (*keras_classes.MAKES.values(), "fit", "evaluate", "save", "save_weights"):
        monkeypatch.setattr(keras.Model, name, getattr(keras.Model, name))
    undo = patch(SimpleNamespace(Model=keras.Model), Door(opened, 4, True, models.generation, trainer.refused), trainer)

    def fitted(model, *data, **words):
        with pytest.raises(Finished):
            model.fit(*data, verbose=0, **words)
        [one] = found
        return one

    yield fitted
    undo()


def two_tables(optimizer):
    """Two look-ups of one table for an example, one of another, and a layer."""
    pair, single = (keras.Input(shape=shape, dtype="int64") for shape in ((2,), ()))
    pooled = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(ROWS, WIDTH, name="pairs")(pair))
    joined = keras.layers.Concatenate()([pooled, keras.layers.Embedding(ROWS, WIDTH, name="singles")(single)])
    model = keras.Model([pair, single], keras.layers.Dense(8, name="layer")(joined))
    model.compile(optimizer, "mse")
    return model


def records(count=4 * BATCH):
    return (np.zeros([count, 2], np.int64), np.zeros([count], np.int64)), np.zeros([count, 8], np.float32)


of_keras_2 = pytest.mark.skipif(models.KERAS == 3, reason="Keras 3 has no legacy optimizers")


@pytest.mark.parametrize(
    ("optimizer", "slots", "update"),
    [
        pytest.param(lambda: keras.optimizers.SGD(0.1), 0, Variable.ROWS, id="sgd"),
        pytest.param(lambda: keras.optimizers.Adagrad(0.1), 1, Variable.ROWS, id="adagrad"),
        pytest.param(lambda: keras.optimizers.Adam(), 2, Variable.DENSE, id="adam"),
        pytest.param(lambda: keras.optimizers.legacy.SGD(0.1), 0, Variable.ROWS, id="legacy sgd", marks=of_keras_2),
        pytest.param(lambda: keras.optimizers.legacy.Adagrad(0.1), 1, Variable.ROWS, id="legacy adagrad", marks=of_keras_2),
        pytest.param(lambda: keras.optimizers.legacy.Adam(), 2, Variable.DENSE, id="legacy adam", marks=of_keras_2),
    ],
)  # fmt: skip
def test_tables_what_their_optimizer_keeps_and_how_both_are_updated(declared, optimizer, slots, update) -> None:
    found = declared(two_tables(optimizer()), *records(), batch_size=BATCH)
    variables = found.catalogue.variables
    tables = [one for one in variables if list(one.shape) == [ROWS, WIDTH]]
    assert len(tables) == 2 * (1 + slots) and {one.update for one in tables} == {update}
    assert sum(one.bytes for one in tables) == len(tables) * ROWS * WIDTH * 4
    weights = {one.name for one in trained(variables)} - {found.catalogue.global_step}
    assert {name.split("/")[0] for name in weights} == {"pairs", "singles", "layer"} and len(weights) == 4
    model = declared_model(found, 4)
    assert model.optimizer_slots == pytest.approx(slots, abs=0.01)
    assert model.fields == (2 if update == Variable.ROWS else 0)


@pytest.mark.parametrize("optimizer", [lambda: keras.optimizers.Adagrad(0.1), keras.optimizers.Adam])
def test_what_it_computes_is_its_forward_pass(declared, optimizer) -> None:
    computes = set(declared(two_tables(optimizer()), *records(), batch_size=BATCH).computes)
    loss = "Square" if models.KERAS == 3 else "SquaredDifference"
    bias = "AddV2" if (3, 0) <= models.VERSION < (3, 7) else "BiasAdd"
    assert {"MatMul", bias, "ConcatV2", "Mean", loss} <= computes
    assert not {one for one in computes if "Apply" in one or "Scatter" in one or "Sqrt" in one}, computes


def test_batch_lookups_and_work_are_those_of_a_step(declared) -> None:
    found = declared(two_tables(keras.optimizers.Adagrad(0.1)), *records(), batch_size=BATCH)
    assert (found.batch_size, found.lookups_per_example) == (BATCH, 3)
    least = 3 * 2 * 2 * WIDTH * 8  # forward, and the gradients of both sides of the product
    assert least * 0.6 < found.flops_per_example < 20 * least
    assert found.input.format == "memory" and found.input.columns == 3
    assert found.input.bytes_per_example == 2 * 8 + 8 + 8 * 4


def test_the_input_is_files_of_a_format(declared, tmp_path) -> None:
    for number in range(3):
        with tf.io.TFRecordWriter(str(tmp_path / f"part-{number}.tfrecord")) as writer:
            writer.write(b"x" * 100)

    def parse(record):
        pair = tf.strings.to_hash_bucket_fast([record, record], ROWS)
        return (pair, pair[0]), tf.zeros([8])

    files = tf.data.TFRecordDataset([str(tmp_path / f"part-{number}.tfrecord") for number in range(3)])
    batches = files.map(parse).repeat().batch(BATCH).prefetch(1)
    found = declared(two_tables(keras.optimizers.Adagrad(0.1)), batches, steps_per_epoch=4)
    size = sum(one.stat().st_size for one in tmp_path.iterdir())
    assert (found.input.format, found.input.files, found.input.bytes) == ("tfrecord", 3, size)
    assert found.batch_size == BATCH and math.isclose(found.lookups_per_example, 3)


def test_interleaved_files_of_a_pattern_are_found(declared, tmp_path) -> None:
    for number in range(2):
        (tmp_path / f"part-{number}.txt").write_text("7\n" * 100)

    def parse(line):
        pair = tf.strings.to_number([line, line], tf.int64)
        return (pair, pair[0]), tf.zeros([8])

    files = tf.data.Dataset.list_files(str(tmp_path / "part-*.txt"))
    batches = files.interleave(tf.data.TextLineDataset).map(parse).batch(BATCH, drop_remainder=True)
    found = declared(two_tables(keras.optimizers.SGD(0.1)), batches)
    assert (found.input.format, found.input.files, found.input.bytes) == ("text", 2, 400)
