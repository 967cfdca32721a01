"""Runs a Keras script as it is, and writes the loss after each of its first batches.

    python benchmarks/stock/hundred.py OUT.json xla|plain SCRIPT [its arguments]

Only `fit` is told something: no shuffling, one more callback; and with `plain`, `compile`: no XLA. First values come from one
seed. It names nothing of DeepRec Extension and runs unchanged in one process and under `deeprec-ext run`.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

keras = tf.keras
BATCHES, SEED = 100, 7


class Losses(keras.callbacks.Callback):
    """Of the first batches: the mean of the epoch so far, as Keras tells it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path, self._losses = path, list[float]()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if len(self._losses) < BATCHES:
            self._losses.append(float(logs["loss"] if "loss" in logs else logs[min(logs)]))
            if len(self._losses) == BATCHES:
                self._path.write_text(json.dumps(self._losses))


def main() -> None:
    out, compiler, script, *arguments = sys.argv[1:]
    fit, make = keras.Model.fit, keras.Model.compile

    def told(self: Any, *given: Any, **words: Any) -> Any:
        words["callbacks"] = [*(words.get("callbacks") or []), Losses(Path(out))]
        return fit(self, *given, **{**words, "shuffle": False})

    def without(self: Any, *given: Any, **words: Any) -> None:
        make(self, *given, **{**words, "jit_compile": False})

    keras.Model.fit = told
    if compiler == "plain":
        keras.Model.compile = without
    keras.utils.set_random_seed(SEED)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
