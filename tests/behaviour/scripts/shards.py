"""A training script that counts how often each record was trained: a step adds 1 to the rows of its records (SGD, gradient -1).

The records are the numbers 0 … --records - 1, as lines of files in --data (made here when missing) or as an index range. The
last checkpoint then tells which record was trained how often.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

from deeprec_ext.data import elastic_dataset

v1 = tf.compat.v1
TABLE = "times"
BATCH = 40
HURRY = "hurry"


def write(directory, records, files):
    """The records, in so many files; the test writes them before it starts the job."""
    os.makedirs(directory, exist_ok=True)
    for number in range(files):
        with open(os.path.join(directory, f"part-{number}.txt"), "w") as file:
            for record in range(records * number // files, records * (number + 1) // files):
                file.write(f"{record}\n")


def write_tfrecord(path, records, damaged=()):
    """The records 0 … in one TFRecord file; of the damaged ones a bit of the data is another than was written."""
    with tf.io.TFRecordWriter(path) as writer:
        for record in range(records):
            writer.write(b"%08d" % record)
    with open(path, "r+b") as file:
        for record in damaged:
            file.seek(record * (8 + 16) + 12 + 7)
            digit = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([digit ^ 1]))  # another digit: without the checksum another record


def stage(dataset, kind):
    """What a user might put after it and must not."""
    return {
        "": lambda: dataset,
        "shuffle": lambda: dataset.shuffle(10),
        "filter": lambda: dataset.filter(lambda ids: tf.size(ids) > 0),
        "repeat": lambda: dataset.repeat(2),
    }[kind]()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="directory of part-*.txt; without: an index range")
    parser.add_argument("--reader", default="lines")
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--shard", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--sleep", type=float, default=0.0, help="seconds a step waits, until the test is in a hurry")
    parser.add_argument("--checkpoint-steps", type=int, default=10**9)
    parser.add_argument("--stage", default="")
    parser.add_argument("--set-aside", action="store_true")
    parser.add_argument("--ids", action="store_true", help="records are shuffled, filtered and batched anew")
    parser.add_argument("--evaluate", action="store_true", help="the evaluation reads all records, too")
    arguments = parser.parse_args()
    v1.disable_eager_execution()
    v1.logging.set_verbosity(v1.logging.INFO)

    def batches():
        files = os.path.join(arguments.data, "part-*") if arguments.data else arguments.records
        dataset = elastic_dataset(
            files, arguments.batch, epochs=arguments.epochs or None, seed=7, shard_records=arguments.shard,
            reader=arguments.reader if arguments.data else "range", set_aside=arguments.set_aside, with_ids=arguments.ids,
        )  # fmt: skip
        dataset = stage(dataset, arguments.stage)
        if arguments.ids:
            dataset = dataset.unbatch().shuffle(1000, seed=1).filter(odd).batch(arguments.batch)
        elif arguments.data:
            dataset = dataset.map(lambda lines: tf.strings.to_number(lines, tf.int64))
        return dataset.prefetch(2)

    def everything():
        if not arguments.evaluate:
            return tf.data.Dataset.from_tensors(tf.zeros([1], tf.int64))
        return elastic_dataset(arguments.records, 100, shuffle=False, purpose="evaluate")

    def model_fn(features, labels, mode):
        table = v1.get_variable(TABLE, [arguments.records, 4], initializer=v1.zeros_initializer())
        if isinstance(features, dict):  # with ids
            features = tf.strings.to_number(features["record"], tf.int64) if arguments.data else features["record"]
        loss = -tf.reduce_sum(tf.nn.embedding_lookup(table, features))
        if mode == tf.estimator.ModeKeys.EVAL:
            ones = tf.ones_like(features)  # counted over all batches
            return tf.estimator.EstimatorSpec(
                mode, loss=loss, eval_metric_ops={"records": v1.metrics.true_positives(ones, ones)}
            )
        train = v1.train.GradientDescentOptimizer(1.0).minimize(loss, v1.train.get_or_create_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train, training_hooks=[Slow(arguments.sleep)])

    config = tf.estimator.RunConfig(
        os.path.join(os.environ["DEEPREC_EXT_WORKDIR"], "model"), save_checkpoints_steps=arguments.checkpoint_steps,
        log_step_count_steps=1000, save_summary_steps=10**9,
    )  # fmt: skip
    tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(model_fn, config=config),
        tf.estimator.TrainSpec(batches, max_steps=arguments.steps),
        tf.estimator.EvalSpec(everything, steps=None),
    )


def odd(features):
    record = features["record"]
    number = tf.strings.to_number(record, tf.int64) if record.dtype == tf.string else record
    return tf.equal(number % 2, 1)


class Slow(v1.train.SessionRunHook):
    """Each step takes its time, until there is a file HURRY in the run directory: the test has seen what it is about."""

    def __init__(self, seconds):
        self.seconds = seconds

    def after_run(self, run_context, run_values):
        if self.seconds and os.path.exists(os.path.join(os.environ["DEEPREC_EXT_WORKDIR"], HURRY)):
            self.seconds = 0.0
        time.sleep(self.seconds)


if __name__ == "__main__":
    main()
