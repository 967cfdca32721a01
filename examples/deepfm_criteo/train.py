"""DeepFM on Criteo's click logs: 13 integer and 26 categorical columns, tab separated, the label first.

    python train.py --steps 500                                                     # stock TensorFlow, one process
    deeprec-ext run --ps 2 --workers 1 -- python train.py --data day_0.tsv day_1.tsv

Without --data the records are made up: Zipf-distributed ids, and a click rate that follows from a part of the columns.
This script spells elasticity out (the hook, and our train_and_evaluate); examples/census_wide_deep leaves it to autoload.
"""

import argparse
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

from deeprec_ext.estimator import train_and_evaluate
from deeprec_ext.hooks import ElasticTrainingHook

v1 = tf.compat.v1

INTEGERS, CATEGORIES = 13, 26
EVERY = 10  # every tenth record is kept for the test


# ------------------------------------------------------------------------------------------------------------ records


def parse(lines, rows_per_table):
    """A batch of lines of a Criteo file: integers become logarithms, categories row numbers; both may be missing."""
    defaults = [[0.0]] * (1 + INTEGERS) + [[""]] * CATEGORIES
    columns = tf.io.decode_csv(lines, defaults, field_delim="\t", use_quote_delim=False)
    integers = tf.stack(columns[1 : 1 + INTEGERS], 1)
    ids = [tf.strings.to_hash_bucket_fast(column, rows_per_table) for column in columns[1 + INTEGERS :]]
    features = {"integers": tf.math.log1p(tf.nn.relu(integers)), "ids": tf.stack(ids, 1)}
    return features, columns[0]


def generate(number, batch, rows_per_table, seed):
    """Batch `number` of made-up records: always the same for one (number, seed)."""
    uniform = tf.random.stateless_uniform(
        [batch, CATEGORIES + INTEGERS + 1], seed=tf.stack([tf.cast(seed, tf.int64), number])
    )
    rank = tf.cast(tf.pow(float(rows_per_table), uniform[:, :CATEGORIES]), tf.int64) - 1  # Zipf with exponent 1
    ids = (rank * 2654435761) % rows_per_table  # frequent ids lie anywhere in the table
    integers = -2.0 * tf.math.log(uniform[:, CATEGORIES:-1] + 1e-6)
    planted = tf.sin(tf.cast((rank + 1) * tf.range(1, CATEGORIES + 1, dtype=tf.int64), tf.float32) * 1.7)[:, ::3]
    score = tf.reduce_sum(planted, 1) + 0.3 * integers[:, 0] - 0.3 * integers[:, 1] - 1.0
    labels = tf.cast(uniform[:, -1] < tf.sigmoid(1.5 * score), tf.float32)
    return {"integers": integers, "ids": ids}, labels


def batches(arguments, seed=None, test=False):
    """Training: shuffled by `seed`, without end. Test: the records that training never sees."""

    def input_fn():
        size, rows = arguments.batch, arguments.rows_per_table
        if not arguments.data:
            # Training is batch 0, 1, 2, … of --records; test has a seed that no worker has.
            count = max(1, (arguments.records // EVERY if test else arguments.records) // size)
            dataset = tf.data.Dataset.range(min(count, 100) if test else count)
            if not test:
                dataset = dataset.shuffle(min(count, 10000), seed=seed).repeat()
            return dataset.map(lambda number: generate(number, size, rows, 1 if test else 2)).prefetch(4)
        dataset = tf.data.TextLineDataset(arguments.data, num_parallel_reads=1 if test else min(4, len(arguments.data)))
        dataset = dataset.enumerate().filter(lambda number, _: (number % EVERY == EVERY - 1) == test)
        dataset = dataset.map(lambda _, line: line)
        if test:
            dataset = dataset.take(100 * size)
        else:
            dataset = dataset.shuffle(100000, seed=seed).repeat()
        return dataset.batch(size).map(lambda lines: parse(lines, rows)).prefetch(4)

    return input_fn


# -------------------------------------------------------------------------------------------------------------- model


def model_fn(features, labels, mode, params):
    """DeepFM (Guo et al., 2017): linear terms, all products of two embeddings, and a network over the embeddings."""
    rows, dim, parts = params["rows"], params["dim"], params["parts"]
    cut = v1.fixed_size_partitioner(parts) if parts > 1 else None
    integers, ids = features["integers"], tf.unstack(features["ids"], num=CATEGORIES, axis=1)

    linear, embeddings = [], []
    for number, column in enumerate(ids):
        with v1.variable_scope(f"C{number + 1}", partitioner=cut):
            weight = v1.get_variable("weight", [rows, 1], initializer=v1.zeros_initializer())
            table = v1.get_variable("embedding", [rows, dim], initializer=v1.random_normal_initializer(stddev=0.05))
        linear.append(v1.nn.embedding_lookup(weight, column, partition_strategy="div"))
        embeddings.append(v1.nn.embedding_lookup(table, column, partition_strategy="div"))

    stacked = tf.stack(embeddings, 1)
    products = 0.5 * tf.reduce_sum(tf.square(tf.reduce_sum(stacked, 1)) - tf.reduce_sum(tf.square(stacked), 1), 1)
    hidden = tf.concat([integers, *embeddings], 1)
    for number, units in enumerate(params["hidden"]):
        hidden = v1.layers.dense(hidden, units, tf.nn.relu, name=f"layer{number}")
    logits = tf.add_n(linear)[:, 0] + v1.layers.dense(integers, 1, name="integers")[:, 0] + products
    logits += v1.layers.dense(hidden, 1, name="logit")[:, 0]
    probabilities = tf.sigmoid(logits)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"probability": probabilities})

    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    if mode == tf.estimator.ModeKeys.EVAL:
        auc = v1.metrics.auc(labels, probabilities, num_thresholds=1000, summation_method="careful_interpolation")
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"auc": auc})
    optimizer = v1.train.AdagradOptimizer(params["learning_rate"])  # touches only the rows of the batch
    train = optimizer.minimize(loss, global_step=v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


# ---------------------------------------------------------------------------------------------------------------- run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", nargs="+", metavar="FILE", help="Criteo files: label, 13 integers, 26 categories, tabs between"
    )
    parser.add_argument("--records", type=int, default=10_000_000, help="generated records, when there is no --data")
    parser.add_argument("--steps", type=int, default=2000, help="training steps of all workers together")
    parser.add_argument("--batch", type=int, default=512, help="records in a step")
    parser.add_argument(
        "--rows-per-table", type=int, default=10000, help="ids of a column are hashed into so many rows"
    )
    parser.add_argument("--dim", type=int, default=16, help="numbers in an embedding")
    parser.add_argument(
        "--parts", type=int, default=1, help="cut every table into so many parts (only large ones gain by it)"
    )
    parser.add_argument(
        "--model-dir", help="where checkpoints go (default: below $DEEPREC_EXT_WORKDIR, else a temporary directory)"
    )
    arguments = parser.parse_args()

    v1.logging.set_verbosity(v1.logging.INFO)
    workdir = os.environ.get("DEEPREC_EXT_WORKDIR")
    model_dir = arguments.model_dir or (
        os.path.join(workdir, "model") if workdir else tempfile.mkdtemp(prefix="deepfm-")
    )
    source = (
        f"{len(arguments.data)} files" if arguments.data else f"{arguments.records} generated records (planted signal)"
    )
    print(f"training on {source}, {CATEGORIES} tables of {arguments.rows_per_table} × {arguments.dim}", flush=True)

    config = tf.estimator.RunConfig(
        model_dir, save_checkpoints_secs=120, log_step_count_steps=100, save_summary_steps=500
    )
    sizes = {"rows": arguments.rows_per_table, "dim": arguments.dim, "parts": arguments.parts, "hidden": [256, 128]}
    parameters = {**sizes, "learning_rate": 0.05}
    estimator = tf.estimator.Estimator(model_fn, config=config, params=parameters)
    seed = 1 + (config.global_id_in_cluster or 0)  # every worker has its own order
    result = train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(
            batches(arguments, seed),
            max_steps=arguments.steps,
            hooks=[ElasticTrainingHook(examples_per_step=arguments.batch)],
        ),
        tf.estimator.EvalSpec(batches(arguments, test=True), steps=None, start_delay_secs=0, throttle_secs=120),
    )
    if result and result[0]:  # in one process; in a cluster the evaluator, or DeepRec Extension, evaluates
        print("test " + ", ".join(f"{name} {value:.4f}" for name, value in sorted(result[0].items())), flush=True)


if __name__ == "__main__":
    main()
