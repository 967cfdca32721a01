"""Wide and deep as public model zoos write it: 26 categorical and 13 numeric columns, everything large or deep partitioned.

A TF 1 script from top to bottom: its own Server and device setter, partitioners around the embeddings (4 parts) and around the
dense layers (8 parts, whatever the number of PS), two optimizers, MonitoredTrainingSession with a saver, a summary hook and
logged tensors of its own.

It names nothing of DeepRec Extension and runs unchanged on stock TensorFlow and under `deeprec-ext run`.
"""

from __future__ import annotations

import argparse
import json
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

CATEGORICAL, NUMERIC = 26, 13
HIDDEN = (1024, 512, 256)
DEEP_PARTS, TABLE_PARTS = 8, 4


def read(arguments: argparse.Namespace, seed: int) -> Any:
    """Records with strings for categories, as in the public click logs."""
    draw = np.random.RandomState(seed)
    words = (draw.zipf(1.3, (4096, CATEGORICAL)) % 100_000).astype(str).astype(object)
    numbers = draw.rand(4096, NUMERIC).astype(np.float32)
    clicked = (numbers[:, 0] + 0.3 * draw.rand(4096) > 0.8).astype(np.float32)

    def parsed(words: Any, numbers: Any, clicked: Any) -> Any:
        features = {f"C{number + 1}": words[:, number] for number in range(CATEGORICAL)}
        features.update({f"I{number + 1}": numbers[:, number : number + 1] for number in range(NUMERIC)})
        return features, clicked

    data = tf.data.Dataset.from_tensor_slices((words, numbers, clicked))
    data = data.shuffle(4096, seed=seed).repeat().batch(arguments.batch, drop_remainder=True).map(parsed).prefetch(2)
    return v1.data.make_one_shot_iterator(data).get_next()


def logits_of(features: Any, arguments: argparse.Namespace) -> Any:
    categorical = [
        columns.categorical_column_with_hash_bucket(f"C{number + 1}", arguments.buckets)
        for number in range(CATEGORICAL)
    ]
    numeric = [columns.numeric_column(f"I{number + 1}") for number in range(NUMERIC)]
    tables, deep_layers = (v1.fixed_size_partitioner(parts) for parts in (arguments.table_parts, arguments.deep_parts))
    with v1.variable_scope("deep"):
        with v1.variable_scope("input", partitioner=tables):
            embedded = [columns.embedding_column(column, arguments.dim) for column in categorical]
            layer = columns.input_layer(features, [*embedded, *numeric])
        for number, units in enumerate(HIDDEN):
            with v1.variable_scope(f"hidden_{number}", partitioner=deep_layers):
                layer = v1.layers.dense(layer, units, tf.nn.relu, name="dense")
                v1.summary.scalar("fraction_of_zero_values", tf.math.zero_fraction(layer))
                v1.summary.histogram("activation", layer)
        deep = v1.layers.dense(layer, 1, name="logits")
    with v1.variable_scope("wide", partitioner=tables):
        wide = columns.linear_model(features, [*categorical, *numeric])
    return tf.squeeze(deep + wide, 1)


def train_op_of(loss: Any) -> Any:
    step = v1.train.get_or_create_global_step()
    deep, wide = (v1.trainable_variables(scope) for scope in ("deep", "wide"))
    return tf.group(
        v1.train.AdagradOptimizer(0.01).minimize(loss, var_list=deep),
        v1.train.FtrlOptimizer(0.02).minimize(loss, global_step=step, var_list=wide),
    )


def main() -> None:
    parser = add_arguments(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--buckets", type=int, default=10_000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--deep-parts", type=int, default=DEEP_PARTS)
    parser.add_argument("--table-parts", type=int, default=TABLE_PARTS)
    arguments = parser.parse_args()
    v1.disable_eager_execution()
    v1.logging.set_verbosity(v1.logging.INFO)
    description = json.loads(os.environ.get("TF_CONFIG", "{}"))
    target, chief, device = "", True, None
    if description:
        task, cluster = description["task"], tf.train.ClusterSpec(description["cluster"])
        server = v1.train.Server(cluster, job_name=task["type"], task_index=task["index"])
        target, chief = server.target, task["type"] == "chief"
        device = v1.train.replica_device_setter(
            cluster=cluster, worker_device=f"/job:{task['type']}/task:{task['index']}"
        )
    with v1.device(device):
        features, clicked = read(arguments, 0 if chief else 1 + description["task"]["index"])
        logits = logits_of(features, arguments)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=clicked, logits=logits))
        v1.summary.scalar("loss", loss)
        v1.summary.histogram("logits", logits)
        train = train_op_of(loss)
        step = v1.train.get_global_step()
        directory = model_dir(arguments)
        hooks = [step_log(), v1.train.LoggingTensorHook({"step": step, "loss": loss}, every_n_iter=100)]
        own = []
        if chief:
            summaries, saver = v1.summary.merge_all(), v1.train.Saver(sharded=True)
            own = [
                v1.train.SummarySaverHook(arguments.summary_steps, output_dir=directory, summary_op=summaries),
                v1.train.CheckpointSaverHook(directory, save_steps=arguments.checkpoint_steps, saver=saver),
            ]  # fmt: skip
        hooks.append(v1.train.StopAtStepHook(last_step=arguments.steps))
        with v1.train.MonitoredTrainingSession(
            target, is_chief=chief, checkpoint_dir=directory, hooks=hooks, chief_only_hooks=own,
            save_checkpoint_steps=None, save_checkpoint_secs=None, save_summaries_steps=None, save_summaries_secs=None,
        ) as session:  # fmt: skip
            while not session.should_stop():
                session.run([train, loss])


if __name__ == "__main__":
    main()
