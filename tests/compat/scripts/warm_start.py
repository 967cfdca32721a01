"""`Estimator.train` alone, from the weights of an earlier model (`WarmStartSettings`).

python warm_start.py --model-dir /tmp/first --steps 500
python warm_start.py --model-dir /tmp/second --warm-start-from /tmp/first --steps 2000
"""

import argparse
import os
import tempfile
import time

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

ITEMS = 4000


def make_baskets(count, seed):
    wanted = np.random.default_rng(11).normal(0, 1.0, ITEMS)
    random = np.random.default_rng(seed)
    items = (ITEMS * random.random((count, 6)) ** 3).astype(np.int64)
    bought = random.random(count) < 1 / (1 + np.exp(-1.5 * wanted[items].sum(1)))
    return {"items": items}, bought.astype(np.int32)


def input_fn(count, seed, batch_size):
    return tf.data.Dataset.from_tensor_slices(make_baskets(count, seed)).shuffle(count).repeat().batch(batch_size)


class Counter(v1.train.SessionRunHook):
    def __init__(self, slow_while):
        self.count, self.slow_while = 0, slow_while

    def after_run(self, run_context, run_values):
        self.count += 1
        if os.path.exists(self.slow_while):
            time.sleep(0.5)

    def end(self, session):
        print(f"steps of this process: {self.count}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-dir", default=None)
    parser.add_argument("--warm-start-from", default=None, help="model directory of an earlier training")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument(
        "--slow-while", default="", help="as long as this file is there, every step takes half a second more"
    )
    arguments = parser.parse_args()
    v1.logging.set_verbosity(v1.logging.INFO)

    items = tf.feature_column.categorical_column_with_identity("items", ITEMS)
    config = tf.estimator.RunConfig(save_checkpoints_secs=20)
    warm = None
    if arguments.warm_start_from:
        warm = tf.estimator.WarmStartSettings(arguments.warm_start_from, vars_to_warm_start=".*input_layer.*")
    estimator = tf.estimator.DNNClassifier(
        hidden_units=[16], feature_columns=[tf.feature_column.embedding_column(items, 8, combiner="sqrtn")],
        optimizer=lambda: tf.keras.optimizers.legacy.Adagrad(0.3), warm_start_from=warm, config=config,
        model_dir=arguments.model_dir or tempfile.mkdtemp(),
    )  # fmt: skip
    seed = config.global_id_in_cluster or 0
    estimator.train(
        lambda: input_fn(20_000, seed, arguments.batch_size), max_steps=arguments.steps,
        hooks=[Counter(arguments.slow_while)],
    )  # fmt: skip
    if config.is_chief:
        features, labels = make_baskets(2000, 888)
        accuracy = estimator.evaluate(lambda: tf.data.Dataset.from_tensors((features, labels)))["accuracy"]
        print(f"accuracy: {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
