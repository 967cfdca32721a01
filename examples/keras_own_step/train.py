"""A subclassed Keras model with a `train_step` of its own: ratings by two embeddings, trained on hard examples as well.

It knows nothing of DeepRec Extension:

    python train.py                                                     # stock Keras, one process
    deeprec-ext run --ps 2 --workers 2 -- python train.py               # elastic

A step looks where a small change of the vectors hurts most, and trains on that too (adversarial training). Such a step needs
two gradients, which `compile` and `fit` alone cannot say.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

USERS, FILMS, BATCH = 20_000, 5_000, 256


def make_batch(number, seed):
    """Batch `number`: user and film, and what the one thinks of the other, about -2 to 2."""
    seeds = [[seed, 3 * number + offset] for offset in range(3)]
    user = tf.cast(USERS * tf.random.stateless_uniform([BATCH], seed=seeds[0]) ** 8, tf.int64)
    film = tf.cast(FILMS * tf.random.stateless_uniform([BATCH], seed=seeds[1]) ** 4, tf.int64)
    taste, kind = (2.399963 * tf.cast(ids % 25, tf.float32) for ids in (user, film))
    noise = tf.random.stateless_normal([BATCH], seed=seeds[2], stddev=0.1)
    return {"user": user, "film": film}, tf.sin(taste) + tf.cos(taste - kind) + noise


def batches(seed, count):
    return tf.data.Dataset.range(count).map(lambda number: make_batch(number, seed)).prefetch(2)


class Ratings(keras.Model):
    """Args: distance: how far the vectors of a batch are moved where that hurts most."""

    def __init__(self, distance=0.05):
        super().__init__()
        self.distance = distance
        self.users = layers.Embedding(USERS, 16)
        self.films = layers.Embedding(FILMS, 16)
        self.head = keras.Sequential([layers.Dense(32, activation="relu"), layers.Dense(1)])
        self.error = keras.metrics.RootMeanSquaredError(name="rmse")
        self.hard = keras.metrics.Mean(name="hard_loss")

    def vectors(self, inputs):
        return tf.concat([self.users(inputs["user"]), self.films(inputs["film"])], axis=1)

    def rate(self, vectors):
        return self.head(tf.concat([vectors, vectors[:, :16] * vectors[:, 16:]], axis=1))[:, 0]

    def call(self, inputs):
        return self.rate(self.vectors(inputs))

    def train_step(self, data):
        inputs, ratings = data
        with tf.GradientTape() as tape:
            vectors = self.vectors(inputs)
            with tf.GradientTape() as inner:
                inner.watch(vectors)
                predicted = self.rate(vectors)
                loss = tf.reduce_mean(tf.square(ratings - predicted))
            uphill = tf.math.l2_normalize(inner.gradient(loss, vectors), axis=1)
            moved = self.rate(vectors + self.distance * tf.stop_gradient(uphill))
            hard = tf.reduce_mean(tf.square(ratings - moved))
            whole = loss + 0.5 * hard
        self.optimizer.apply_gradients(zip(tape.gradient(whole, self.trainable_variables), self.trainable_variables))
        self.error.update_state(ratings, predicted)
        self.hard.update_state(hard)
        return {"rmse": self.error.result(), "hard_loss": self.hard.result()}

    def test_step(self, data):
        inputs, ratings = data
        self.error.update_state(ratings, self(inputs, training=False))
        return {"rmse": self.error.result()}

    @property
    def metrics(self):
        return [self.error, self.hard]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=800, help="batches of an epoch")
    parser.add_argument("--seed", type=int, default=1, help="of the ratings")
    parser.add_argument("--model-dir", default=os.environ.get("DEEPREC_EXT_WORKDIR"), help="where the weights go")
    arguments = parser.parse_args()

    model = Ratings()
    model.compile(keras.optimizers.Adagrad(0.1))
    model.fit(
        batches(arguments.seed, arguments.steps), epochs=arguments.epochs, validation_data=batches(0, 20), verbose=2
    )
    results = model.evaluate(batches(0, 50), return_dict=True, verbose=0)
    print("test " + ", ".join(f"{name} {value:.4f}" for name, value in sorted(results.items())), flush=True)
    if arguments.model_dir:
        os.makedirs(arguments.model_dir, exist_ok=True)
        model.save_weights(os.path.join(arguments.model_dir, "own_step.weights.h5"))


if __name__ == "__main__":
    main()
