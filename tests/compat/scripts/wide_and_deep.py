"""Will a rented bike come back late? A wide and deep model with feature columns, trained with `train_and_evaluate`.

    python wide_and_deep.py --model-dir /tmp/bikes --steps 2000

With TF_CONFIG in the environment it trains with parameter servers, as every Estimator does.
"""

import argparse
import os
import tempfile
import time

import numpy as np
import tensorflow as tf

STATIONS = [f"station-{number}" for number in range(200)]
WEATHER = ["sun", "clouds", "rain", "snow"]


def make_rentals(count, seed):
    """Features and labels: it depends on hour and station together, on the weather, and on the rider's age."""
    random = np.random.default_rng(seed)
    station = random.integers(0, len(STATIONS), count)
    weather = random.integers(0, len(WEATHER), count)
    features = {
        "hour": random.uniform(0, 24, count).astype(np.float32),
        "age": random.uniform(16, 80, count).astype(np.float32),
        "station": np.array(STATIONS)[station],
        "weather": np.array(WEATHER)[weather],
    }
    rush = (np.abs(features["hour"] - 8) < 2) | (np.abs(features["hour"] - 18) < 2)
    score = np.where(rush, 2.0, -1.0) * np.where(station % 3 == 0, 1.0, -0.7)
    score += np.array([-0.5, 0.0, 0.7, 1.5])[weather] + (features["age"] - 45) / 40
    late = random.random(count) < 1 / (1 + np.exp(-3 * score))
    return features, late.astype(np.int32)


def input_fn(count, seed, batch_size, training):
    dataset = tf.data.Dataset.from_tensor_slices(make_rentals(count, seed))
    if training:
        dataset = dataset.shuffle(count).repeat()
    return dataset.batch(batch_size).prefetch(1)


def columns():
    """(wide columns, deep columns)"""
    column = tf.feature_column
    hour = column.bucketized_column(column.numeric_column("hour"), boundaries=list(range(1, 24)))
    age = column.numeric_column("age", normalizer_fn=lambda age: (age - 45.0) / 20.0)
    station = column.categorical_column_with_hash_bucket("station", hash_bucket_size=1000)
    weather = column.categorical_column_with_vocabulary_list("weather", WEATHER)
    wide = [station, weather, hour, column.crossed_column([hour, "station"], hash_bucket_size=20_000)]
    deep = [age, hour, column.indicator_column(weather), column.embedding_column(station, dimension=8)]
    return wide, deep


class StepCounter(tf.estimator.SessionRunHook):
    """Counts what this process does, and can hold it up, to see something on a fast machine."""

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
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument(
        "--slow-while", default="", help="as long as this file is there, every step takes half a second more"
    )
    arguments = parser.parse_args()
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)

    config = tf.estimator.RunConfig(
        model_dir=arguments.model_dir or tempfile.mkdtemp(), save_checkpoints_secs=30, keep_checkpoint_max=3
    )
    wide, deep = columns()
    classifier = tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=wide,
        linear_optimizer=lambda: tf.keras.optimizers.legacy.Ftrl(0.2),
        dnn_feature_columns=deep,
        dnn_optimizer=lambda: tf.keras.optimizers.legacy.Adagrad(0.05),
        dnn_hidden_units=[64, 32],
        dnn_dropout=0.1,
        config=config,
    )
    seed = config.global_id_in_cluster or 0
    training = tf.estimator.TrainSpec(
        lambda: input_fn(20_000, seed, arguments.batch_size, True), max_steps=arguments.steps,
        hooks=[StepCounter(arguments.slow_while)],
    )  # fmt: skip
    serving = tf.estimator.export.build_parsing_serving_input_receiver_fn(
        tf.feature_column.make_parse_example_spec([*wide, *deep])
    )
    evaluation = tf.estimator.EvalSpec(
        lambda: input_fn(4_000, 12345, 500, False), steps=None, start_delay_secs=0, throttle_secs=30,
        exporters=tf.estimator.FinalExporter("late", serving),
    )  # fmt: skip
    result = tf.estimator.train_and_evaluate(classifier, training, evaluation)
    if result and result[0]:
        print(f"accuracy: {result[0]['accuracy']:.4f}")


if __name__ == "__main__":
    main()
