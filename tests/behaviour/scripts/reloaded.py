"""Plain Keras that saves its model after `fit`, and loads what it has saved, as scripts of keras.io do. The chief comes late.

Nothing of DeepRec Extension is imported.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf
from tensorflow import keras

ROWS, BATCH = 640, 32


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--late", type=float, default=0.0, help="seconds that the chief takes before it saves")
    arguments = parser.parse_args()
    role = os.environ.get("DEEPREC_EXT_ROLE", "chief")
    model = keras.Sequential([keras.layers.Dense(1)])
    model.build((None, 2))
    model.compile(keras.optimizers.SGD(1.0), lambda truth, predicted: tf.reduce_mean(predicted))
    model.fit(np.zeros((ROWS, 2), "float32"), np.zeros((ROWS, 1), "float32"), batch_size=BATCH, verbose=0)
    time.sleep(arguments.late * (role == "chief"))
    model.save(arguments.path)
    loaded = keras.models.load_model(arguments.path, compile=False)
    with open(f"{arguments.path}.{role}.txt", "w") as file:
        print(-float(loaded.layers[-1].bias.numpy()[0]), file=file)


if __name__ == "__main__":
    main()
