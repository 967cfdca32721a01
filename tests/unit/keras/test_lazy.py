"""With `lazy=on` an optimizer writes the rows of the batch alone, and does to them what it does without."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.graph import GraphIndex, build_catalogue, make_lazy
from deeprec_ext.keras import ownership
from deeprec_ext.keras.captured import capture
from deeprec_ext.keras.stepgraph import StepGraph
from deeprec_ext.proto.deeprec_ext_pb2 import Variable
from tests.unit.keras import models

keras, v1 = tf.keras, tf.compat.v1
o, legacy = keras.optimizers, keras.optimizers.legacy
generation = models.generation
ROWS, DIM = 3000, 8

DENSELY = {
    "Adam": lambda: o.Adam(0.1), "amsgrad": lambda: o.Adam(0.1, amsgrad=True), "AdamW": lambda: o.AdamW(0.1),
    "SGD": lambda: o.SGD(0.1, momentum=0.9), "nesterov": lambda: o.SGD(0.1, momentum=0.9, nesterov=True),
    "RMSprop": lambda: o.RMSprop(0.1), "centered": lambda: o.RMSprop(0.1, momentum=0.5, centered=True),
    "Adadelta": lambda: o.Adadelta(1.0), "Adamax": lambda: o.Adamax(0.1), "Ftrl": lambda: o.Ftrl(0.1),
    "Lion": lambda: o.Lion(0.1),
}  # fmt: skip
BY_ROWS = {"Adagrad": lambda: o.Adagrad(0.1)}
OF_KERAS_2 = {
    "legacy Adam": lambda: legacy.Adam(0.1), "legacy amsgrad": lambda: legacy.Adam(0.1, amsgrad=True),
    "legacy RMSprop": lambda: legacy.RMSprop(0.1), "legacy Nadam": lambda: legacy.Nadam(0.1),
}  # fmt: skip
BY_ROWS_OF_KERAS_2 = {
    "legacy SGD": lambda: legacy.SGD(0.1), "legacy Adagrad": lambda: legacy.Adagrad(0.1),
    "legacy Ftrl": lambda: legacy.Ftrl(0.1), "legacy momentum": lambda: legacy.SGD(0.1, momentum=0.9),
}  # fmt: skip
if models.KERAS == 2:
    DENSELY.update(OF_KERAS_2)
    BY_ROWS.update(BY_ROWS_OF_KERAS_2)
else:
    BY_ROWS["SGD"] = lambda: o.SGD(0.1)
    DENSELY["momentum"] = DENSELY.pop("SGD")
    DENSELY["Nadam"] = lambda: o.Nadam(0.1)
WHOLE = {"Adafactor": lambda: o.Adafactor(0.1), **({"Nadam": lambda: o.Nadam(0.1)} if models.KERAS == 2 else {})}


def built(make, regularised=False):
    keras.backend.clear_session()
    keras.utils.set_random_seed(2)
    ids = keras.Input((2,), dtype="int64")
    l2 = keras.regularizers.L2(0.01) if regularised else None
    rows = keras.layers.Embedding(ROWS, DIM, name="table", embeddings_regularizer=l2)(ids)
    model = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(rows)))
    model.compile(make(), "mse")
    return model


class Lazy:
    """A model's train step with lazy updates, in a session on the spot."""

    def __init__(self, model):
        spec = (tf.TensorSpec([None, 2], tf.int64), tf.TensorSpec([None, 1]))
        self.steps = StepGraph(1)
        with generation.traceable(model):
            captured = capture(generation.step(model, "train"), spec, lambda: generation.optimizer_variables(model))
        weights, state = generation.weights(model), generation.optimizer_variables(model)
        self.step = self.steps.add(captured, weights, state, generation.counters(model), "train", True)
        with self.steps.graph.as_default():
            begin = v1.global_variables_initializer()
        definition = self.steps.graph.as_graph_def()
        index = GraphIndex(definition)
        self.changed = make_lazy(index)
        self.catalogue = build_catalogue(index, [self.step.done.name])
        for node in definition.node:
            node.device = ""
        with tf.Graph().as_default() as self.graph:
            v1.import_graph_def(definition, name="")
        self.session = v1.Session(graph=self.graph)
        self.session.run(begin.name)

    def train(self, ids, labels):
        feeds = {placeholder.name: value for placeholder, value in zip(self.step.feeds, (ids, labels))}
        feeds.update((value.name, variable.numpy()) for variable, value in self.step.given)
        self.session.run(self.step.done.name, feeds)

    def tables(self):
        """Of all variables that are tables: name -> value."""
        shared = [one for one in self.steps.shared.values() if one.variable.shape == (ROWS, DIM)]
        return {one.here.op.name: self.session.run(one.read.name) for one in shared}


def batches(count, rows):
    random = np.random.default_rng(1)
    for _ in range(count):
        yield (
            np.stack([random.permutation(rows), random.permutation(rows)], 1),
            random.normal(size=(len(rows), 1)).astype("float32"),
        )


@pytest.mark.parametrize("name", [*DENSELY, *BY_ROWS])
def test_rows_of_the_batch_are_written_as_without_and_others_not_at_all(name):
    make = {**DENSELY, **BY_ROWS}[name]
    plain, lazy = built(make), Lazy(built(make))
    assert bool(lazy.changed) == (name in DENSELY)
    assert all(one.update == Variable.ROWS for one in lazy.catalogue.variables if tuple(one.shape) == (ROWS, DIM))
    before = lazy.tables()
    some = np.arange(0, ROWS, 3)
    for ids, labels in batches(3, some):
        plain.train_on_batch(ids, labels)
        lazy.train(ids, labels)
    after = lazy.tables()
    expected = {
        ownership.plain_name(one): one.numpy()
        for one in (*generation.weights(plain), *generation.optimizer_variables(plain))
    }
    others = np.setdiff1d(np.arange(ROWS), some)
    assert len(after) == len(before) >= 1
    for table, value in after.items():
        np.testing.assert_allclose(value[some], expected[table][some], rtol=2e-5, atol=1e-7, err_msg=table)
        np.testing.assert_array_equal(value[others], before[table][others], err_msg=table)
    moved = np.abs(after["table/embeddings"][some] - before["table/embeddings"][some]).max(axis=1)
    assert moved.min() > 0


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_no_arithmetic_of_rows_stays_as_it_is(name):
    lazy = Lazy(built(WHOLE[name]))
    assert lazy.changed == []


def test_a_table_that_the_loss_reads_whole_stays_as_it_is():
    lazy = Lazy(built(DENSELY["Adam"], regularised=True))
    assert lazy.changed == []
