"""The Estimator script that the benchmarks train: DeepFM (benchmarks/models.py), and the time of every step in a file.

It names nothing of DeepRec Extension and runs unchanged on stock TensorFlow and under `deeprec-ext run`. SIGUSR1 ends the
training at the next step; the chief then writes its last checkpoint, as at any end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import tensorflow as tf

from benchmarks import models
from benchmarks.stock import steps

v1 = tf.compat.v1
FLUSH_SECONDS = 0.2
POLL_VARIABLE = "BENCHMARK_POLL_SECONDS"
"""How often a worker that waits for the chief looks again; stock TensorFlow: 30. The baseline is measured with less."""


class StepLog(v1.train.SessionRunHook):
    """Writes when each step was completed, and stops at SIGUSR1. Fetches what Estimator's own hooks fetch."""

    def __init__(self, path: Path | None) -> None:
        self._file = open(path, "a") if path else None  # noqa: SIM115, closed in end()
        self._flushed, self._stop = 0.0, False
        signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "_stop", True))

    def begin(self) -> None:
        self._step = v1.train.get_global_step()

    def before_run(self, run_context: Any) -> Any:
        return v1.train.SessionRunArgs(self._step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        now = time.time()
        if self._file:
            self._file.write(f"{now:.6f} {run_values.results}\n")
            if now - self._flushed > FLUSH_SECONDS:
                self._file.flush()
                self._flushed = now
        if self._stop:
            run_context.request_stop()

    def end(self, session: Any) -> None:
        if self._file:
            self._file.flush()


def poll_more_often(seconds: float) -> None:
    """The kindest baseline: a worker notices at once, and not after up to half a minute, that the chief is ready."""
    from tensorflow.python.training import session_manager

    original = session_manager.SessionManager.__init__

    def patched(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        self._recovery_wait_secs = seconds

    session_manager.SessionManager.__init__ = patched


def slowed(input_fn: Any, arguments: argparse.Namespace) -> Any:
    """The same input, from a place that serves one read at a time, to all trainers that name the same lock."""
    if not arguments.input_seconds:
        return input_fn
    import fcntl

    file = open(arguments.input_lock, "a")  # noqa: SIM115, as long as the process

    def read(value: Any) -> Any:
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(arguments.input_seconds)
        fcntl.flock(file, fcntl.LOCK_UN)
        return value

    def pass_on(*batch: Any) -> Any:
        flat = tf.nest.flatten(batch)
        first = tf.numpy_function(read, [flat[0]], flat[0].dtype)
        first.set_shape(flat[0].shape)
        found = tf.nest.pack_sequence_as(batch, [first, *flat[1:]])
        return found if len(found) > 1 else found[0]

    return lambda: input_fn().map(pass_on).prefetch(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--state",
        default="64MB",
        help=f"bytes of tables and accumulators: {', '.join(models.STATE_BYTES)}, or a number",
    )
    parser.add_argument("--parts", type=int, default=1, help="cut every table into so many parts")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--fields", type=int, default=26)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--hidden", default="256,128", help="units of the dense layers")
    parser.add_argument("--zipf", type=float, default=1.0, help="exponent of the distribution of ids; 0: uniform")
    parser.add_argument("--input-seconds", type=float, default=0.0, help="that reading a batch takes, one at a time")
    parser.add_argument("--input-lock", metavar="FILE", help="of the trainers that read from the same place")
    parser.add_argument("--steps", type=int, default=1000, help="training steps of all workers together")
    parser.add_argument("--checkpoint-seconds", type=int, default=3600, help="how often the chief writes a checkpoint")
    parser.add_argument(
        "--model-dir", help="where checkpoints go (default: below $DEEPREC_EXT_WORKDIR, else a temporary directory)"
    )
    arguments = parser.parse_args()
    v1.logging.set_verbosity(v1.logging.INFO)
    if os.environ.get(POLL_VARIABLE):
        poll_more_often(float(os.environ[POLL_VARIABLE]))

    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "chief", "index": 0})
    directory = os.environ.get(steps.DIRECTORY_VARIABLE)
    log = Path(directory) / f"{task['type']}-{task['index']}.steps" if directory else None
    workdir = os.environ.get("DEEPREC_EXT_WORKDIR")
    model_dir = arguments.model_dir or (
        os.path.join(workdir, "model") if workdir else tempfile.mkdtemp(prefix="bench-")
    )

    state = arguments.state if arguments.state in models.STATE_BYTES else int(arguments.state)
    size = models.size_of(
        state, fields=arguments.fields, parts=arguments.parts, batch=arguments.batch, dim=arguments.dim,
        zipf=arguments.zipf, hidden=tuple(int(units) for units in arguments.hidden.split(",")),
    )  # fmt: skip
    config = tf.estimator.RunConfig(
        model_dir, save_checkpoints_secs=arguments.checkpoint_seconds, save_summary_steps=None, log_step_count_steps=200,
        keep_checkpoint_max=2, experimental_max_worker_delay_secs=0,
    )  # fmt: skip
    estimator = tf.estimator.Estimator(models.model_fn, config=config, params={"size": size})
    seed = config.global_id_in_cluster or 0
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(
            slowed(models.input_fn(size, seed), arguments), max_steps=arguments.steps, hooks=[StepLog(log)]
        ),
        tf.estimator.EvalSpec(
            models.input_fn(size, 10**6, batches=20), steps=None, start_delay_secs=0, throttle_secs=3600
        ),
    )


if __name__ == "__main__":
    main()
