"""Does a visitor click? A linear model on CSV files, with FTRL.

    python linear_csv.py --data-dir /tmp/clicks --model-dir /tmp/clicks/model

The files are made at the first start.
"""

import csv
import os
import tempfile
import time

import numpy as np
import tensorflow as tf
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "where the CSV files are, or are to be made")
flags.DEFINE_string("model_dir", None, "where checkpoints go")
flags.DEFINE_integer("steps", 2000, "training steps of all workers together")
flags.DEFINE_integer("batch_size", 64, "records in a step")
flags.DEFINE_string("slow_while", "", "as long as this file is there, every step takes half a second more")

COLUMNS = ["page", "banner", "country", "seconds", "click"]
DEFAULTS = ["", "", "", 0.0, 0]


def make_file(path, count, seed):
    random = np.random.default_rng(seed)
    draft = f"{path}.{os.getpid()}"
    with open(draft, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for _ in range(count):
            page, banner, country = random.integers(0, 50), random.integers(0, 300), random.integers(0, 12)
            seconds = random.exponential(30)
            score = np.sin(banner * 1.7) * 2 + (1.0 if (page + banner) % 5 == 0 else -0.4) + (country % 3 - 1) * 0.7
            score += min(seconds, 100) / 50 - 0.6
            click = random.random() < 1 / (1 + np.exp(-1.5 * score))
            rows.writerow([f"p{page}", f"b{banner}", f"c{country}", f"{seconds:.1f}", int(click)])
    os.replace(draft, path)


def make_data(directory):
    os.makedirs(directory, exist_ok=True)
    for number in range(4):
        path = os.path.join(directory, f"train-{number}.csv")
        if not os.path.exists(path):
            make_file(path, 4000, number)
    if not os.path.exists(os.path.join(directory, "test.csv")):
        make_file(os.path.join(directory, "test.csv"), 3000, 99)


def train_input_fn(directory, batch_size):
    return tf.data.experimental.make_csv_dataset(
        os.path.join(directory, "train-*.csv"), batch_size, column_names=COLUMNS, column_defaults=DEFAULTS,
        label_name="click", num_epochs=None, shuffle=True, shuffle_buffer_size=4000, num_parallel_reads=2,
    )  # fmt: skip


def test_input_fn(directory):
    """The same file, read line by line."""

    def parse(line):
        features = dict(zip(COLUMNS, tf.io.decode_csv(line, DEFAULTS)))
        return features, features.pop("click")

    lines = tf.data.TextLineDataset(os.path.join(directory, "test.csv")).skip(1)
    return lines.batch(500).map(parse)


class Progress(tf.estimator.SessionRunHook):
    def begin(self):
        self.steps = 0

    def after_run(self, run_context, run_values):
        self.steps += 1
        if os.path.exists(FLAGS.slow_while):
            time.sleep(0.5)

    def end(self, session):
        print(f"steps of this process: {self.steps}", flush=True)


def main(_):
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
    data_dir = FLAGS.data_dir or tempfile.mkdtemp()
    make_data(data_dir)
    column = tf.feature_column
    hashed = {name: column.categorical_column_with_hash_bucket(name, size)
              for name, size in (("page", 500), ("banner", 3000), ("country", 100))}  # fmt: skip
    seconds = column.bucketized_column(column.numeric_column("seconds"), [1, 5, 10, 20, 40, 80, 160])
    crossed = column.crossed_column(["page", "banner"], hash_bucket_size=50_000)
    estimator = tf.estimator.LinearClassifier(
        feature_columns=[*hashed.values(), seconds, crossed],
        optimizer=lambda: tf.keras.optimizers.legacy.Ftrl(learning_rate=0.2, l1_regularization_strength=0.001),
        config=tf.estimator.RunConfig(model_dir=FLAGS.model_dir or tempfile.mkdtemp(), save_checkpoints_steps=1000),
    )  # fmt: skip
    train = tf.estimator.TrainSpec(
        lambda: train_input_fn(data_dir, FLAGS.batch_size), max_steps=FLAGS.steps, hooks=[Progress()]
    )
    test = tf.estimator.EvalSpec(lambda: test_input_fn(data_dir), steps=None, start_delay_secs=0, throttle_secs=60)
    result = tf.estimator.train_and_evaluate(estimator, train, test)
    if result and result[0]:
        print(f"accuracy: {result[0]['accuracy']:.4f}")


if __name__ == "__main__":
    app.run(main)
