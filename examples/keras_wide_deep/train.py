"""Wide & Deep in plain Keras: `compile`, `fit`, `evaluate`, as on keras.io.

It knows nothing of DeepRec Extension:

    python train.py --epochs 3                                          # stock Keras, one process
    deeprec-ext run --ps 2 --workers 2 -- python train.py               # elastic

The task: will a made-up user click on a made-up film? Ids have planted weights, ages a planted curve.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

USERS, FILMS, BATCH = 50_000, 5_000, 256


def make_batch(number, seed):
    """Batch `number`: features, and whether it is a click."""
    seeds = [[seed, 3 * number + offset] for offset in range(3)]
    user = tf.random.stateless_uniform([BATCH], seed=seeds[0], maxval=USERS, dtype=tf.int64)
    film = tf.random.stateless_uniform([BATCH], seed=seeds[1], maxval=FILMS, dtype=tf.int64)
    age = tf.random.stateless_uniform([BATCH, 1], seed=seeds[2], minval=-1.0)
    taste, kind = (tf.cast(ids, tf.float32) * 2.399963 for ids in (user % 50, film % 40))
    signal = tf.sin(taste) + tf.sin(kind) + tf.cos(taste - kind) + tf.sin(3.0 * age[:, 0])
    return {"user": user, "film": film, "age": age}, tf.cast(signal > 0.2, tf.float32)


def batches(seed, count):
    return tf.data.Dataset.range(count).map(lambda number: make_batch(number, seed)).prefetch(2)


def make_model():
    user, film = (keras.Input(shape=(), dtype="int64", name=name) for name in ("user", "film"))
    age = keras.Input(shape=(1,), name="age")
    wide = [layers.Embedding(USERS, 1, name="wide_user")(user), layers.Embedding(FILMS, 1, name="wide_film")(film)]
    deep = [
        layers.Embedding(USERS, 16, name="deep_user")(user),
        layers.Embedding(FILMS, 16, name="deep_film")(film),
        age,
    ]
    hidden = layers.Concatenate()(deep)
    for units in (64, 32):
        hidden = layers.Dense(units, activation="relu")(hidden)
    logit = layers.Add()([*wide, layers.Dense(1)(hidden)])
    return keras.Model([user, film, age], layers.Activation("sigmoid", name="click")(logit))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000, help="batches of an epoch")
    parser.add_argument("--seed", type=int, default=1, help="of the records")
    parser.add_argument(
        "--model-dir", help="where the trained model goes (default: $DEEPREC_EXT_WORKDIR, else nowhere)"
    )
    arguments = parser.parse_args()

    model = make_model()
    # Adagrad touches only the rows of the batch; Adam would rewrite the tables at every step.
    model.compile(keras.optimizers.Adagrad(0.1), loss="binary_crossentropy", metrics=[keras.metrics.AUC(name="auc")])
    model.fit(
        batches(arguments.seed, arguments.steps), epochs=arguments.epochs, validation_data=batches(0, 20), verbose=2
    )
    results = model.evaluate(batches(0, 50), return_dict=True, verbose=0)
    print("test " + ", ".join(f"{name} {value:.4f}" for name, value in sorted(results.items())), flush=True)
    directory = arguments.model_dir or os.environ.get("DEEPREC_EXT_WORKDIR")
    if directory:
        os.makedirs(directory, exist_ok=True)
        model.save(os.path.join(directory, "wide_deep.keras"))


if __name__ == "__main__":
    main()
