"""Is a flight late? A wide and deep classifier of TensorFlow 1: crosses, shared embeddings, indicators, a partitioner.

python crossed_columns.py --model-dir /tmp/flights --steps 3000
"""

import argparse
import os
import tempfile
import time

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

AIRPORTS = [f"A{number:02}" for number in range(60)]
CARRIERS = [f"carrier-{number}" for number in range(12)]


def make_flights(count, seed):
    planted = np.random.RandomState(53)
    routes = planted.normal(0, 1.3, (len(AIRPORTS), len(AIRPORTS)))
    carriers = planted.normal(0, 0.7, len(CARRIERS))
    random = np.random.RandomState(seed)
    start, goal = (len(AIRPORTS) * random.rand(2, count) ** 2).astype(int)
    carrier, hour = random.randint(0, len(CARRIERS), count), random.uniform(5, 23, count)
    score = routes[start, goal] + carriers[carrier] + (hour - 14) / 6
    features = {
        "from": np.array(AIRPORTS)[start],
        "to": np.array(AIRPORTS)[goal],
        "carrier": np.array(CARRIERS)[carrier],
        "hour": hour.astype(np.float32),
        "tail": random.randint(0, 5000, count),
    }
    return features, (random.rand(count) < 1 / (1 + np.exp(-2 * score))).astype(np.int32)


def build_columns():
    """(wide, deep)"""
    column = tf.feature_column
    start = column.categorical_column_with_vocabulary_list("from", AIRPORTS)
    goal = column.categorical_column_with_vocabulary_list("to", AIRPORTS)
    carrier = column.categorical_column_with_vocabulary_list("carrier", CARRIERS, num_oov_buckets=1)
    tail = column.categorical_column_with_identity("tail", 5000)
    hour = column.bucketized_column(column.numeric_column("hour"), [7.0, 9.0, 11.0, 13.0, 15.0, 17.0, 19.0, 21.0])
    route = column.crossed_column(["from", "to"], 10_000)
    rush = column.crossed_column([hour, "from", carrier], 20_000)
    wide = [start, goal, carrier, hour, route, rush]
    deep = [
        *column.shared_embedding_columns([start, goal], dimension=8),
        column.embedding_column(tail, 16, combiner="sqrtn"),
        column.embedding_column(route, 4),
        column.indicator_column(carrier),
        column.indicator_column(hour),
        column.numeric_column("hour", normalizer_fn=lambda hour: (hour - 14.0) / 6.0),
    ]
    return wide, deep


class Counter(tf.train.SessionRunHook):
    def __init__(self, slow_while):
        self.count, self.slow_while = 0, slow_while

    def after_run(self, run_context, run_values):
        self.count += 1
        if os.path.exists(self.slow_while):
            time.sleep(0.5)

    def end(self, session):
        print(f"steps of this process: {self.count}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-dir", default=None)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--slow-while", default="")
    args = parser.parse_args()
    tf.logging.set_verbosity(tf.logging.INFO)

    config = tf.estimator.RunConfig(
        model_dir=args.model_dir or tempfile.mkdtemp(), save_checkpoints_steps=1000, save_summary_steps=100,
        tf_random_seed=7,
    )  # fmt: skip
    wide, deep = build_columns()
    classifier = tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=wide,
        linear_optimizer=tf.train.FtrlOptimizer(0.2, l2_regularization_strength=1e-4),
        dnn_feature_columns=deep,
        dnn_optimizer=tf.train.AdagradOptimizer(0.05),
        dnn_hidden_units=[48, 24],
        input_layer_partitioner=tf.min_max_variable_partitioner(
            max_partitions=max(1, config.num_ps_replicas), min_slice_size=64 << 10
        ),
        config=config,
    )

    def train_input():
        flights = make_flights(40_000, config.global_id_in_cluster or 0)
        return tf.data.Dataset.from_tensor_slices(flights).shuffle(10_000).repeat().batch(args.batch_size).prefetch(1)

    result = tf.estimator.train_and_evaluate(
        classifier,
        tf.estimator.TrainSpec(train_input, max_steps=args.steps, hooks=[Counter(args.slow_while)]),
        tf.estimator.EvalSpec(
            lambda: tf.data.Dataset.from_tensors(make_flights(4000, 99)),
            steps=None,
            start_delay_secs=0,
            throttle_secs=60,
        ),
    )
    if result and result[0]:
        print(f"accuracy: {result[0]['accuracy']:.4f}")


if __name__ == "__main__":
    main()
