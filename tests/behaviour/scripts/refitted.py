"""Plain Keras that fits twice, sets its weights between, and writes into the model at the end of each epoch of the second.

A step takes 1 from the bias (SGD, gradient 1), the end of an epoch 1000: what it is in the end says what was done, how often.
Nothing of DeepRec Extension is imported.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf
from tensorflow import keras

ROWS, BATCH, EPOCHS, TAKEN = 640, 32, 3, 1000.0


class TakesAtLast(keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        bias = self.model.layers[-1].bias
        bias.assign(bias - TAKEN)


class Takes(keras.callbacks.Callback):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(self.seconds)

    def on_epoch_end(self, epoch, logs=None):
        bias = self.model.layers[-1].bias
        bias.assign(bias - TAKEN)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--late", type=float, default=0.0, help="seconds that the chief needs before it has a model")
    parser.add_argument("--between", type=float, default=0.0, help="and between the two")
    parser.add_argument("--sleep", type=float, default=0.0, help="after each step of the second")
    parser.add_argument(
        "--keep", action="store_true", help="weights of the first, of which a callback takes 1000 at last"
    )
    arguments = parser.parse_args()
    chief = os.environ.get("DEEPREC_EXT_ROLE", "chief") == "chief"
    time.sleep(arguments.late * chief)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.build((None, 2))
    model.compile(keras.optimizers.SGD(1.0), lambda truth, predicted: tf.reduce_mean(predicted))
    x, y = np.zeros((ROWS, 2), "float32"), np.zeros((ROWS, 1), "float32")
    model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[TakesAtLast()] if arguments.keep else [])
    time.sleep(arguments.between * chief)
    if not arguments.keep:
        model.set_weights([np.zeros((2, 1)), np.zeros(1)])
    model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[Takes(arguments.sleep)])
    if chief:
        path = os.path.join(os.environ.get("DEEPREC_EXT_WORKDIR", "."), "bias.txt")
        with open(path, "w") as file:
            print(float(model.get_weights()[1][0]), file=file)


if __name__ == "__main__":
    main()
