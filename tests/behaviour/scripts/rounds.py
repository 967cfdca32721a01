"""Plain Keras in the way of its tutorials: `from_tensor_slices`, a frozen layer, a second round with it, a file that is loaded.

Nothing of DeepRec Extension is imported. Every process shuffles the rows by itself, without a seed, and writes what it finds.
"""

import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf
from tensorflow import keras

ROWS, BATCH, EPOCHS = 3200, 32, 3


def main():
    directory = os.environ.get("DEEPREC_EXT_WORKDIR", ".")
    x = np.random.default_rng(0).random((ROWS, 16)).astype("float32")
    y = (x[:, :8].sum(1) > x[:, 8:].sum(1)).astype("float32")
    order = np.random.permutation(ROWS)
    data = tf.data.Dataset.from_tensor_slices((x[order], y[order])).shuffle(1000).batch(BATCH)
    base = keras.layers.Dense(16, "relu", trainable=False)
    model = keras.Sequential([keras.layers.Input((16,)), base, keras.layers.Dense(1, "sigmoid")])
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    before = [one.copy() for one in base.get_weights()]
    first = model.fit(data, epochs=EPOCHS, verbose=2).history
    moved = max(float(np.abs(a - b).max()) for a, b in zip(before, base.get_weights()))
    base.trainable = True
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    second = model.fit(data, epochs=EPOCHS, verbose=2).history
    predicted = model.predict(x[:100], verbose=0)
    path = os.path.join(directory, "rounds.keras")
    model.save(path)
    apart = np.abs(keras.models.load_model(path).predict(x[:100], verbose=0) - predicted).max()
    found = {
        "role": os.environ.get("DEEPREC_EXT_ROLE", "alone"), "moved": moved, "apart": float(apart), "first": first,
        "second": second, "steps": int(model.optimizer.iterations),
    }  # fmt: skip
    with open(os.path.join(directory, f"end-{os.getpid()}.json"), "w") as file:
        json.dump(found, file, default=float)


if __name__ == "__main__":
    main()
