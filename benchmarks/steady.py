"""The training script of long_run.py and large.py: DeepFM at small size, held to a pace, its input from the data ledger.

Every step lasts at least `--pace` seconds, as in a job whose input is slow: so a job of many processes fits on one machine
beside others, and goes on for hours. A line of `<trainer>.steps` has a third word, the seconds of the run itself without
the wait: a job that gets slower shows there long before it shows in examples per second. `<trainer>.census` has a line of
JSON every `--census` seconds: what of TensorFlow and gRPC is alive in this process, and what the C library holds.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tensorflow as tf

from benchmarks import models
from benchmarks.stock import steps
from deeprec_ext.data import elastic_dataset

v1 = tf.compat.v1
CENSUS_TYPES = ("Graph", "BaseSession", "Channel", "Operation", "FuncGraph", "Thread")


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]  # fmt: skip


def malloc_bytes() -> tuple[int, int]:
    """What glibc has given out, and what it keeps though nobody uses it; (0, 0) where it cannot tell."""
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except AttributeError:  # before glibc 2.33
        return 0, 0
    ask.restype = _Mallinfo2
    found = ask()
    return found.uordblks + found.hblkhd, found.fordblks


def census() -> dict[str, Any]:
    """Python objects alive by the kinds that an old session or channel would leave behind."""
    counts = dict.fromkeys(CENSUS_TYPES, 0)
    objects = gc.get_objects()
    for one in objects:
        for kind in type(one).__mro__:
            if kind.__name__ in counts:
                counts[kind.__name__] += 1
    used, kept = malloc_bytes()
    return {"time": time.time(), "objects": len(objects), "malloc_used": used, "malloc_free": kept, **counts}


class Pace(v1.train.SessionRunHook):
    """Writes every step down and waits for the time of the next one."""

    def __init__(self, base: Path, trainer: str, pace: float, census_seconds: float) -> None:
        self._file = open(base / f"{trainer}.steps", "a")  # noqa: SIM115, closed with the process
        self._census_file = open(base / f"{trainer}.census", "a")  # noqa: SIM115
        self._pace, self._census_seconds = pace, census_seconds
        self._hurry = base / steps.HURRY
        self._next = self._flushed = self._counted = self._began = 0.0

    def begin(self) -> None:
        self._step = v1.train.get_global_step()

    def before_run(self, run_context: Any) -> Any:
        self._began = time.time()
        return v1.train.SessionRunArgs(self._step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        now = time.time()
        self._file.write(f"{now:.6f} {run_values.results} {now - self._began:.6f}\n")
        if now - self._flushed > 0.2:
            self._file.flush()
            self._flushed = now
            if self._pace and self._hurry.exists():
                self._pace = 0.0
        if self._census_seconds and now - self._counted > self._census_seconds:
            self._counted = now
            self._census_file.write(json.dumps(census()) + "\n")
            self._census_file.flush()
        self._next = max(self._next + self._pace, now)
        time.sleep(max(0.0, self._next - time.time()))


def input_fn(size: models.Size, records: int, epochs: int | None) -> Any:
    """Batches whose content follows from the record numbers that the ledger leases."""

    def make() -> Any:
        numbers = elastic_dataset(records, size.batch, epochs=epochs)
        return numbers.map(lambda batch: models.make_batch(batch[0], size)).prefetch(2)

    return make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=int, default=4_000_000, help="bytes of tables and accumulators")
    parser.add_argument("--fields", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--hidden", default="32,16")
    parser.add_argument("--pace", type=float, default=0.1, metavar="SECONDS", help="a step lasts at least so long")
    parser.add_argument("--census", type=float, default=60.0, metavar="SECONDS", help="0: none")
    parser.add_argument("--checkpoint-seconds", type=int, default=600)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=0, help="0: without end")
    arguments = parser.parse_args()
    v1.logging.set_verbosity(v1.logging.INFO)
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "chief", "index": 0})
    size = models.size_of(
        arguments.state, fields=arguments.fields, batch=arguments.batch, dim=8,
        hidden=tuple(int(units) for units in arguments.hidden.split(",")),
    )  # fmt: skip
    config = tf.estimator.RunConfig(
        os.path.join(os.environ["DEEPREC_EXT_WORKDIR"], "model"), save_checkpoints_secs=arguments.checkpoint_seconds,
        save_summary_steps=None, log_step_count_steps=200, keep_checkpoint_max=2, experimental_max_worker_delay_secs=0,
        session_config=v1.ConfigProto(intra_op_parallelism_threads=2, inter_op_parallelism_threads=2),
    )  # fmt: skip
    estimator = tf.estimator.Estimator(models.model_fn, config=config, params={"size": size})
    pace = Pace(
        Path(os.environ[steps.DIRECTORY_VARIABLE]), f"{task['type']}-{task['index']}", arguments.pace, arguments.census
    )
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(input_fn(size, arguments.records, arguments.epochs or None), hooks=[pace]),
        tf.estimator.EvalSpec(
            models.input_fn(size, 10**6, batches=2), steps=None, start_delay_secs=0, throttle_secs=10**6
        ),
    )


if __name__ == "__main__":
    main()
