"""The command of the job: worker-1 is the liar, everybody else trains. A step adds 1 to the rows of its records."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

TABLE, DATASET, BATCH = "times", "lies", 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument(
        "--sleep", type=float, default=0.5, help="seconds a step waits, until the liar has said everything"
    )
    arguments = parser.parse_args()
    from deeprec_ext import env

    workdir = Path(env.workdir() or ".")
    if (env.role(), env.index()) == ("worker", 1):
        from benchmarks.lies.liar import Liar

        Liar(arguments.messages, arguments.seed, DATASET, workdir).run()
        (workdir / "lied").touch()
        return
    train(arguments, workdir)


def train(arguments: argparse.Namespace, workdir: Path) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    from deeprec_ext.data import elastic_dataset

    v1 = tf.compat.v1
    v1.disable_eager_execution()

    class Slow(v1.train.SessionRunHook):  # type: ignore[misc, name-defined]
        """Until the liar has said everything."""

        def after_run(self, run_context: object, run_values: object) -> None:
            if not (workdir / "lied").exists():
                time.sleep(arguments.sleep)

    def batches() -> object:
        return elastic_dataset(
            arguments.records, BATCH, seed=7, shard_records=100, reader="range", name=DATASET
        ).prefetch(2)

    def model_fn(features: object, labels: object, mode: str) -> object:
        table = v1.get_variable(TABLE, [arguments.records, 4], initializer=v1.zeros_initializer())
        loss = -tf.reduce_sum(tf.nn.embedding_lookup(table, features))
        train_op = v1.train.GradientDescentOptimizer(1.0).minimize(loss, v1.train.get_or_create_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=[Slow()])

    config = tf.estimator.RunConfig(str(workdir / "model"), save_checkpoints_steps=10**9, save_summary_steps=10**9)
    tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(model_fn, config=config),
        tf.estimator.TrainSpec(batches, max_steps=10**9),
        tf.estimator.EvalSpec(lambda: tf.data.Dataset.from_tensors(tf.zeros([1], tf.int64)), steps=1),
    )


if __name__ == "__main__":
    sys.exit(main())
