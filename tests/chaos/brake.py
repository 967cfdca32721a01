"""What scripts under chaos have beside the user's code: a brake, a record of their steps, and a table that can be made hot.

A step takes at least so long as the file `chaos/pace` in the run directory says, so that a schedule fits into a finite number
of records on fast and slow machines. Each process writes down its steps, one line each: Unix seconds, global step, records.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


class Brake(v1.train.SessionRunHook):  # type: ignore[misc]
    """Sleeps between two steps, never inside a run. `records`: of the data ledger, in a step."""

    def __init__(self, records: int) -> None:
        self._directory = Path(os.environ["DEEPREC_EXT_WORKDIR"]) / "chaos"
        role = f"{os.environ.get('DEEPREC_EXT_ROLE', 'chief')}-{os.environ.get('DEEPREC_EXT_INDEX', '0')}"
        self._log = open(self._directory / f"{role}.{os.getpid()}.steps", "a", buffering=1)  # noqa: SIM115
        self._records = records
        self._last, self._pace, self._looked = 0.0, 0.0, 0.0

    def begin(self) -> None:
        self._step = v1.train.get_global_step()

    def before_run(self, run_context: Any) -> Any:
        now = time.monotonic()
        if now - self._looked > 0.2:
            self._looked = now
            with contextlib.suppress(OSError, ValueError):
                self._pace = float((self._directory / "pace").read_text())
        time.sleep(max(0.0, self._last + self._pace - now))
        self._last = time.monotonic()
        return v1.train.SessionRunArgs(self._step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._log.write(f"{time.time():.6f} {run_values.results} {self._records}\n")


def brake(records: int) -> None:
    """From now on every training of an Estimator has the hook."""
    train = tf.estimator.Estimator.train

    def braked(self: Any, input_fn: Any, hooks: Any = None, **options: Any) -> Any:
        return train(self, input_fn, hooks=[*(hooks or []), Brake(records)], **options)

    tf.estimator.Estimator.train = braked


def load(example: Path) -> ModuleType:
    """The script as a module, unchanged."""
    spec = importlib.util.spec_from_file_location(f"{example.parent.name}_train", example)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def heat(where: Any, name: str, lookups: int, rows: int) -> None:
    """From now on a look-up in the table `name` takes so many rows per id, and gives their mean.

    Args:
      where: whose `embedding_lookup` the script calls: `tf.nn` or `tf.compat.v1.nn`.
    """
    look_up = where.embedding_lookup

    def embedding_lookup(table: Any, ids: Any, **options: Any) -> Any:
        if table.op.name != name:
            return look_up(table, ids, **options)
        many = tf.math.floormod(ids[:, None] * 31 + 7919 * tf.range(lookups, dtype=ids.dtype), rows)
        return tf.reduce_mean(look_up(table, many, **options), 1)

    where.embedding_lookup = embedding_lookup
