"""A loop of `train_on_batch` of plain Keras, in which a process that was there before does something else for a while.

Nothing of DeepRec Extension here. While `rest` is there a process that began before it waits, once, for `back-ROLE-INDEX`.
`steps/ROLE.PID`: number of the update, check of weights and optimizer; `rests/ROLE.PID`: the number at which it rests.
"""

import os
import time
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
from tensorflow import keras

ROLE = f"{os.environ.get('DEEPREC_EXT_ROLE', 'alone')}-{os.environ.get('DEEPREC_EXT_INDEX', '0')}"
OUT = os.environ.get("DEEPREC_EXT_WORKDIR", ".")


def there(name):
    return os.path.exists(os.path.join(OUT, name))


def append(kind, *words):
    os.makedirs(os.path.join(OUT, kind), exist_ok=True)
    with open(os.path.join(OUT, kind, f"{ROLE}.{os.getpid()}"), "a") as file:
        file.write(" ".join(map(str, words)) + "\n")


may_rest = not there("rest")
keras.utils.set_random_seed(os.getpid())
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
end = time.monotonic() + 600
while time.monotonic() < end and not there("enough"):
    x = np.random.random((16, 8)).astype("float32")
    model.train_on_batch(x, x.sum(1, keepdims=True))
    variables = model.optimizer.variables() if callable(model.optimizer.variables) else model.optimizer.variables
    found = 0
    for one in [*variables, *model.get_weights()]:
        found = zlib.crc32(np.ascontiguousarray(one).tobytes(), found)
    append("steps", int(model.optimizer.iterations.numpy()), found)
    if may_rest and there("rest"):
        may_rest = False
        append("rests", int(model.optimizer.iterations.numpy()))
        while not there(f"back-{ROLE}") and time.monotonic() < end:
            time.sleep(0.05)
    time.sleep(0.02)
