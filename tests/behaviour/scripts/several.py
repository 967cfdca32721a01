"""Plain Keras: several models one after the other, each of which counts how often a row was trained."""

import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf
from tensorflow import keras

MODELS, ROWS, BATCH, EPOCHS = 4, 200, 10, 2


class Counts(keras.layers.Layer):
    def build(self, shape):
        self.times = self.add_weight(shape=(ROWS,), initializer="zeros", name="times")

    def call(self, rows):
        return tf.reduce_sum(rows * self.times, -1, keepdims=True)


def main():
    found = []
    for _ in range(MODELS):
        model = keras.Sequential([keras.layers.Input((ROWS,)), Counts()])
        model.compile(keras.optimizers.SGD(float(BATCH)), lambda truth, predicted: -tf.reduce_mean(predicted))
        rows = np.eye(ROWS, dtype="float32")
        model.fit(rows, np.zeros((ROWS, 1), "float32"), batch_size=BATCH, epochs=EPOCHS, verbose=0)
        found.append(np.rint(model.get_weights()[0]).astype(int).tolist())
    with open(os.path.join(os.environ.get("DEEPREC_EXT_WORKDIR", "."), f"times-{os.getpid()}.json"), "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
