"""A training script that counts, on every slot, which of its updates are still there: what a failover lost, exactly.

On every slot it has a dense counter and a table. Each step adds 1 to its own element of every counter and to 64 rows of
its own block of every table, and reads both back after that. Each trainer writes a line per step into
`$BENCHMARK_STEPS/<role>.updates`: Unix seconds, its steps so far, then per slot the updates found in the counter, then
per slot those in the table. Steps minus updates is what was lost on that slot; less than nothing is a step that failed,
had been applied on this slot, and was run again.

It names nothing of DeepRec Extension. It trains until it is stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.stock import steps

BLOCKS, BLOCK, DIM, BATCH = 8, 512, 4, 64
SLOTS_FILE = "slots.json"


@dataclass(frozen=True)
class Line:
    """After one step of one trainer."""

    time: float
    done: int
    counters: tuple[int, ...]
    tables: tuple[int, ...]

    def missing(self) -> list[int]:
        """Per slot: the most updates missing in either of its variables."""
        return [self.done - min(pair) for pair in zip(self.counters, self.tables)]


def read(directory: Path) -> dict[str, list[Line]]:
    """Trainer → its lines, oldest first; one that is being written is left out."""
    found = {}
    for path in sorted(directory.glob("*.updates")):
        lines = []
        for text in path.read_text().splitlines(keepends=True):
            words = text.split()
            if text.endswith("\n"):
                values = [int(word) for word in words[2:]]
                half = len(values) // 2
                lines.append(Line(float(words[0]), int(words[1]), tuple(values[:half]), tuple(values[half:])))
        found[path.stem] = lines
    return found


def build(v1: Any, tf: Any, ids: Any, block: int, slots: int) -> tuple[Any, Any, Any, list[Any], list[Any]]:
    """(train_op, updates found in the counters, in the tables, counters, tables); variables go round the slots."""
    counters = [
        v1.get_variable(f"counter{n}", [BLOCKS], tf.int64, v1.zeros_initializer(), trainable=False)
        for n in range(slots)
    ]
    tables = [
        v1.get_variable(f"table{n}", [BLOCKS * BLOCK, DIM], initializer=v1.zeros_initializer()) for n in range(slots)
    ]
    loss = -tf.add_n([tf.reduce_sum(tf.nn.embedding_lookup(table, ids)) for table in tables])
    applied = v1.train.GradientDescentOptimizer(1.0).apply_gradients(zip(tf.gradients(loss, tables), tables))
    one = tf.one_hot(block, BLOCKS, dtype=tf.int64)
    added = [v1.assign_add(counter, one) for counter in counters]
    with tf.control_dependencies([applied, *added]):
        own = block * BLOCK + tf.range(BLOCK)
        in_counters = tf.stack([counter.read_value()[block] for counter in counters])
        sums = [tf.reduce_sum(tf.cast(tf.gather(table, own)[:, 0], tf.float64)) for table in tables]
        in_tables = tf.cast(tf.stack(sums) / BATCH, tf.int64)
        train_op = tf.convert_to_tensor(v1.assign_add(v1.train.get_or_create_global_step(), 1))
    return train_op, in_counters, in_tables, counters, tables


def main() -> None:
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.logging.set_verbosity(v1.logging.INFO)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pace", type=float, default=0.005, help="seconds between two steps")
    parser.add_argument("--checkpoint-seconds", type=int, default=3600)
    arguments = parser.parse_args()
    described = json.loads(os.environ["TF_CONFIG"])
    task, slots = described["task"], len(described["cluster"]["ps"])
    role = f"{task['type']}-{task['index']}"
    block = 0 if task["type"] == "chief" else 1 + task["index"]
    directory = Path(os.environ[steps.DIRECTORY_VARIABLE])

    class Log(v1.train.SessionRunHook):
        def __init__(self, fetches: Any) -> None:
            self._fetches, self._done = fetches, 0
            self._updates = open(directory / f"{role}.updates", "a", buffering=1)  # noqa: SIM115, until the end
            self._steps = open(directory / f"{role}.steps", "a", buffering=1)  # noqa: SIM115

        def before_run(self, run_context: Any) -> Any:
            return v1.train.SessionRunArgs(self._fetches)

        def after_run(self, run_context: Any, run_values: Any) -> None:
            step, counters, tables = run_values.results
            self._done += 1
            now = f"{time.time():.6f}"
            self._steps.write(f"{now} {step}\n")
            self._updates.write(f"{now} {self._done} {' '.join(map(str, [*counters, *tables]))}\n")
            time.sleep(arguments.pace)

    def model_fn(features: Any, labels: Any, mode: Any) -> Any:
        train_op, in_counters, in_tables, counters, tables = build(v1, tf, features, block, slots)
        slot_of = lambda variable: int(variable.device.rpartition("task:")[2].split("/")[0])  # noqa: E731
        placed = {"counters": [slot_of(one) for one in counters], "tables": [slot_of(one) for one in tables]}
        (directory / SLOTS_FILE).write_text(json.dumps(placed))
        log = Log([train_op, in_counters, in_tables])
        return tf.estimator.EstimatorSpec(mode, loss=tf.constant(0.0), train_op=train_op, training_hooks=[log])

    def input_fn() -> Any:
        return tf.data.Dataset.range(2**60).map(
            lambda n: block * BLOCK + (n * 37 + tf.range(BATCH, dtype=tf.int64) * 5) % BLOCK
        )

    model_dir = os.path.join(os.environ["DEEPREC_EXT_WORKDIR"], "model")
    config = tf.estimator.RunConfig(
        model_dir, save_checkpoints_secs=arguments.checkpoint_seconds, save_summary_steps=None,
        experimental_max_worker_delay_secs=0,
    )  # fmt: skip
    tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(model_fn, config=config),
        tf.estimator.TrainSpec(input_fn, max_steps=10**9),
        tf.estimator.EvalSpec(lambda: tf.data.Dataset.from_tensors(tf.range(4, dtype=tf.int64)), steps=1),
    )


if __name__ == "__main__":
    main()
