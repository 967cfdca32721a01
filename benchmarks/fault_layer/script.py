"""Counts how often each record was trained: a step adds 1 to the rows of its records. Arguments: number of
records, seconds a step waits until there is a file `hurry` in the run directory."""

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

from deeprec_ext.data import elastic_dataset

v1 = tf.compat.v1
TABLE, BATCH, SHARD = "times", 40, 200
DIRECTORY = os.environ.get("DEEPREC_EXT_WORKDIR", ".")


class Slow(v1.train.SessionRunHook):
    def __init__(self, seconds):
        self.seconds = seconds

    def after_run(self, run_context, run_values):
        if self.seconds and os.path.exists(os.path.join(DIRECTORY, "hurry")):
            self.seconds = 0.0
        time.sleep(self.seconds)
        print("a step is done", flush=True)  # a script prints, and must not fail because of it


def main():
    records, seconds = int(sys.argv[1]), float(sys.argv[2])
    v1.disable_eager_execution()

    def model_fn(features, labels, mode):
        table = v1.get_variable(TABLE, [records, 4], initializer=v1.zeros_initializer())
        loss = -tf.reduce_sum(tf.nn.embedding_lookup(table, features))
        train = v1.train.GradientDescentOptimizer(1.0).minimize(loss, v1.train.get_or_create_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train, training_hooks=[Slow(seconds)])

    config = tf.estimator.RunConfig(
        os.path.join(DIRECTORY, "..", "model"), save_checkpoints_steps=10**9, log_step_count_steps=1000,
        save_summary_steps=10**9,
    )  # fmt: skip
    tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(model_fn, config=config),
        tf.estimator.TrainSpec(
            lambda: elastic_dataset(records, BATCH, epochs=1, seed=7, shard_records=SHARD, reader="range").prefetch(2)
        ),
        tf.estimator.EvalSpec(lambda: tf.data.Dataset.from_tensors(tf.zeros([1], tf.int64)), steps=1),
    )


if __name__ == "__main__":
    main()
