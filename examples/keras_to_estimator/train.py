"""A Keras model, trained as an Estimator: `tf.keras.estimator.model_to_estimator` and `train_and_evaluate`.

It knows nothing of DeepRec Extension:

    python train.py --steps 500                                         # stock TensorFlow, one process
    deeprec-ext run --ps 2 --workers 1 -- python train.py               # elastic

The task: which of 500 made-up films does a made-up user like? Users and films have planted tastes.
"""

import argparse
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

v1 = tf.compat.v1
keras = tf.keras

USERS, FILMS, BATCH = 5_000, 500, 256


def make_batch(number, seed):
    """Batch `number`: users, films, and whether it is a match."""
    seeds = [[seed, 3 * number + offset] for offset in range(2)]
    users = tf.random.stateless_uniform([BATCH, 1], seed=seeds[0], maxval=USERS, dtype=tf.int64)
    films = tf.random.stateless_uniform([BATCH, 1], seed=seeds[1], maxval=FILMS, dtype=tf.int64)
    taste, kind = (tf.cast(ids, tf.float32) * 2.399963 for ids in (users % 50, films % 40))
    return {"user": users, "film": films}, tf.cast(
        tf.sin(taste) + tf.sin(kind) + tf.cos(taste - kind) > 0.2, tf.float32
    )


def batches(seed, count=None):
    """With a count: so many batches; without: no end."""

    def input_fn():
        return tf.data.Dataset.range(count or 2**60).map(lambda number: make_batch(number, seed)).prefetch(2)

    return input_fn


def make_model():
    user, film = (keras.Input(shape=(1,), dtype=tf.int64, name=name) for name in ("user", "film"))
    users = keras.layers.Flatten()(keras.layers.Embedding(USERS, 8, name="users")(user))
    films = keras.layers.Flatten()(keras.layers.Embedding(FILMS, 8, name="films")(film))
    hidden = keras.layers.Concatenate()([users, films])
    for units in (64, 32):
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
    match = keras.layers.Dense(1, activation="sigmoid", name="match")(hidden)
    model = keras.Model([user, film], match)
    # Adagrad touches only the rows of the batch; Adam would rewrite both tables at every step.
    model.compile(
        keras.optimizers.legacy.Adagrad(0.3, initial_accumulator_value=0.1),
        loss="binary_crossentropy",
        metrics=["accuracy"],
    )
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000, help="training steps of all workers together")
    parser.add_argument(
        "--model-dir", help="where checkpoints go (default: below $DEEPREC_EXT_WORKDIR, else a temporary directory)"
    )
    arguments = parser.parse_args()

    v1.logging.set_verbosity(v1.logging.INFO)
    workdir = os.environ.get("DEEPREC_EXT_WORKDIR")
    model_dir = arguments.model_dir or (
        os.path.join(workdir, "model") if workdir else tempfile.mkdtemp(prefix="keras-")
    )
    config = tf.estimator.RunConfig(
        model_dir, save_checkpoints_secs=60, log_step_count_steps=500, save_summary_steps=500
    )
    estimator = keras.estimator.model_to_estimator(make_model(), config=config, checkpoint_format="saver")
    seed = 1 + (config.global_id_in_cluster or 0)  # every worker has its own records
    result = tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(batches(seed), max_steps=arguments.steps),
        tf.estimator.EvalSpec(batches(0, count=50), steps=None, start_delay_secs=0, throttle_secs=60),
    )
    if result and result[0]:  # in one process; in a cluster the evaluator, or DeepRec Extension, evaluates
        print("test " + ", ".join(f"{name} {value:.4f}" for name, value in sorted(result[0].items())), flush=True)


if __name__ == "__main__":
    main()
