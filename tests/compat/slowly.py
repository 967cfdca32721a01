"""Runs a Keras script that is told nothing: `python slowly.py FILE train.py …`.

While there is FILE, a step of its `fit` takes its time, so that it does not end before a test has done what it does to it.
"""

import os
import runpy
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
from tensorflow import keras

SECONDS = 0.5
slow, script, *words = sys.argv[1:]


class Slowly(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if os.path.exists(slow):
            time.sleep(SECONDS)


fit = keras.Model.fit


def fit_slowly(self, *arguments, callbacks=(), **options):
    return fit(self, *arguments, callbacks=[*callbacks, Slowly()], **options)


keras.Model.fit = fit_slowly
sys.argv = [script, *words]
sys.path[0] = os.path.dirname(os.path.abspath(script))
runpy.run_path(script, run_name="__main__")
