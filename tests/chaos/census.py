"""The census example, unchanged, with a brake: a step takes at least so long as the file `pace` in the run directory says.

So a schedule fits into a finite number of records on fast and slow machines. Each process also writes down its steps, one
line each: Unix seconds, global step, records.
"""

import contextlib
import importlib.util
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "census_wide_deep" / "train.py"
BATCH = 128


def main():
    import tensorflow as tf

    v1 = tf.compat.v1
    directory = Path(os.environ["DEEPREC_EXT_WORKDIR"]) / "chaos"
    role = f"{os.environ.get('DEEPREC_EXT_ROLE', 'chief')}-{os.environ.get('DEEPREC_EXT_INDEX', '0')}"

    class Brake(v1.train.SessionRunHook):
        """Sleeps between two steps, never inside a run."""

        def __init__(self):
            self._log = open(directory / f"{role}.{os.getpid()}.steps", "a", buffering=1)  # noqa: SIM115
            self._last, self._pace, self._looked = 0.0, 0.0, 0.0

        def begin(self):
            self._step = v1.train.get_global_step()

        def before_run(self, run_context):
            now = time.monotonic()
            if now - self._looked > 0.2:
                self._looked = now
                with contextlib.suppress(OSError, ValueError):
                    self._pace = float((directory / "pace").read_text())
            time.sleep(max(0.0, self._last + self._pace - now))
            self._last = time.monotonic()
            return v1.train.SessionRunArgs(self._step)

        def after_run(self, run_context, run_values):
            self._log.write(f"{time.time():.6f} {run_values.results} {BATCH}\n")

    train = tf.estimator.Estimator.train

    def braked(self, input_fn, hooks=None, **options):
        return train(self, input_fn, hooks=[*(hooks or []), Brake()], **options)

    tf.estimator.Estimator.train = braked
    spec = importlib.util.spec_from_file_location("census_train", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    sys.argv[0] = str(EXAMPLE)
    example.main()


if __name__ == "__main__":
    main()
