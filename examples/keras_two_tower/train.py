"""Two-tower retrieval in plain Keras: users and films as vectors, such that a user is near the films that he has seen.

It knows nothing of DeepRec Extension:

    python train.py                                                     # stock Keras, one process
    deeprec-ext run --ps 2 --workers 2 -- python train.py               # elastic

A batch has pairs of user and film; for each user its own film is right, and those of the others in the batch are wrong.
Made-up users like one of 20 kinds of films each.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

USERS, FILMS, KINDS, BATCH, DIMENSION = 50_000, 5_000, 20, 128, 16


def make_batch(number, seed):
    """Batch `number`: a user and a film of each pair, and which film of the batch is right: the pair's own."""
    seeds = [[seed, 2 * number + offset] for offset in range(2)]
    user = tf.cast(USERS * tf.random.stateless_uniform([BATCH], seed=seeds[0]) ** 8, tf.int64)
    some = tf.random.stateless_uniform([BATCH], seed=seeds[1], maxval=FILMS // KINDS, dtype=tf.int64)
    return {"user": user, "film": KINDS * some + user % KINDS}, tf.range(BATCH)


def batches(seed, count):
    return tf.data.Dataset.range(count).map(lambda number: make_batch(number, seed)).prefetch(2)


@keras.utils.register_keras_serializable("two_tower")
class Scores(layers.Layer):
    """Of each user of the batch with each film of the batch: [batch, batch]."""

    def call(self, towers):
        user, film = (tf.math.l2_normalize(tower, axis=1) for tower in towers)
        return 10.0 * tf.matmul(user, film, transpose_b=True)


def tower(ids, rows, name):
    vector = layers.Embedding(rows, DIMENSION, name=f"{name}_embedding")(ids)
    hidden = layers.Dense(32, activation="relu", name=f"{name}_hidden")(vector)
    return layers.Dense(DIMENSION, name=f"{name}_vector")(hidden)


def make_model():
    user, film = (keras.Input(shape=(), dtype="int64", name=name) for name in ("user", "film"))
    scores = Scores(name="scores")([tower(user, USERS, "user"), tower(film, FILMS, "film")])
    return keras.Model([user, film], scores, name="two_tower")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=800, help="batches of an epoch")
    parser.add_argument("--seed", type=int, default=1, help="of the pairs")
    parser.add_argument(
        "--model-dir", default=os.environ.get("DEEPREC_EXT_WORKDIR"), help="where the trained model goes"
    )
    arguments = parser.parse_args()

    model = make_model()
    model.compile(
        keras.optimizers.Adagrad(0.1),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseTopKCategoricalAccuracy(10, name="top_10")],
    )
    model.fit(
        batches(arguments.seed, arguments.steps), epochs=arguments.epochs, validation_data=batches(0, 20), verbose=2
    )
    results = model.evaluate(batches(0, 50), return_dict=True, verbose=0)
    print("test " + ", ".join(f"{name} {value:.4f}" for name, value in sorted(results.items())), flush=True)
    if arguments.model_dir:
        os.makedirs(arguments.model_dir, exist_ok=True)
        model.save(os.path.join(arguments.model_dir, "two_tower.keras"))


if __name__ == "__main__":
    main()
