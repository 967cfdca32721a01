"""A model's module that counts how often each record was trained: a step adds 1 to the rows of its records (SGD, gradient -1).

A record is a line with its number, from 0 to RECORDS - 1. A prediction is the number itself. Until there is a file `hurry` in
the run directory a step takes its time.
"""

import os
import time

import tensorflow as tf

RECORDS = 6_000
PACE_SECONDS = 0.02


def pace():
    directory = os.environ.get("DEEPREC_EXT_WORKDIR")
    if directory and not os.path.exists(os.path.join(directory, "hurry")):
        time.sleep(PACE_SECONDS)


class Paced(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        pace()


def custom_model():
    number = tf.keras.Input(shape=(), dtype="int64", name="number")
    times = tf.keras.layers.Embedding(RECORDS, 1, embeddings_initializer="zeros", name="times")(number)
    same = tf.keras.layers.Rescaling(1.0, dtype="float64")(number)
    return tf.keras.Model(number, {"times": times, "number": same})


def loss(labels, predictions):
    return -tf.reduce_sum(predictions["times"])


def optimizer():
    return tf.keras.optimizers.SGD(1.0)


def feed(dataset, mode, metadata):
    dataset = dataset.map(lambda line: tf.strings.to_number(line, tf.int64))
    if mode == "training":
        dataset = dataset.map(lambda number: (number, number)).shuffle(100)
    return dataset


def callbacks():
    return [Paced()]


class PredictionOutputsProcessor:
    def process(self, predictions, worker_id):
        pace()
