"""One process of stock `tf.distribute` ParameterServerStrategy with Keras 2: `TF_CONFIG` says which. The coordinator fits the
model of `fit.py`, and prints the seconds of every epoch, one JSON document a line."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import tensorflow as tf

from benchmarks import models

keras = tf.keras


class Epochs(keras.callbacks.Callback):
    """Tells how long each took."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._began = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        print(json.dumps({"epoch": epoch, "seconds": time.monotonic() - self._began}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", default="16MB")
    parser.add_argument("--fields", type=int, default=26)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=400, help="of an epoch, of all workers together")
    parser.add_argument("--at-once", type=int, default=1, help="steps of one execution on a worker")
    arguments = parser.parse_args()

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("ps", "worker"):
        server = tf.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
        )
        server.join()
    size = models.size_of(arguments.state, fields=arguments.fields, batch=arguments.batch)
    strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
    with strategy.scope():
        model = models.keras_model(size)
        model.compile(
            keras.optimizers.Adagrad(0.05), keras.losses.BinaryCrossentropy(from_logits=True),
            steps_per_execution=arguments.at_once,
        )  # fmt: skip

    def batches(context: Any) -> Any:
        return models.input_fn(size, context.input_pipeline_id if context is not None else 0)()

    model.fit(
        keras.utils.experimental.DatasetCreator(batches), epochs=arguments.epochs, steps_per_epoch=arguments.steps,
        callbacks=[Epochs()], verbose=0,
    )  # fmt: skip
    os._exit(0)  # servers of the strategy are not ended in order


if __name__ == "__main__":
    main()
