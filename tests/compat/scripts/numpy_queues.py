"""A `DNNClassifier` whose input is arrays in memory, through the queues of `numpy_input_fn`.

python numpy_queues.py --model-dir /tmp/flowers
"""

import argparse
import os
import tempfile
import time

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

SPECIES = 4


def make_flowers(count, seed):
    random = np.random.default_rng(seed)
    species = random.integers(0, SPECIES, count)
    petals = np.array([[1, 3], [3, 1], [3, 4], [5, 2]])[species] + random.normal(0, 0.6, (count, 2))
    soil = (species * 7 + random.integers(0, 5, count)) % 25
    return {"petals": petals.astype(np.float32), "soil": soil.astype(np.int64)}, species.astype(np.int32)


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
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument(
        "--slow-while", default="", help="as long as this file is there, every step takes half a second more"
    )
    arguments = parser.parse_args()
    v1.logging.set_verbosity(v1.logging.INFO)

    config = tf.estimator.RunConfig(save_checkpoints_secs=20)
    soil = tf.feature_column.categorical_column_with_identity("soil", 25)
    classifier = tf.estimator.DNNClassifier(
        feature_columns=[
            tf.feature_column.numeric_column("petals", shape=[2]), tf.feature_column.embedding_column(soil, 4)
        ],
        hidden_units=[32, 16], n_classes=SPECIES, model_dir=arguments.model_dir or tempfile.mkdtemp(),
        optimizer=lambda: tf.keras.optimizers.legacy.Adagrad(0.05), config=config,
    )  # fmt: skip
    features, labels = make_flowers(4000, config.global_id_in_cluster or 0)
    train_input_fn = v1.estimator.inputs.numpy_input_fn(
        features, labels, batch_size=arguments.batch_size, num_epochs=None, shuffle=True, num_threads=2
    )
    features, labels = make_flowers(1000, 77)
    test_input_fn = v1.estimator.inputs.numpy_input_fn(features, labels, batch_size=100, num_epochs=1, shuffle=False)
    result = tf.estimator.train_and_evaluate(
        classifier,
        tf.estimator.TrainSpec(train_input_fn, max_steps=arguments.steps, hooks=[Counter(arguments.slow_while)]),
        tf.estimator.EvalSpec(test_input_fn, steps=None, start_delay_secs=0, throttle_secs=60),
    )
    if result and result[0]:
        print(f"accuracy: {result[0]['accuracy']:.4f}")


if __name__ == "__main__":
    main()
