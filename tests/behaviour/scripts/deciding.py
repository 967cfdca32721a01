"""Plain Keras that fits, evaluates and decides by it, as scripts that search for something do.

Each process says what it has measured, by Keras and by chance, and what it has decided. Nothing of ours is imported.

    deciding.py [FILE]      # the last round begins once FILE exists
"""

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
from tensorflow import keras

ROWS, BATCH, ROUNDS, LEFT = 2000, 20, 10, 2
LINES = ROUNDS


class Pruned(Exception):
    pass


class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.03)


class Leaves(Slow):
    """In one process: those of the others would come to it once the chief has told of the epoch."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            raise Pruned("enough")


def main():
    x = np.random.normal(size=(ROWS, 4))
    y = x @ np.random.normal(size=(4, 1)) + np.random.normal(size=(ROWS, 1))
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    best, rate = float("inf"), 0.01
    for number in range(ROUNDS):
        print("round", number, flush=True)
        while number == ROUNDS - 1 and len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):
            time.sleep(0.1)
        rows = np.random.permutation(ROWS)
        held, train = rows[:200], rows[200:]
        try:
            callbacks = [Leaves()] if number == LEFT else [Slow()]
            model.fit(x[train], y[train], batch_size=BATCH, epochs=3 if number == LEFT else 1, verbose=0,
                      callbacks=callbacks)  # fmt: skip
        except Pruned as error:
            print("SAYS", number, "left:", error, flush=True)
            continue
        loss = model.evaluate(x[held], y[held], verbose=0)
        if loss < best:
            best = loss
            model.save_weights("best.weights.h5")
        else:
            rate /= 2
            model.optimizer.learning_rate.assign(rate)
            model.load_weights("best.weights.h5")
        print("SAYS", number, loss, best, rate, np.random.random(), flush=True)


if __name__ == "__main__":
    main()
