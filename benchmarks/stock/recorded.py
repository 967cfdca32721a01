"""Runs an Estimator script as it is, and writes down when each of its steps was completed:

python benchmarks/stock/recorded.py examples/census_wide_deep/train.py --steps 3000
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import tensorflow as tf

from benchmarks.stock import steps
from benchmarks.stock.train import POLL_VARIABLE, StepLog, poll_more_often


def main() -> None:
    sys.argv = sys.argv[1:]
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "chief", "index": 0})
    directory = os.environ.get(steps.DIRECTORY_VARIABLE)
    path = Path(directory) / f"{task['type']}-{task['index']}.steps" if directory else None
    if os.environ.get(POLL_VARIABLE):
        poll_more_often(float(os.environ[POLL_VARIABLE]))
    train = tf.estimator.Estimator.train

    def recorded(self: Any, input_fn: Any, hooks: Any = None, *more: Any, **named: Any) -> Any:
        return train(self, input_fn, [*(hooks or ()), StepLog(path)], *more, **named)

    tf.estimator.Estimator.train = recorded
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
