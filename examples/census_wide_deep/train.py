"""Wide & Deep on the UCI Adult census data: does a person earn more than 50 000 dollars a year?

A tf.estimator script for TensorFlow 2.15. All that it knows of DeepRec Extension is where its training records come from:

    python train.py --steps 2000                                         # stock TensorFlow, one process
    deeprec-ext run --ps 2 --workers 1 -- python train.py --data DIR     # the same file, elastic

DIR holds `adult.data` and `adult.test`. Without it the records are made up, with a signal that can be learnt. In a job the
lines of the training file are leased to the workers, so each is trained once an epoch, whoever dies meanwhile.
"""

import argparse
import os
import tempfile
import uuid

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

from deeprec_ext.data import elastic_dataset

v1 = tf.compat.v1

COLUMNS = ["age", "workclass", "weight", "education", "education_years", "marital", "occupation", "relationship",
           "race", "sex", "gain", "loss", "hours", "country"]  # fmt: skip
CATEGORIES = ["workclass", "education", "marital", "occupation", "relationship", "race", "sex", "country"]
BOUNDARIES = {  # numbers are cut into buckets, which are categories too
    "age": [18, 22, 25, 28, 31, 34, 37, 40, 43, 46, 50, 54, 58, 62, 66, 70],
    "education_years": [*range(2, 17)],
    "gain": [1, 2000, 3000, 4000, 5000, 7000, 10000, 15000],
    "loss": [1, 1500, 1700, 1800, 1850, 1900, 2000, 2200, 2400],
    "hours": [10, 20, 30, 36, 40, 41, 46, 51, 56, 61],
}
CROSSES = [  # (columns, rows of the table the crossing is hashed into)
    (("education", "occupation"), 1000),
    (("age", "education", "occupation"), 10000),
    (("age", "relationship", "occupation"), 10000),
    (("marital", "hours", "education_years"), 5000),
]
FIELDS = [*CATEGORIES, *BOUNDARIES]


# ------------------------------------------------------------------------------------------------------------ records


def read(path):
    """Columns of strings, and labels. Both files of the data set: `adult.test` has a dot after its labels."""
    with open(path) as lines:
        return parse([line for line in lines if line.count(",") == 14])


def parse(lines):
    """The same of some lines."""
    rows = [[field.strip() for field in line.strip().rstrip(".").split(",")] for line in lines]
    columns = dict(zip(COLUMNS, np.array([row[:-1] for row in rows]).T))
    return columns, np.array([row[-1] == ">50K" for row in rows], np.float32)


def write(path, columns, labels):
    """Made-up people as a file like `adult.data`. Every process of a job writes the same one; the first wins."""
    rows = zip(*(columns.get(name, np.zeros(len(labels), int)) for name in COLUMNS), labels)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    draft = f"{path}.{uuid.uuid4().hex}"  # in pods every process has the same number
    with open(draft, "w") as file:
        file.writelines(", ".join(map(str, row[:-1])) + (", >50K" if row[-1] else ", <=50K") + "\n" for row in rows)
    os.replace(draft, path) if not os.path.exists(path) else os.remove(draft)


def generate(count, seed):
    """Made-up people of the same columns, whose income follows from their category, their age and their hours."""
    random = np.random.default_rng(seed)
    planted = np.random.default_rng(7)  # the same for training and test
    columns, score = {}, random.logistic(size=count) - 2.5
    for name in CATEGORIES:
        kinds = 40 if name == "country" else 16 if name in ("education", "occupation") else 8
        category = np.minimum(random.geometric(0.25, count) - 1, kinds - 1)
        columns[name] = np.char.add(name, category.astype(str))
        score += planted.normal(size=kinds)[category]
    columns["age"] = random.integers(17, 90, count)
    columns["education_years"] = random.integers(1, 17, count)
    columns["gain"] = np.where(random.random(count) < 0.08, random.integers(1, 20000, count), 0)
    columns["loss"] = np.where(random.random(count) < 0.05, random.integers(1, 2500, count), 0)
    columns["hours"] = random.integers(1, 80, count)
    score += (
        2 * np.sin(columns["age"] / 14)
        + columns["education_years"] / 8
        + columns["gain"] / 5000
        + columns["hours"] / 40
    )
    return columns, (score > 1.5).astype(np.float32)


def encode(columns, vocabularies):
    """Every field of every record as one row number: ids of fields (count, 13), ids of crossings (count, 4)."""
    ids = {}
    for name in CATEGORIES:
        vocabulary = vocabularies[name]
        position = np.searchsorted(vocabulary, columns[name]).clip(max=len(vocabulary) - 1)
        ids[name] = np.where(vocabulary[position] == columns[name], position, len(vocabulary))  # unknown: one more row
    for name, boundaries in BOUNDARIES.items():
        ids[name] = np.digitize(columns[name].astype(np.float32), boundaries)
    crossed = []
    for names, rows in CROSSES:
        mixed = np.zeros(len(ids["age"]), np.uint64)
        for name in names:
            mixed = (mixed * np.uint64(1000003) + ids[name].astype(np.uint64)) % np.uint64(2**31 - 1)
        crossed.append(mixed % np.uint64(rows))
    return np.stack([ids[name] for name in FIELDS], 1).astype(np.int32), np.stack(crossed, 1).astype(np.int32)


def load(directory, model_dir):
    """The training file, (fields, crossings, labels) for the test, the vocabularies, and the rows each field needs."""
    if directory:
        path = os.path.join(directory, "adult.data")
        train, test = (read(os.path.join(directory, name)) for name in ("adult.data", "adult.test"))
        print(f"{len(train[1])} training and {len(test[1])} test records from {directory}", flush=True)
    else:
        path = os.path.join(model_dir, "generated.data")
        train, test = generate(32768, seed=1), generate(16384, seed=2)
        write(path, *train)
        print("no --data: training on 32768 generated records, testing on 16384 (planted signal)", flush=True)
    vocabularies = {name: np.unique(train[0][name]) for name in CATEGORIES}
    rows = [len(vocabularies[name]) + 1 for name in CATEGORIES] + [len(bounds) + 1 for bounds in BOUNDARIES.values()]
    return path, (*encode(test[0], vocabularies), test[1]), vocabularies, rows


def training(path, vocabularies, size, epochs):
    """The lines of the file, shuffled, in batches; epochs None: without end."""

    with open(path, "rb") as file:
        lines = [line for line in file.read().splitlines() if line]
    columns, labels = parse([line.decode() for line in lines])
    encoded = (*encode(columns, vocabularies), labels)  # all lines once; a batch only looks its lines up
    places = {line: place for place, line in enumerate(lines)}

    def look_up(batch):
        rows = [places[line] for line in batch]
        return tuple(column[rows] for column in encoded)

    def prepare(batch):
        fields, crossings, labels = tf.numpy_function(look_up, [batch], (tf.int32, tf.int32, tf.float32))
        return {
            "fields": tf.ensure_shape(fields, [None, len(FIELDS)]),
            "crossings": tf.ensure_shape(crossings, [None, len(CROSSES)]),
        }, tf.ensure_shape(labels, [None])

    return lambda: elastic_dataset(path, size, epochs=epochs, seed=1).map(prepare).prefetch(4)


def evaluation(records, size):
    """Once, in order."""
    fields, crossings, labels = records
    return lambda: tf.data.Dataset.from_tensor_slices(({"fields": fields, "crossings": crossings}, labels)).batch(size)


# -------------------------------------------------------------------------------------------------------------- model


def model_fn(features, labels, mode, params):
    """Wide: a linear model of all fields and crossings. Deep: a network over embeddings of the fields."""
    rows, dim = params["rows"], params["dim"]
    fields, crossings = tf.unstack(features["fields"], axis=1), tf.unstack(features["crossings"], axis=1)

    with v1.variable_scope("wide"):
        first = np.cumsum([0, *rows])  # one table for all fields, one after the other
        weights = v1.get_variable("fields", [first[-1], 1], initializer=v1.zeros_initializer())
        bias = v1.get_variable("bias", [], initializer=v1.constant_initializer(-1.0))
        wide = bias + tf.reduce_sum(
            tf.nn.embedding_lookup(weights, features["fields"] + tf.constant(first[:-1], tf.int32)), [1, 2]
        )
        for (names, size), ids in zip(CROSSES, crossings):
            table = v1.get_variable("_x_".join(names), [size, 1], initializer=v1.zeros_initializer())
            wide += tf.nn.embedding_lookup(table, ids)[:, 0]
    with v1.variable_scope("deep"):
        embeddings = []
        for name, size, ids in zip(FIELDS, rows, fields):
            table = v1.get_variable(name, [size, dim], initializer=v1.random_normal_initializer(stddev=0.1))
            embeddings.append(tf.nn.embedding_lookup(table, ids))
        layer = tf.concat(embeddings, 1)
        for number, units in enumerate(params["hidden"]):
            layer = v1.layers.dense(layer, units, tf.nn.relu, name=f"layer{number}")
        deep = v1.layers.dense(layer, 1, name="logit")[:, 0]
    logits = wide + deep
    probabilities = tf.sigmoid(logits)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"probability": probabilities})

    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = {
            "auc": v1.metrics.auc(labels, probabilities, num_thresholds=1000, summation_method="careful_interpolation"),
            "accuracy": v1.metrics.accuracy(labels, probabilities > 0.5),
        }
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)

    # Both optimizers touch only the rows of the batch; Adam would rewrite whole tables at every step.
    wide_variables, deep_variables = (v1.trainable_variables(scope) for scope in ("wide", "deep"))
    gradients = tf.gradients(loss, wide_variables + deep_variables)
    count = len(wide_variables)
    train = tf.group(
        v1.train.FtrlOptimizer(0.05, l2_regularization_strength=0.3).apply_gradients(
            zip(gradients[:count], wide_variables)
        ),
        v1.train.AdagradOptimizer(0.02).apply_gradients(
            zip(gradients[count:], deep_variables), global_step=v1.train.get_global_step()
        ),
    )
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


# ---------------------------------------------------------------------------------------------------------------- run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="DIR", help="directory with adult.data and adult.test")
    parser.add_argument("--steps", type=int, help="training steps of all workers together (default: 10000)")
    parser.add_argument(
        "--epochs", type=int, help="end after so many readings of all training records (default: by steps)"
    )
    parser.add_argument("--batch", type=int, default=128, help="records in a step")
    parser.add_argument(
        "--model-dir", help="where checkpoints go (default: below $DEEPREC_EXT_WORKDIR, else a temporary directory)"
    )
    arguments = parser.parse_args()

    v1.logging.set_verbosity(v1.logging.INFO)
    workdir = os.environ.get("DEEPREC_EXT_WORKDIR")
    model_dir = arguments.model_dir or (
        os.path.join(workdir, "model") if workdir else tempfile.mkdtemp(prefix="census-")
    )
    path, test, vocabularies, rows = load(arguments.data, model_dir)
    steps = arguments.steps or (None if arguments.epochs else 10000)

    config = tf.estimator.RunConfig(
        model_dir, save_checkpoints_secs=60, log_step_count_steps=500, save_summary_steps=500
    )
    parameters = {"rows": rows, "dim": 8, "hidden": [64, 32]}
    estimator = tf.estimator.Estimator(model_fn, config=config, params=parameters)
    result = tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(training(path, vocabularies, arguments.batch, arguments.epochs), max_steps=steps),
        tf.estimator.EvalSpec(evaluation(test, 4096), steps=None, start_delay_secs=0, throttle_secs=60),
    )
    if result and result[0]:  # in one process; in a cluster the evaluator, or DeepRec Extension, evaluates
        print("test " + ", ".join(f"{name} {value:.4f}" for name, value in sorted(result[0].items())), flush=True)


if __name__ == "__main__":
    main()
