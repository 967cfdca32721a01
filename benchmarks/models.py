"""The model that the benchmarks train: DeepFM over generated, Zipf-distributed ids, at any size of state.

`build` makes the graph for a plain script, `model_fn` and `input_fn` wrap it for an Estimator; both are the same graph.
`keras_model` is the same model as one would write it in Keras.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1

MB = 10**6
STATE_BYTES = {"16MB": 16 * MB, "64MB": 64 * MB, "256MB": 256 * MB, "1GB": 1000 * MB}


@dataclass(frozen=True)
class Size:
    """One model. Every field has a table (rows × dim) and a weight (rows × 1), each with an Adagrad accumulator."""

    fields: int = 26
    dim: int = 16
    rows: int = 10_000
    batch: int = 512
    parts: int = 1
    """Every table is cut into so many parts: 8 make a graph of about 18 000 ops, 1 of about 2 700."""
    zipf: float = 1.0
    """Exponent of the distribution of ids; 0 is uniform."""
    hidden: tuple[int, ...] = (256, 128)

    @property
    def state_bytes(self) -> int:
        """Tables and their accumulators, without the few dense variables."""
        return self.fields * self.rows * (self.dim + 1) * 4 * 2


def size_of(state: str | int, **changes: Any) -> Size:
    """The size whose tables and accumulators hold that much: `"256MB"` (of STATE_BYTES), or bytes."""
    size = Size(**changes)
    row_bytes = size.fields * (size.dim + 1) * 4 * 2
    wanted = STATE_BYTES[state] if isinstance(state, str) else state
    return Size(**{**changes, "rows": max(size.parts, wanted // row_bytes)})


# ------------------------------------------------------------------------------------------------------------ records


def make_batch(number: Any, size: Size, seed: int = 0) -> tuple[Any, Any]:
    """Batch `number`: ids (batch, fields) int64 and labels (batch,) float32. The same arguments give the same batch.

    Bounded Zipf by the inverse of its (continuous) distribution function; the ranks are then spread over the table, so
    that frequent ids lie in all its parts. A third of the fields decide the label.
    """
    uniform = tf.random.stateless_uniform(
        [size.batch, size.fields + 1], seed=tf.stack([tf.constant(seed, tf.int64), number])
    )
    u, last = uniform[:, :-1], float(size.rows)
    if size.zipf == 1:
        rank = tf.pow(last, u) - 1
    else:
        exponent = 1 - size.zipf
        rank = tf.pow((last**exponent - 1) * u + 1, 1 / exponent) - (1 if size.zipf else 0)
    ranks = tf.clip_by_value(tf.cast(rank, tf.int64), 0, size.rows - 1)
    ids = (ranks * 2654435761) % size.rows
    planted = tf.sin(tf.cast((ranks + 1) * tf.range(1, size.fields + 1, dtype=tf.int64), tf.float32) * 1.7)[:, ::3]
    labels = tf.cast(uniform[:, -1] < tf.sigmoid(1.5 * tf.reduce_sum(planted, 1)), tf.float32)
    return ids, labels


def input_fn(size: Size, seed: int = 0, batches: int | None = None) -> Any:
    """For an Estimator: `batches` of them, or without end."""

    def make() -> Any:
        dataset = tf.data.Dataset.range(batches or 2**60)
        return dataset.map(lambda number: make_batch(number, size, seed)).prefetch(4)

    return make


# -------------------------------------------------------------------------------------------------------------- model


@dataclass(frozen=True)
class Model:
    """Tensors and operations of one graph."""

    loss: Any
    probabilities: Any
    train: Any


def build(ids: Any, labels: Any, size: Size, optimizer: Any = None) -> Model:
    """Adds the model to the default graph; what it trains counts in the global step.

    Args:
      ids: (batch, fields) int64.
      labels: (batch,) float32.
      optimizer: Adagrad when None.
    """
    cut = v1.fixed_size_partitioner(size.parts) if size.parts > 1 else None
    linear, embeddings = [], []
    for field in range(size.fields):
        with v1.variable_scope(f"field{field}", partitioner=cut):
            weight = v1.get_variable("weight", [size.rows, 1], initializer=v1.zeros_initializer())
            table = v1.get_variable(
                "table", [size.rows, size.dim], initializer=v1.random_uniform_initializer(-0.05, 0.05)
            )
        linear.append(v1.nn.embedding_lookup(weight, ids[:, field], partition_strategy="div"))
        embeddings.append(v1.nn.embedding_lookup(table, ids[:, field], partition_strategy="div"))
    stacked = tf.stack(embeddings, 1)
    products = 0.5 * tf.reduce_sum(tf.square(tf.reduce_sum(stacked, 1)) - tf.reduce_sum(tf.square(stacked), 1), 1)
    layer = tf.concat(embeddings, 1)
    for number, units in enumerate(size.hidden):
        layer = v1.layers.dense(layer, units, tf.nn.relu, name=f"layer{number}")
    logits = v1.layers.dense(layer, 1, name="logit")[:, 0] + tf.add_n(linear)[:, 0] + products
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    optimizer = optimizer or v1.train.AdagradOptimizer(0.05)
    train = optimizer.minimize(loss, global_step=v1.train.get_or_create_global_step())
    return Model(loss, tf.sigmoid(logits), train)


def model_fn(features: Any, labels: Any, mode: Any, params: Any) -> Any:
    """For an Estimator: `params` is a Size."""
    model = build(features, labels, params["size"])
    if mode == tf.estimator.ModeKeys.EVAL:
        auc = v1.metrics.auc(labels, model.probabilities, num_thresholds=1000, summation_method="careful_interpolation")
        return tf.estimator.EstimatorSpec(mode, loss=model.loss, eval_metric_ops={"auc": auc})
    return tf.estimator.EstimatorSpec(
        mode, loss=model.loss, train_op=model.train, predictions={"p": model.probabilities}
    )


def keras_model(size: Size) -> Any:
    """The same, with the logits as its output: field by field a table and a weight, their products, dense layers."""
    layers, uniform = tf.keras.layers, tf.keras.initializers.RandomUniform(-0.05, 0.05)
    ids = tf.keras.Input((size.fields,), dtype="int64", name="ids")
    linear, embeddings = [], []
    for field in range(size.fields):
        linear.append(layers.Embedding(size.rows, 1, "zeros", name=f"weight{field}")(ids[:, field]))
        embeddings.append(layers.Embedding(size.rows, size.dim, uniform, name=f"table{field}")(ids[:, field]))
    stacked = tf.stack(embeddings, 1)
    products = 0.5 * tf.reduce_sum(tf.square(tf.reduce_sum(stacked, 1)) - tf.reduce_sum(tf.square(stacked), 1), 1)
    layer = tf.concat(embeddings, 1)
    for number, units in enumerate(size.hidden):
        layer = layers.Dense(units, "relu", name=f"layer{number}")(layer)
    logits = layers.Dense(1, name="logit")(layer)[:, 0] + tf.add_n(linear)[:, 0] + products
    return tf.keras.Model(ids, logits)
