"""A model as a module: what it is, and no training code. `deeprec-ext train`, `evaluate` and `predict` do the rest.

    python clicks.py --data data                                        # makes records
    deeprec-ext train --model-def clicks.custom_model --data data/train

The task: will a made-up advertisement be clicked? Records are TFRecord files of Examples with `ids` and `click`.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from deeprec_ext.modeldef import Mode

FIELDS, ROWS = 6, 2_000


def custom_model():
    ids = keras.Input(shape=(FIELDS,), dtype="int64", name="ids")
    alone = layers.Flatten()(layers.Embedding(ROWS, 1, name="linear")(ids))
    hidden = layers.Flatten()(layers.Embedding(ROWS, 8, name="embedding")(ids))
    for units in (32, 16):
        hidden = layers.Dense(units, activation="relu")(hidden)
    logits = layers.Dense(1)(layers.Concatenate()([alone, hidden]))
    return keras.Model(ids, {"logits": logits, "probability": layers.Activation("sigmoid")(logits)}, name="clicks")


def loss(labels, predictions):
    labels = tf.cast(tf.reshape(labels, [-1, 1]), tf.float32)
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=predictions["logits"])


def optimizer():
    return keras.optimizers.Adagrad(0.1)


def feed(dataset, mode, metadata):
    def parse(record):
        features = {"ids": tf.io.FixedLenFeature([FIELDS], tf.int64)}
        if mode != Mode.PREDICTION:
            features["click"] = tf.io.FixedLenFeature([], tf.int64)
        found = tf.io.parse_single_example(record, features)
        return found["ids"] if mode == Mode.PREDICTION else (found["ids"], found["click"])

    return dataset.map(parse)


def eval_metrics_fn():
    return {
        "logits": {"accuracy": lambda labels, logits: tf.equal(logits[:, 0] > 0.0, labels == 1)},
        "probability": {"auc": keras.metrics.AUC()},
    }


def write(directory, records, files, seed):
    """Records with a planted signal: some categories count alone, two of them together."""
    os.makedirs(directory, exist_ok=True)
    random = np.random.default_rng(seed)
    for number in range(files):
        ids = (ROWS * random.random((records // files, FIELDS)) ** 3).astype(np.int64)
        angle = 2.399963 * (ids % 30)
        signal = np.sin(angle[:, :4]).sum(axis=1) + 2.0 * np.cos(angle[:, 4] - angle[:, 5])
        with tf.io.TFRecordWriter(os.path.join(directory, f"part-{number}.tfrecord")) as writer:
            for row, click in zip(ids, signal > 0.5):
                feature = {
                    "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=row)),
                    "click": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(click)])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="directory for train/ and test/")
    parser.add_argument("--records", type=int, default=60_000, help="to train on; a sixth of that to test")
    arguments = parser.parse_args()
    write(os.path.join(arguments.data, "train"), arguments.records, 4, seed=1)
    write(os.path.join(arguments.data, "test"), arguments.records // 6, 2, seed=2)


if __name__ == "__main__":
    main()
