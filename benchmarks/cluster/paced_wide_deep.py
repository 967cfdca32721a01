"""Wide & deep on PS (`examples/census_wide_deep`, made-up people), each record of which takes a known time to train.

The PS, the graph, the sessions and the records of the ledger are TensorFlow's and ours as ever; only that a step takes no less
than its records' time is made (`paced.py`), so that trainers of more slots than there are cores are equal.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

from benchmarks.cluster import paced
from deeprec_ext.data import elastic_dataset

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "census_wide_deep"
BATCHES_OF_A_LEASE, TESTED = 8, 4096
"""The example's own leases have 32 batches: at this pace who has the last one would train for a quarter of a minute alone."""


def example(batch: int) -> Any:
    sys.path.insert(0, str(EXAMPLE))
    import train  # type: ignore[import-not-found]

    train.elastic_dataset = functools.partial(elastic_dataset, shard_records=BATCHES_OF_A_LEASE * batch)
    return train


class Paced(tf.estimator.SessionRunHook):
    def __init__(self, pace: paced.Pace, batch: int, noted: Path) -> None:
        self._pace, self._batch, self._noted = pace, batch, noted

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._pace.made(self._batch)
        paced.note(self._noted)


def main() -> None:
    arguments = paced.flags(__doc__, batch=24, seconds=0.02).parse_args()
    wide_deep, noted = example(arguments.batch), paced.noted_at(arguments)
    place = arguments.notes / f"model-{arguments.name}"
    (columns, labels), test = wide_deep.generate(arguments.records, seed=1), wide_deep.generate(TESTED, seed=2)
    path = place / "people.data"
    wide_deep.write(str(path), columns, labels)
    vocabularies = {name: np.unique(columns[name]) for name in wide_deep.CATEGORIES}
    rows = [len(vocabularies[name]) + 1 for name in wide_deep.CATEGORIES]
    rows += [len(bounds) + 1 for bounds in wide_deep.BOUNDARIES.values()]
    config = tf.estimator.RunConfig(str(place), save_checkpoints_secs=600, log_step_count_steps=100)
    estimator = tf.estimator.Estimator(
        wide_deep.model_fn, config=config, params={"rows": rows, "dim": 8, "hidden": [64, 32]}
    )
    pace = Paced(paced.Pace(arguments.seconds), arguments.batch, noted)
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(wide_deep.training(str(path), vocabularies, arguments.batch, 1), hooks=[pace]),
        tf.estimator.EvalSpec(
            wide_deep.evaluation((*wide_deep.encode(test[0], vocabularies), test[1]), TESTED), start_delay_secs=0
        ),
    )


if __name__ == "__main__":
    main()
