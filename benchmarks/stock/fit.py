"""The Keras script that the benchmarks train: the model of `train.py` with `Model.fit`, and the time of every step in a file.

It names nothing of DeepRec Extension and runs unchanged in one process and under `deeprec-ext run`.
"""

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
from benchmarks.stock import steps

keras = tf.keras
FLUSH_SECONDS = 0.2


class StepLog(keras.callbacks.Callback):
    """Writes when each step of this process was completed; of several in one execution, the last."""

    def __init__(self, path: Path, at_once: int = 1) -> None:
        super().__init__()
        self._at_once = at_once
        self._file = open(path, "a")  # noqa: SIM115, as long as the process
        self._count, self._flushed = 0, 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        now = time.time()
        self._count += self._at_once
        self._file.write(f"{now:.6f} {self._count}\n")
        if now - self._flushed > FLUSH_SECONDS:
            self._file.flush()
            self._flushed = now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", default="64MB", help=f"of tables and accumulators: {', '.join(models.STATE_BYTES)}")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--fields", type=int, default=26)
    parser.add_argument("--steps", type=int, default=1000, help="of each process")
    parser.add_argument("--at-once", type=int, default=1, help="steps of one execution")
    parser.add_argument("--auc", action="store_true", help="measured while it trains")
    arguments = parser.parse_args()

    size = models.size_of(arguments.state, fields=arguments.fields, batch=arguments.batch)
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "chief", "index": 0})
    directory = os.environ.get(steps.DIRECTORY_VARIABLE)
    name = f"{task['type']}-{task['index']}"
    callbacks = [StepLog(Path(directory) / f"{name}.steps", arguments.at_once)] if directory else []
    model = models.keras_model(size)
    model.compile(
        keras.optimizers.Adagrad(0.05), keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.AUC(from_logits=True)] if arguments.auc else [], steps_per_execution=arguments.at_once,
    )  # fmt: skip
    seed = task["index"] + (task["type"] != "chief")
    model.fit(models.input_fn(size, seed, arguments.steps)(), callbacks=callbacks, verbose=0)


if __name__ == "__main__":
    main()
