"""Models that are trained by plain Keras and on parameter servers, batch by batch the same."""

from __future__ import annotations

import sys

import numpy as np
import tensorflow as tf

from deeprec_ext.elastic.session.session import ElasticSession
from deeprec_ext.keras.door import Door
from deeprec_ext.keras.entry import GENERATIONS
from deeprec_ext.tf_private.imports import KERAS3_MODELS

keras, v1 = tf.keras, tf.compat.v1
L = keras.layers
BATCH = 32
KERAS = 3 if keras.Model.__module__ == KERAS3_MODELS else 2
"""Its generation, 2 or 3."""
VERSION = tuple(int(part) for part in sys.modules[keras.Model.__module__.partition(".")[0]].__version__.split(".")[:2])
generation = GENERATIONS[KERAS]


def refuses_ids():
    """Whether a look-up of rows that a table does not have is an error; Keras 3 before 3.3 takes the nearest one."""
    try:
        L.Embedding(2, 1)(tf.constant([[9]]))
    except tf.errors.InvalidArgumentError:
        return True
    return False


def dense():
    return keras.Sequential([L.Input((20,)), L.Dense(64, activation="relu"), L.Dense(1)])


def batch_norm():
    return keras.Sequential([L.Input((20,)), L.Dense(64, activation="relu"), L.BatchNormalization(), L.Dense(1)])


def recurrent():
    return keras.Sequential([L.Input((20,)), L.Reshape((20, 1)), L.SimpleRNN(8), L.Dense(1)])


def wide_deep():
    ids, x = L.Input((3,), dtype="int32"), L.Input((20,))
    tables = [L.Embedding(2000, 16, name=f"table_{i}")(ids[:, i]) for i in range(3)]
    return keras.Model([ids, x], L.Dense(1)(L.Dense(32, activation="relu")(L.Concatenate()([*tables, x]))))


class OwnStep(keras.Model):
    """Built at its first batch; with a metric of its own."""

    def __init__(self):
        super().__init__()
        self.table, self.deep, self.top = L.Embedding(1000, 8), L.Dense(8), L.Dense(1)
        self.seen = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.seen]

    def call(self, inputs, training=False):
        ids, x = inputs
        return self.top(self.deep(tf.concat([x, tf.reshape(self.table(ids), [-1, 24])], 1)))

    def train_step(self, data):
        inputs, labels = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(inputs, training=True) - labels))
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        self.seen.update_state(loss)
        return {"loss": self.seen.result()}


def records(make, steps):
    random = np.random.default_rng(0)
    ids = random.integers(0, 1000, (BATCH * steps, 3)).astype("int32")
    x = random.normal(size=(BATCH * steps, 20)).astype("float32")
    y = (x[:, :1] + 0.1 * (ids[:, :1] % 3)).astype("float32")
    own = isinstance(make, type) and issubclass(make, OwnStep)
    return ((ids, x) if own or make is wide_deep else x), y


def dataset(make, steps):
    """Which nobody leases: each process trains all of it."""
    return tf.data.Dataset.from_tensor_slices(records(make, steps)).batch(BATCH).take(-1)


class Losses(keras.callbacks.Callback):
    """Of each batch, the metrics as they stood after it."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(dict(logs))


class OnHost:
    """A session of a host of `tests.unit.elastic.cluster`."""

    def __init__(self, host, graph):
        with graph.as_default():
            self.elastic = ElasticSession("grpc://x", graph, None, host)
            absent = set(self.elastic.run(v1.report_uninitialized_variables()))
            new = [one for one in v1.global_variables() if one.op.name.encode() in absent]
            self.elastic.run([one.initializer for one in new])
        self.should_stop = False

    def train(self, fetches, feeds):
        return self.elastic.run(fetches, feeds)

    run = train

    def close(self):
        self.elastic.close()


def door_of(host, slots=4, chief=True):
    return Door(lambda graph, examples: OnHost(host, graph), slots, chief, generation, host.refusals.append)
