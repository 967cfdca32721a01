"""Canned Estimators as people write them, with tables that nobody partitions: for tests and benchmarks of cutting.

    python canned.py --model dnn --megabytes 64       # DNNClassifier with one embedding table of 64 MB
    python canned.py --model census                   # DNNLinearCombinedClassifier, a crossing hashed into 1 000 000 rows

In a job it trains until its directory has a file `stop`. Nothing here knows of DeepRec Extension.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
feature = tf.feature_column
DIM = 16
KINDS = {"workclass": 9, "education": 16, "marital": 7, "occupation": 15, "relationship": 6, "race": 5}


class StopAtFile(tf.estimator.SessionRunHook):
    """Ends training when the file is there; notes when each step ended."""

    def __init__(self, directory: str, name: str) -> None:
        self._file, self._times = os.path.join(directory, "stop"), os.path.join(directory, f"times-{name}.txt")
        self._ends: list[float] = []

    def after_run(self, context, values):
        self._ends.append(time.time())
        if len(self._ends) % 50 == 0 and os.path.exists(self._file):
            context.request_stop()

    def end(self, session):
        with open(self._times, "w") as file:
            file.writelines(f"{end:.6f}\n" for end in self._ends)


def columns(model: str, rows: int):
    if model == "dnn":
        return [], [feature.embedding_column(feature.categorical_column_with_identity("item", rows), DIM)]
    categories = {name: feature.categorical_column_with_identity(name, kinds) for name, kinds in KINDS.items()}
    ages = feature.bucketized_column(feature.numeric_column("age"), [18, 25, 30, 35, 40, 45, 50, 55, 60, 65])
    # A crossing takes strings or numbers; identities are crossed by their key.
    crossings = [
        feature.crossed_column(["education", "occupation"], 10_000),
        feature.crossed_column([ages, "race", "occupation"], 1_000_000),
    ]
    wide = [*categories.values(), ages, *crossings]
    deep = [feature.numeric_column("age"), *(feature.embedding_column(one, 8) for one in categories.values())]
    return wide, deep


def make(model: str, rows: int, directory: str, optimizer: str):
    wide, deep = columns(model, rows)
    config = tf.estimator.RunConfig(
        directory, save_checkpoints_steps=100_000, log_step_count_steps=1000, tf_random_seed=1
    )
    if wide:
        return tf.estimator.DNNLinearCombinedClassifier(
            model_dir=directory, linear_feature_columns=wide, dnn_feature_columns=deep, dnn_hidden_units=[100, 70, 48, 34],
            dnn_optimizer=optimizer, config=config,
        )  # fmt: skip
    return tf.estimator.DNNClassifier([32], deep, directory, optimizer=optimizer, config=config)


def records(model: str, rows: int, batch: int):
    random = np.random.default_rng(os.getpid())
    count = 100 * batch
    if model == "dnn":
        values = {"item": random.integers(0, rows, (count, 1))}
    else:
        values = {name: random.integers(0, kinds, (count, 1)) for name, kinds in KINDS.items()}
        values["age"] = random.integers(17, 90, (count, 1)).astype(np.float32)
    labels = random.integers(0, 2, (count, 1))
    return lambda: tf.data.Dataset.from_tensor_slices((values, labels)).repeat().batch(batch).prefetch(2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=("dnn", "census"), default="dnn")
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--optimizer", default="Adagrad")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--directory", default=".")
    options = parser.parse_args()
    rows = options.megabytes * 1_000_000 // (4 * DIM)
    directory = os.path.join(options.directory, "model")
    os.makedirs(directory, exist_ok=True)
    estimator = make(options.model, rows, directory, options.optimizer)
    role = f"{estimator.config.task_type or 'alone'}-{estimator.config.task_id or 0}"
    given = records(options.model, rows, options.batch)
    hook = StopAtFile(directory, role)
    training = tf.estimator.TrainSpec(given, options.steps, hooks=[hook])
    tf.estimator.train_and_evaluate(estimator, training, tf.estimator.EvalSpec(given, steps=1, start_delay_secs=0))


if __name__ == "__main__":
    main()
