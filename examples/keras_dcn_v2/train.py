"""Deep & Cross Network (version 2) in plain Keras: cross layers and a deep network, one upon the other.

It knows nothing of DeepRec Extension:

    python train.py                                                     # stock Keras, one process
    deeprec-ext run --ps 2 --workers 2 -- python train.py               # elastic

The task: will a made-up advertisement be clicked? Eight categories, of which some count alone and some in pairs.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

FIELDS, ROWS, BATCH, DIMENSION = 8, 20_000, 256, 8


def make_batch(number, seed):
    """Batch `number`: ids of the categories, [BATCH, FIELDS], and whether it is a click, [BATCH]. Small ids are frequent."""
    uniform = tf.random.stateless_uniform([BATCH, FIELDS], seed=[seed, number])
    ids = tf.cast(ROWS * uniform**8, tf.int64)
    angle = 2.399963 * tf.cast(ids % 30, tf.float32)
    alone = tf.reduce_sum(tf.sin(angle[:, :4]), axis=1)
    pairs = 2.0 * tf.cos(angle[:, 4] - angle[:, 5]) + 2.0 * tf.cos(angle[:, 6] - angle[:, 7])
    return ids, tf.cast(alone + pairs > 0.5, tf.float32)


def batches(seed, count):
    return tf.data.Dataset.range(count).map(lambda number: make_batch(number, seed)).prefetch(2)


@keras.utils.register_keras_serializable("dcn")
class Offsets(layers.Layer):
    """Ids of one table for all categories, each with its own rows."""

    def call(self, ids):
        return ids + ROWS * tf.range(FIELDS, dtype=ids.dtype)


@keras.utils.register_keras_serializable("dcn")
class Cross(layers.Layer):
    """x0 * (W x + b) + x: each layer raises the degree of the products of features by one."""

    def build(self, shapes):
        width = shapes[0][-1]
        self.kernel = self.add_weight(name="kernel", shape=(width, width))
        self.bias = self.add_weight(name="bias", shape=(width,), initializer="zeros")
        super().build(shapes)

    def call(self, inputs):
        first, x = inputs
        return first * (tf.matmul(x, self.kernel) + self.bias) + x


def make_model():
    ids = keras.Input(shape=(FIELDS,), dtype="int64", name="ids")
    first = layers.Flatten()(layers.Embedding(FIELDS * ROWS, DIMENSION, name="embedding")(Offsets()(ids)))
    x = first
    for _ in range(3):
        x = Cross()([first, x])
    for units in (64, 32):
        x = layers.Dense(units, activation="relu")(x)
    return keras.Model(ids, layers.Dense(1, activation="sigmoid", name="click")(x), name="dcn")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=800, help="batches of an epoch")
    parser.add_argument("--seed", type=int, default=1, help="of the records")
    parser.add_argument(
        "--model-dir", default=os.environ.get("DEEPREC_EXT_WORKDIR"), help="where the trained model goes"
    )
    arguments = parser.parse_args()

    model = make_model()
    model.compile(keras.optimizers.Adagrad(0.1), loss="binary_crossentropy", metrics=[keras.metrics.AUC(name="auc")])
    model.fit(
        batches(arguments.seed, arguments.steps), epochs=arguments.epochs, validation_data=batches(0, 20), verbose=2
    )
    results = model.evaluate(batches(0, 50), return_dict=True, verbose=0)
    print("test " + ", ".join(f"{name} {value:.4f}" for name, value in sorted(results.items())), flush=True)
    if arguments.model_dir:
        os.makedirs(arguments.model_dir, exist_ok=True)
        model.save(os.path.join(arguments.model_dir, "dcn.keras"))


if __name__ == "__main__":
    main()
