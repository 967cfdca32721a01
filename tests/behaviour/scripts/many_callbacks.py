"""Plain Keras with most of its callbacks at once, on validation data, with weights of classes and a policy of mixed precision.

The rate is multiplied by twenty in the fourth epoch, and from the second on each is taken for a plateau, which halves it: until
the model gets no better, and the training stops early with the weights of its best epoch. Nothing of DeepRec Extension is
imported. Every process writes what it has at the end to `end-PID.json`.
"""

import argparse
import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
from tensorflow import keras

HURRY, RATE, FASTER, TIMES = "hurry", 0.05, 3, 20


def records(count):
    """A planted signal; the rarer class counts more."""
    random = np.random.default_rng(3)
    x = random.normal(size=(count, 8)).astype("float32")
    return x, (x @ np.arange(8) > 6 + random.normal(size=count)).astype("float32")[:, None]


def model_of(policy):
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((8,)), layers.Dense(16, "relu"), layers.Dense(1), layers.Activation("sigmoid", dtype="float32")]
    )
    assert model.layers[0].compute_dtype == ("float16" if "float16" in policy else "float32")
    return model


class Slowly(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if not os.path.exists(os.path.join(os.environ.get("DEEPREC_EXT_WORKDIR", "."), HURRY)):
            time.sleep(0.02)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="float32")
    arguments = parser.parse_args()
    directory = os.environ.get("DEEPREC_EXT_WORKDIR", ".")
    path = lambda name: os.path.join(directory, name)  # noqa: E731
    keras.utils.set_random_seed(1)
    keras.mixed_precision.set_global_policy(arguments.policy)
    model = model_of(arguments.policy)
    model.compile(keras.optimizers.SGD(RATE), "binary_crossentropy", metrics=["accuracy"])
    x, y = records(6000)
    history = model.fit(
        x, y, batch_size=32, epochs=20, validation_split=0.2, class_weight={0: 1.0, 1: 2.0}, verbose=2,
        callbacks=[
            Slowly(),
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * (TIMES if epoch == FASTER else 1)),
            keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=1e9),
            keras.callbacks.EarlyStopping("val_loss", 1e-3, patience=3, restore_best_weights=True),
            keras.callbacks.ModelCheckpoint(path("best.keras"), "val_loss", save_best_only=True),
            keras.callbacks.TensorBoard(path("board")),
            keras.callbacks.CSVLogger(path("log.csv")),
            keras.callbacks.TerminateOnNaN(),
        ],
    )  # fmt: skip
    found = {
        "role": os.environ.get("DEEPREC_EXT_ROLE", "alone"), "epochs": history.epoch, "history": history.history,
        "rate": float(model.optimizer.learning_rate), "loss": model.evaluate(*records(1000), verbose=0)[0],
    }  # fmt: skip
    with open(path(f"end-{os.getpid()}.json"), "w") as file:
        json.dump(found, file, default=float)


if __name__ == "__main__":
    main()
