"""ResNet-20 without PS, by Keras's `fit` on generated pictures (`benchmarks/accuracy_in_step.py`), each of a known time.

The model computes its gradients, and they are summed over all workers, as ever; only that a worker's part of a step takes no
less than its pictures' time is made (`paced.py`), so that workers of more slots than there are cores are equal.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf
from tensorflow import keras

from benchmarks.accuracy_in_step import MODELS, build, pictures
from benchmarks.cluster import paced

PICTURES = 1000


class Paced(keras.layers.Layer):
    """Gives on what it is given, in training no sooner than its records may have been trained."""

    def __init__(self, pace: paced.Pace) -> None:
        super().__init__()
        self._pace = pace

    def _wait(self, count: Any) -> Any:
        self._pace.made(int(count))
        return count

    def call(self, given: Any, training: bool = False) -> Any:
        if not training:
            return given
        with tf.control_dependencies([tf.numpy_function(self._wait, [tf.shape(given)[0]], tf.int32)]):
            return tf.identity(given)


def main() -> None:
    arguments = paced.flags(__doc__, batch=32, seconds=0.1).parse_args()
    keras.utils.set_random_seed(1)
    count = min(PICTURES, arguments.records)
    epochs, kind = -(-arguments.records // count), MODELS["resnet"][2]
    x, y = pictures(*kind, count, 1)
    model, optimizer = build("resnet", epochs * -(-count // arguments.batch))
    given, noted = keras.Input(x.shape[1:]), paced.noted_at(arguments)
    whole = keras.Model(given, model(Paced(paced.Pace(arguments.seconds))(given)))
    whole.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    whole.fit(
        x, y, batch_size=arguments.batch, epochs=epochs, verbose=2,
        callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_: paced.note(noted))],
    )  # fmt: skip


if __name__ == "__main__":
    main()
