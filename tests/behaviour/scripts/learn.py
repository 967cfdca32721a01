"""A small factorisation machine on made-up records; its test loss is computed from the checkpoint alone.

learn.py --seeds 1 2 3      # stock TensorFlow: one training after another, each in its own model directory
learn.py --seeds 4          # in a job: one training, whose workers read different records
"""

import argparse
import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

FIELDS, PER_FIELD, DIM, BATCH, STEPS = 6, 3000, 4, 16, 2500
ROWS = FIELDS * PER_FIELD  # 288 kB the embedding, 72 kB the weights: tracked by rows


def planted():
    random = np.random.default_rng(7)
    return random.normal(0, 1.5, ROWS), random.normal(0, 0.3, (ROWS, DIM))


def logits_of(weights, embedding, bias, ids):
    rows = embedding[ids]
    return bias + weights[ids].sum(1) + 0.5 * (rows.sum(1) ** 2 - (rows**2).sum(1)).sum(1)


def records(seed, count):
    """(ids [count, FIELDS], labels [count]); small ids are frequent."""
    random = np.random.default_rng(seed)
    ids = (PER_FIELD * random.random((count, FIELDS)) ** 3).astype(np.int64) + np.arange(FIELDS) * PER_FIELD
    odds = 1 / (1 + np.exp(-logits_of(*planted(), 0.0, ids)))
    return ids, (random.random(count) < odds).astype(np.float32)


def loss_of(model_dir):
    """Of the last checkpoint, on records nobody has trained on."""
    reader = tf.train.load_checkpoint(model_dir)
    weights, embedding, bias = (reader.get_tensor(name) for name in ("weights", "embedding", "bias"))
    ids, labels = records(99, 20000)
    logits = logits_of(weights[:, 0], embedding, bias, ids)
    return float(np.mean(np.logaddexp(0, logits) - labels * logits))


class Pace(v1.train.SessionRunHook):
    """Steps are not too fast; the last fifth waits, slowly, for the word that all scalings are done."""

    def __init__(self, word):
        self.word = word

    def begin(self):
        self.step = v1.train.get_or_create_global_step()

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self.step)

    def after_run(self, run_context, run_values):
        late = run_values.results > 0.8 * STEPS and not os.path.exists(self.word)
        time.sleep(0.2 if late else 0.004)


def train(seed, index, model_dir, hooks):
    def input_fn():
        columns = [tf.constant(column) for column in records((seed, index), 200_000)]
        dataset = tf.data.Dataset.range(200_000).shuffle(200_000, seed=seed).repeat().batch(BATCH)
        return dataset.map(lambda rows: tuple(tf.gather(column, rows) for column in columns)).prefetch(2)

    def model_fn(features, labels, mode):
        weights = v1.get_variable("weights", [ROWS, 1], initializer=v1.zeros_initializer())
        embedding = v1.get_variable("embedding", [ROWS, DIM], initializer=v1.random_normal_initializer(0, 0.1))
        bias = v1.get_variable("bias", [], initializer=v1.zeros_initializer())
        rows = tf.nn.embedding_lookup(embedding, features)
        crossed = 0.5 * tf.reduce_sum(tf.reduce_sum(rows, 1) ** 2 - tf.reduce_sum(rows**2, 1), 1)
        logits = bias + tf.reduce_sum(tf.nn.embedding_lookup(weights, features), [1, 2]) + crossed
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        step = v1.train.get_or_create_global_step()
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=v1.train.AdagradOptimizer(0.3).minimize(loss, step))

    config = tf.estimator.RunConfig(
        model_dir, tf_random_seed=seed, save_checkpoints_steps=10**9, save_summary_steps=10**9
    )
    estimator = tf.estimator.Estimator(model_fn, config=config)
    tf.estimator.train_and_evaluate(
        estimator, tf.estimator.TrainSpec(input_fn, max_steps=STEPS, hooks=hooks),
        tf.estimator.EvalSpec(input_fn, steps=1, start_delay_secs=0, throttle_secs=1),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--model-dir", default=os.environ.get("DEEPREC_EXT_WORKDIR", "."))
    arguments = parser.parse_args()
    v1.disable_eager_execution()
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task")
    index = 0 if not task or task["type"] == "chief" else 1 + task["index"]
    hooks = [Pace(os.path.join(arguments.model_dir, "scaled"))] if task else []
    for seed in arguments.seeds:
        train(seed, index, os.path.join(arguments.model_dir, f"model-{seed}"), hooks)


if __name__ == "__main__":
    main()
