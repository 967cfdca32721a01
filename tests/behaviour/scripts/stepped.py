"""Plain Keras that writes down what it has after each step, and which rows it was given: nothing of DeepRec Extension here.

`steps/ROLE.PID`: number of the step, check of all weights and of the optimizer's; `rows/ROLE.PID`: rows of each step's batch.
"""

import argparse
import os
import time
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf
from tensorflow import keras

ME = f"{os.environ.get('DEEPREC_EXT_ROLE', 'alone')}-{os.environ.get('DEEPREC_EXT_INDEX', '0')}.{os.getpid()}"
OUT = os.environ.get("DEEPREC_EXT_WORKDIR", ".")


def append(kind, *words):
    os.makedirs(os.path.join(OUT, kind), exist_ok=True)
    descriptor = os.open(os.path.join(OUT, kind, ME), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())
    os.close(descriptor)


def note(rows):
    append("rows", *rows.astype(int).tolist())
    return np.float32(0)


def note_step(before, after):
    global applied
    applied = after > before  # else the batch is one of several that are a step
    return np.float32(0)


class Noted(keras.Model):
    """Rows are numbered in the first column."""

    def __init__(self):
        super().__init__()
        self.inside = keras.Sequential([
            keras.layers.Dense(16, activation="relu"), keras.layers.BatchNormalization(), keras.layers.Dense(1),
        ])  # fmt: skip

    def call(self, x, training=False):
        return self.inside(x[:, 1:], training=training)

    def train_step(self, data):
        tf.numpy_function(note, [data[0][:, 0]], tf.float32)
        before = tf.identity(tf.convert_to_tensor(self.optimizer.iterations))
        logs = self.both(*data) if arguments.twice else super().train_step(data)
        tf.numpy_function(note_step, [before, tf.convert_to_tensor(self.optimizer.iterations)], tf.float32)
        return logs

    def both(self, x, y):
        """One half after the other, as a GAN does."""
        first, last = self.inside.layers[0].trainable_weights, self.inside.layers[2].trainable_weights
        for optimizer, weights in ((self.second, last), (self.optimizer, first)):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(x, training=True)[:, 0] - y))
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"loss": loss}


class Watch(keras.callbacks.Callback):
    """Slow until the test says otherwise."""

    def on_train_batch_end(self, batch, logs=None):
        if not applied:
            return
        optimizer, variables = self.model.optimizer, []
        for one in (optimizer, self.model.second):
            variables += one.variables() if callable(one.variables) else one.variables
        check = 0
        for one in (*self.model.get_weights(), *(np.asarray(one) for one in variables)):
            check = zlib.crc32(np.ascontiguousarray(one).tobytes(), check)
        append("steps", 100_000 * fits + int(optimizer.iterations.numpy()), check)
        if not os.path.exists(os.path.join(OUT, "hurry")):
            time.sleep(arguments.seconds)


parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=6400)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--fits", type=int, default=1)
parser.add_argument("--seconds", type=float, default=0.02)
parser.add_argument("--twice", action="store_true")
parser.add_argument("--buckets", action="store_true", help="gradients travel as those of large models do")
parser.add_argument(
    "--steps", type=int, nargs="*", help="of an epoch, of each fit in turn: batches come from a pipeline"
)
parser.add_argument("--data", type=int, help="the rows are the same in each job that says the same")
arguments = parser.parse_args()
if arguments.data is not None:
    np.random.seed(arguments.data)
if arguments.buckets:
    from deeprec_ext.allreduce import given

    given.BUCKET_BYTES = 1
x = np.random.random((arguments.rows, 9)).astype("float32")
y = x[:, 1:].sum(1)
x[:, 0] = np.arange(len(x))
model = Noted()
model.second = keras.optimizers.SGD(0.001, momentum=0.9)
if arguments.twice:
    model(x[:1])  # two optimizers could not be made within a step, in plain Keras either
model.compile("adam", loss="mse", metrics=["mae"])
for fits in range(arguments.fits):
    if fits:  # with another optimizer, and a layer that stays as it is
        model.inside.layers[0].trainable = False
        model.compile(keras.optimizers.SGD(0.001, momentum=0.9), loss="mse", metrics=["mae"])
    given = {"x": x, "y": y, "batch_size": 32, "validation_split": 0.0}
    if arguments.steps:
        given = {"x": tf.data.Dataset.from_tensor_slices((x, y)).batch(32), "steps_per_epoch": arguments.steps[fits]}
    history = model.fit(**given, epochs=arguments.epochs, verbose=2, callbacks=[Watch()])
    append("history", *history.history["loss"])
    append("measured", *model.evaluate(x, y, verbose=0))
model.save_weights(os.path.join(OUT, "model.weights.h5"))
append("end", *(zlib.crc32(np.ascontiguousarray(one).tobytes()) for one in model.get_weights()))
