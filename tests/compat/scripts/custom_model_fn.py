"""Who likes which film? A factorisation with a `model_fn` of its own, partitioned tables and hooks of its own.

python custom_model_fn.py --model-dir /tmp/films --steps 3000
"""

import argparse
import os
import tempfile
import time

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

USERS, FILMS, DIM = 2000, 1000, 8


def make_ratings(count, seed):
    """(user, film, liked): planted tastes of two dimensions."""
    planted = np.random.default_rng(1)
    users, films = planted.normal(0, 1, (USERS, 2)), planted.normal(0, 1, (FILMS, 2))
    random = np.random.default_rng(seed)
    # Few users and films are in most of the ratings.
    user = (USERS * random.random(count) ** 4).astype(np.int64)
    film = (FILMS * random.random(count) ** 4).astype(np.int64)
    score = (users[user] * films[film]).sum(1) + films[film, 0]
    return user, film, (random.random(count) < 1 / (1 + np.exp(-3 * score))).astype(np.float32)


def input_fn(count, seed, batch_size, repeat):
    user, film, liked = make_ratings(count, seed)
    dataset = tf.data.Dataset.from_tensor_slices(({"user": user, "film": film}, liked))
    if repeat:
        dataset = dataset.shuffle(50_000).repeat()
    return v1.data.make_one_shot_iterator(dataset.batch(batch_size)).get_next()


class CountingHook(v1.train.SessionRunHook):
    """Counts the steps of this process and watches that the global step grows."""

    def __init__(self, slow_while):
        self.slow_while = slow_while

    def begin(self):
        self.count, self.seen = 0, 0
        self.step = v1.train.get_global_step()

    def before_run(self, run_context):
        return v1.train.SessionRunArgs({"step": self.step})

    def after_run(self, run_context, run_values):
        self.count += 1
        self.seen = max(self.seen, int(run_values.results["step"]))
        if os.path.exists(self.slow_while):
            time.sleep(0.5)

    def end(self, session):
        print(f"steps of this process: {self.count}", flush=True)
        print(f"global step seen: {self.seen}", flush=True)


def model_fn(features, labels, mode, params):
    user_table = v1.get_variable(
        "users", [USERS, DIM], initializer=v1.random_normal_initializer(stddev=0.3),
        partitioner=v1.fixed_size_partitioner(4),
    )  # fmt: skip
    film_table = v1.get_variable("films", [FILMS, DIM], initializer=v1.random_normal_initializer(stddev=0.3))
    film_bias = v1.get_variable("film_bias", [FILMS, 1], initializer=v1.zeros_initializer())
    users = v1.nn.embedding_lookup(user_table, features["user"], partition_strategy="div")
    films = v1.nn.embedding_lookup(film_table, features["film"])
    with v1.variable_scope("tower"):
        pair = tf.concat([users * films, users, films], axis=1)
        weights = v1.get_variable("weights", [3 * DIM, 16])
        bias = v1.get_variable("bias", [16], initializer=v1.zeros_initializer())
        hidden = tf.nn.relu(tf.matmul(pair, weights) + bias)
        last = v1.get_variable("last", [16, 1])
    logits = tf.reduce_sum(users * films, 1) + tf.matmul(hidden, last)[:, 0]
    logits += v1.nn.embedding_lookup(film_bias, features["film"])[:, 0]
    probabilities = tf.sigmoid(logits)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"liked": probabilities})

    loss = v1.losses.sigmoid_cross_entropy(multi_class_labels=labels, logits=logits)
    metrics = {
        "accuracy": v1.metrics.accuracy(labels, tf.round(probabilities)),
        "auc": v1.metrics.auc(labels, probabilities),
    }
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)

    optimizer = v1.train.AdagradOptimizer(params["learning_rate"])
    train_op = optimizer.minimize(loss, global_step=v1.train.get_global_step())
    v1.summary.scalar("train_accuracy", metrics["accuracy"][1])
    hooks = [v1.train.LoggingTensorHook({"loss": loss}, every_n_iter=200), CountingHook(params["slow_while"])]
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=hooks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-dir", default=None)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument(
        "--slow-while", default="", help="as long as this file is there, every step takes half a second more"
    )
    arguments = parser.parse_args()
    v1.logging.set_verbosity(v1.logging.INFO)

    config = tf.estimator.RunConfig(save_checkpoints_steps=1000, log_step_count_steps=500, save_summary_steps=200)
    estimator = tf.estimator.Estimator(
        model_fn, arguments.model_dir or tempfile.mkdtemp(), config,
        params={"learning_rate": 0.2, "slow_while": arguments.slow_while},
    )  # fmt: skip
    seed = 10 + (config.global_id_in_cluster or 0)
    result = tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(lambda: input_fn(40_000, seed, arguments.batch_size, True), max_steps=arguments.steps),
        tf.estimator.EvalSpec(lambda: input_fn(5_000, 5, 500, False), steps=None, start_delay_secs=0, throttle_secs=60),
    )
    if result and result[0]:
        print(f"accuracy: {result[0]['accuracy']:.4f}")


if __name__ == "__main__":
    main()
