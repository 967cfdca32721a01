"""Trains one model of the zoo, without end, on records made on the fly: an Estimator that names nothing of DeepRec Extension.

It writes no checkpoints: what a PS needs for one passes, and a run of the zoo is shorter than a job's first.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import tensorflow as tf

from benchmarks.zoo.cases import FAMILIES, OPTIMIZERS

v1 = tf.compat.v1
HISTORY = 20
"""Items that a user of DIN has seen."""

RATES = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.05), "momentum": lambda: v1.train.MomentumOptimizer(0.02, 0.9),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.05), "adam": lambda: v1.train.AdamOptimizer(0.001),
    "ftrl": lambda: v1.train.FtrlOptimizer(0.05),
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- layers


def tables(ids: Any, rows: int, dim: int, name: str = "field") -> Any:
    """(batch, fields) int64 -> (batch, fields, dim): a table for each field."""
    found = []
    for field in range(ids.shape[1]):
        with v1.variable_scope(f"{name}{field}"):
            table = v1.get_variable("table", [rows, dim], initializer=v1.random_uniform_initializer(-0.05, 0.05))
        found.append(tf.nn.embedding_lookup(table, ids[:, field]))
    return tf.stack(found, 1)


def dense(layer: Any, hidden: Sequence[int]) -> Any:
    """(batch, n) -> (batch,)"""
    for number, units in enumerate(hidden):
        layer = v1.layers.dense(layer, units, tf.nn.relu, name=f"layer{number}")
    return v1.layers.dense(layer, 1, name="logit")[:, 0]


def flat(layer: Any) -> Any:
    return tf.reshape(layer, [-1, layer.shape[1] * layer.shape[2]])


def wide(ids: Any, rows: int) -> Any:
    return tf.reduce_sum(tables(ids, rows, 1, "wide"), [1, 2])


def factorised(embedded: Any) -> Any:
    """All products of two fields (Rendle, 2010)."""
    return 0.5 * tf.reduce_sum(tf.square(tf.reduce_sum(embedded, 1)) - tf.reduce_sum(tf.square(embedded), 1), 1)


def compressed(embedded: Any, maps: Sequence[int] = (16, 16)) -> Any:
    """The compressed interaction network of xDeepFM (Lian et al., 2018)."""
    layer, sums = embedded, []
    for number, units in enumerate(maps):
        products = tf.einsum("bhd,bmd->bdhm", layer, embedded)
        products = tf.reshape(products, [-1, embedded.shape[2], layer.shape[1] * embedded.shape[1]])
        layer = tf.transpose(v1.layers.dense(products, units, tf.nn.relu, name=f"map{number}"), [0, 2, 1])
        sums.append(tf.reduce_sum(layer, 2))
    return v1.layers.dense(tf.concat(sums, 1), 1, name="interaction")[:, 0]


def crossed(layer: Any, depth: int = 2) -> Any:
    """The cross layers of DCN-v2 (Wang et al., 2021)."""
    first = layer
    for number in range(depth):
        layer = first * v1.layers.dense(layer, int(first.shape[1]), name=f"cross{number}") + layer
    return layer


def attended(history: Any, target: Any) -> Any:
    """The attention of DIN (Zhou et al., 2018). (batch, n, dim) and (batch, dim) -> (batch, dim)."""
    wanted = tf.tile(target[:, None, :], [1, history.shape[1], 1])
    pairs = tf.concat([history, wanted, history - wanted, history * wanted], 2)
    weights = v1.layers.dense(v1.layers.dense(pairs, 36, tf.nn.sigmoid, name="attend"), 1, name="weight")
    return tf.reduce_sum(weights * history, 1)


# ------------------------------------------------------------------------------------------------------------- models


def logits_of(features: Any, size: argparse.Namespace) -> Any:
    """(batch,)"""
    if size.family == "mlp":
        return dense(features, size.hidden)
    rows = max(1, size.rows // features.shape[1])
    if size.family == "din":
        items = v1.get_variable("items", [size.rows, size.dim], initializer=v1.random_uniform_initializer(-0.05, 0.05))
        embedded = tf.nn.embedding_lookup(items, features)
        target = embedded[:, 0]
        return dense(tf.concat([target, attended(embedded[:, 1:], target)], 1), size.hidden)
    embedded = tables(features, rows, size.dim)
    if size.family == "dcn_v2":
        return dense(crossed(flat(embedded)), size.hidden)
    logits = dense(flat(embedded), size.hidden) + wide(features, rows)
    if size.family == "deepfm":
        logits += factorised(embedded)
    elif size.family == "xdeepfm":
        logits += compressed(embedded)
    return logits


def model_fn(features: Any, labels: Any, mode: Any, params: Any) -> Any:
    size = params["size"]
    logits = logits_of(features, size)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    train = RATES[size.optimizer]().minimize(loss, global_step=v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


def input_fn(size: argparse.Namespace, seed: int) -> Any:
    """Ids of which few are frequent: the cube of a uniform number. A batch costs little beside the step that it is for."""
    width = HISTORY + 1 if size.family == "din" else size.fields
    rows = size.rows if size.family == "din" else max(1, size.rows // width)

    def batch(number: Any) -> Any:
        uniform = tf.random.stateless_uniform(
            [size.batch, width + 1], seed=tf.stack([tf.constant(seed, tf.int64), number])
        )
        labels = tf.cast(uniform[:, -1] < 0.3, tf.float32)
        numbers = uniform[:, :-1]
        if size.family == "mlp":
            return numbers, labels
        return tf.minimum(tf.cast(numbers * numbers * numbers * rows, tf.int64), rows - 1), labels

    return lambda: tf.data.Dataset.range(2**60).map(batch).prefetch(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", choices=FAMILIES, required=True)
    parser.add_argument("--optimizer", choices=tuple(OPTIMIZERS), default="adagrad")
    parser.add_argument("--fields", type=int, default=16)
    parser.add_argument("--rows", type=int, default=100_000, help="of all tables together")
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--hidden", type=lambda text: tuple(map(int, text.split(","))), default=(128, 64))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=10**9)
    size = parser.parse_args()
    workdir = os.environ.get("DEEPREC_EXT_WORKDIR")
    config = tf.estimator.RunConfig(
        os.path.join(workdir, "model") if workdir else tempfile.mkdtemp(prefix="zoo-"), save_checkpoints_secs=None,
        save_checkpoints_steps=None, save_summary_steps=None, log_step_count_steps=1000,
        experimental_max_worker_delay_secs=0,
    )  # fmt: skip
    estimator = tf.estimator.Estimator(model_fn, config=config, params={"size": size})
    records = input_fn(size, config.global_id_in_cluster or 0)
    tf.estimator.train_and_evaluate(
        estimator, tf.estimator.TrainSpec(records, max_steps=size.steps),
        tf.estimator.EvalSpec(records, steps=1, throttle_secs=3600),
    )  # fmt: skip


if __name__ == "__main__":
    main()
