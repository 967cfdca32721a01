"""Plain Keras that counts how often each row was trained: a step adds 1 to the place of each of its rows (SGD, gradient -1).

Nothing of DeepRec Extension is imported. Every process writes what it saw of each epoch to `epochs-PID.jsonl`.
"""

import argparse
import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf
from tensorflow import keras

HURRY, RAISED = "hurry", "raised"


def role():
    return os.environ.get("DEEPREC_EXT_ROLE", "alone")


def raised():
    """How often a callback has."""
    return os.path.getsize(RAISED) if os.path.exists(RAISED) else 0


class Counts(keras.Model):
    def __init__(self, rows):
        super().__init__()
        self.table = keras.layers.Embedding(rows, 1, embeddings_initializer="zeros")
        self.seen = keras.metrics.Mean(name="number")
        self.sum = keras.metrics.Sum(name="records")

    @property
    def metrics(self):
        return [self.seen, self.sum]

    def call(self, ids):
        return self.table(ids)

    def train_step(self, ids):
        with tf.GradientTape() as tape:
            loss = -tf.reduce_sum(self(ids, training=True))
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        self.seen.update_state(tf.cast(ids, tf.float32))
        self.sum.update_state(tf.ones_like(ids, tf.float32))
        return {one.name: one.result() for one in self.metrics}

    def test_step(self, ids):
        self.seen.update_state(tf.cast(ids, tf.float32))
        return {"number": self.seen.result()}


class Watch(keras.callbacks.Callback):
    """Slow until the test says otherwise; writes down what it hears."""

    def __init__(self, seconds, raises):
        super().__init__()
        self.raises = raises
        self.seconds, self.path = seconds, f"epochs-{os.getpid()}.jsonl"
        self.batches = 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if role() == "worker" and self.batches == 5 and raised() < self.raises:
            with open(RAISED, "a") as file:
                file.write("x")
            raise KeyError("of the script")
        if self.seconds and not os.path.exists(os.path.join(os.environ.get("DEEPREC_EXT_WORKDIR", "."), HURRY)):
            time.sleep(self.seconds)

    def on_epoch_end(self, epoch, logs=None):
        rate = float(self.model.optimizer.learning_rate)
        with open(os.path.join(os.environ.get("DEEPREC_EXT_WORKDIR", "."), self.path), "a") as file:
            print(json.dumps({"epoch": epoch, "logs": logs, "batches": self.batches, "rate": rate}), file=file)
        self.batches = 0


def number_of(line):
    return tf.strings.to_number(line, tf.int64)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--sleep", type=float, default=0.0)
    parser.add_argument("--patience", type=int, help="EarlyStopping on `number`, which does not improve")
    parser.add_argument("--elastic-dataset", action="store_true")
    parser.add_argument("--files", help="pattern of files of lines with the numbers of all rows")
    parser.add_argument("--steps", type=int, help="of an epoch; files are then repeated without end, or --passes times")
    parser.add_argument("--passes", type=int)
    parser.add_argument("--own", action="store_true", help="with --steps: each process reads a dataset of its own")
    parser.add_argument("--raises", type=int, default=0, help="a callback of a worker does, so often")
    parser.add_argument("--reversed", action="store_true", help="workers have the rows in another order")
    parser.add_argument("--others", action="store_true", help="workers have another row")
    arguments = parser.parse_args()

    directory = os.environ.get("DEEPREC_EXT_WORKDIR", ".")
    keras.utils.set_random_seed(1)
    model = Counts(arguments.rows)
    model.compile(keras.optimizers.SGD(1.0))
    callbacks = [
        Watch(arguments.sleep, arguments.raises),
        keras.callbacks.CSVLogger(os.path.join(directory, "log.csv")),
        keras.callbacks.ModelCheckpoint(os.path.join(directory, "epoch-{epoch}.weights.h5"), save_weights_only=True),
    ]
    if arguments.patience is not None:
        callbacks.append(
            keras.callbacks.EarlyStopping("number", mode="min", patience=arguments.patience, min_delta=1.0)
        )
    x = np.arange(arguments.rows)
    if arguments.reversed and role() == "worker":
        x = x[::-1]
    if arguments.others and role() == "worker":
        x = np.maximum(x, 1)
    if arguments.elastic_dataset:
        from deeprec_ext.data import elastic_dataset

        x = elastic_dataset(arguments.rows, 32).prefetch(4)
    if arguments.files:
        lines = tf.data.Dataset.list_files(arguments.files).interleave(tf.data.TextLineDataset)
        x = lines.map(number_of, num_parallel_calls=2).shuffle(1000).batch(32).prefetch(tf.data.AUTOTUNE)
    if arguments.own:
        x = tf.data.Dataset.range(arguments.rows).take(arguments.rows).batch(32)
    if arguments.steps:
        x = x.repeat(arguments.passes)
    model.fit(
        x, epochs=arguments.epochs, steps_per_epoch=arguments.steps, callbacks=callbacks, verbose=2,
        validation_data=(np.arange(10),),
    )  # fmt: skip
    np.save(os.path.join(directory, f"times-{role()}-{os.getpid()}.npy"), model.table.get_weights()[0][:, 0])


if __name__ == "__main__":
    main()
