"""A ranker of the size of public ones: 136 features a document, each with a feature column of its own, and an Estimator.

Queries of many documents are scored document by document and trained listwise (softmax over the documents of a query). Every
feature goes its own way from the record to the first layer: cleaned, gathered by document, cast by its column; a third are
cut into buckets as well. Summaries every 100 steps, checkpoints, and all hooks that Estimator brings.

It names nothing of DeepRec Extension and runs unchanged on stock TensorFlow and under `deeprec-ext run`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import numpy as np
import tensorflow as tf

from benchmarks.real_graphs.common import add_arguments, model_dir, step_log

v1 = tf.compat.v1
columns = v1.feature_column

FEATURES, BUCKETED_EVERY = 136, 3
BOUNDARIES = [-1.0, -0.5, 0.0, 0.5, 1.0]
HIDDEN = (256, 128, 64)


def names(count: int) -> list[str]:
    return [str(number + 1) for number in range(count)]


def input_fn(features: int, documents: int, batch: int, seed: int) -> Any:
    """Queries as a parser of LibSVM lines gives them: per feature [documents, 1], zero where the line does not name it."""

    def read() -> Any:
        draw = np.random.RandomState(seed)
        values = draw.randn(256, documents, features).astype(np.float32) * (draw.rand(256, documents, features) < 0.7)
        relevance = np.clip(np.round(values[:, :, :8].sum(-1) / 2 + 1), 0, 4).astype(np.float32)
        data = tf.data.Dataset.from_tensor_slices((values.astype(np.float32), relevance))

        def parsed(row: Any, label: Any) -> Any:
            return dict(zip(names(features), tf.split(row, features, axis=1))), label

        return data.shuffle(256, seed=seed).repeat().map(parsed).batch(batch).prefetch(2)

    return read


def _of_documents(name: str, values: Any, chosen: Any, filled: Any) -> Any:
    """One feature, [queries, documents, 1] → [documents of all queries, 1]: padding replaced, grouped, flattened."""
    with tf.name_scope(f"feature_{name}"):
        clean = tf.where(tf.math.is_nan(values), tf.zeros_like(values), values)
        scaled = tf.sign(clean) * tf.math.log1p(tf.abs(clean))
        gathered = tf.gather_nd(tf.where(filled, scaled, tf.zeros_like(scaled)), chosen)
        shape = tf.shape(gathered)
        grouped = tf.reshape(gathered, [shape[0] * shape[1], 1, shape[2]])
        return v1.layers.flatten(tf.reshape(grouped, tf.concat([tf.shape(grouped)[:1], [1, 1]], axis=0)))


def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
    training = mode == tf.estimator.ModeKeys.TRAIN
    shape = tf.shape(labels)
    filled = tf.expand_dims(labels >= 0, -1)
    order = tf.argsort(tf.random.uniform(shape), axis=1)
    chosen = tf.stack([tf.tile(tf.expand_dims(tf.range(shape[0]), 1), [1, shape[1]]), order], axis=2)
    flat = {name: _of_documents(name, features[name], chosen, filled) for name in params["names"]}
    pieces = []
    for number, name in enumerate(params["names"]):
        numeric = columns.numeric_column(name, shape=(1,), default_value=0.0)
        pieces.append(columns.input_layer(flat, [numeric]))
        if number % BUCKETED_EVERY == 0:
            pieces.append(columns.input_layer(flat, [columns.bucketized_column(numeric, BOUNDARIES)]))
    layer = tf.concat(pieces, axis=1)
    v1.summary.scalar("input_sparsity", tf.math.zero_fraction(layer))
    v1.summary.scalar("input_max", tf.reduce_max(layer))
    v1.summary.scalar("input_min", tf.reduce_min(layer))
    layer = v1.layers.batch_normalization(layer, training=training)
    for number, units in enumerate(HIDDEN):
        layer = v1.layers.dense(layer, units)
        layer = tf.nn.relu(v1.layers.batch_normalization(layer, training=training))
        v1.summary.scalar(f"fully_connected_{number}_sparsity", tf.math.zero_fraction(layer))
        v1.summary.histogram(f"fully_connected_{number}", layer)
        layer = v1.layers.dropout(layer, 0.5, training=training)
    scores = tf.reshape(v1.layers.dense(layer, 1), shape)
    relevance = tf.gather_nd(labels, chosen)
    loss = v1.losses.softmax_cross_entropy(relevance / (tf.reduce_sum(relevance, 1, keepdims=True) + 1e-6), scores)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss)
    optimizer = v1.train.AdagradOptimizer(0.05)
    gradients = optimizer.compute_gradients(loss)
    clipped, norm = tf.clip_by_global_norm([gradient for gradient, _ in gradients], 5.0)
    v1.summary.scalar("gradient_norm", norm)
    update = optimizer.apply_gradients(
        list(zip(clipped, [variable for _, variable in gradients])), v1.train.get_or_create_global_step()
    )
    train = tf.group(update, *v1.get_collection(v1.GraphKeys.UPDATE_OPS))
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


def main() -> None:
    parser = add_arguments(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--features", type=int, default=FEATURES)
    parser.add_argument("--documents", type=int, default=20)
    arguments = parser.parse_args()
    v1.logging.set_verbosity(v1.logging.INFO)
    config = tf.estimator.RunConfig(
        model_dir(arguments), save_checkpoints_steps=arguments.checkpoint_steps,
        save_summary_steps=arguments.summary_steps, experimental_max_worker_delay_secs=0,
    )  # fmt: skip
    estimator = tf.estimator.Estimator(model_fn, config=config, params={"names": names(arguments.features)})
    seed = config.global_id_in_cluster or 0

    def read(seed: int) -> Any:
        return input_fn(arguments.features, arguments.documents, arguments.batch, seed)

    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(read(seed), max_steps=arguments.steps, hooks=[step_log()]),
        tf.estimator.EvalSpec(read(10**6), steps=5, start_delay_secs=0, throttle_secs=10**6),
    )


if __name__ == "__main__":
    main()
