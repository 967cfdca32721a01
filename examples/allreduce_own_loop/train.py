"""A small image model, trained by a loop of its own, in step by all workers of a job without PS.

    python train.py --steps 200                                                          # one process
    deeprec-ext run --strategy allreduce --workers 2 -- python train.py --steps 2000     # three, which come and go

Each worker draws its own records (digits that are drawn and moved about), computes gradients with TensorFlow as it likes, and
has them summed with all others'. Who comes later gets the weights of those who are there.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

from deeprec_ext import allreduce, report_metrics

SIDE, KINDS = 16, 10


def records(chance, count):
    """Pictures [count, SIDE, SIDE, 1] and what they show [count]: one of ten patterns, moved about, in noise."""
    patterns = np.random.default_rng(0).random((KINDS, 8, 8)) < 0.4
    kinds = chance.integers(KINDS, size=count)
    pictures = chance.normal(0.0, 0.5, size=(count, SIDE, SIDE, 1)).astype("float32")
    for picture, kind in zip(pictures, kinds):
        top, left = chance.integers(SIDE - 8, size=2)
        picture[top : top + 8, left : left + 8, 0] += patterns[kind]
    return pictures, kinds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=64, help="records of each worker in a step")
    arguments = parser.parse_args()
    tf.random.set_seed(1)
    model = tf.keras.Sequential([
        tf.keras.Input((SIDE, SIDE, 1)), tf.keras.layers.Conv2D(16, 5, activation="relu"), tf.keras.layers.MaxPool2D(2),
        tf.keras.layers.Conv2D(32, 3, activation="relu"), tf.keras.layers.GlobalMaxPool2D(), tf.keras.layers.Dense(KINDS),
    ])  # fmt: skip
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def gradients(pictures, kinds):
        with tf.GradientTape() as tape:
            loss = loss_of(kinds, model(pictures, training=True))
        return loss, tape.gradient(loss, model.trainable_variables)

    optimizer_variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    member = allreduce.join(allreduce.Variables([*model.variables, *optimizer_variables]))
    chance = np.random.default_rng()
    while member.step < arguments.steps:
        loss, found = gradients(*records(chance, arguments.batch))
        summed = member.sum([one.numpy() for one in (*found, loss)], weight=arguments.batch)
        *means, loss = summed.arrays
        optimizer.apply_gradients(zip(map(tf.constant, means), model.trainable_variables))
        if summed.step % 100 == 0:
            print(
                f"step {summed.step}: loss {loss:.4f} of {summed.weight:g} records by {member.size} workers", flush=True
            )
            report_metrics({"loss": loss}, summed.step)
    pictures, kinds = records(np.random.default_rng(7), 1000)
    accuracy = float(np.mean(np.argmax(model(pictures).numpy(), 1) == kinds))
    print(f"accuracy {accuracy:.3f}", flush=True)
    report_metrics({"accuracy": accuracy}, member.step)


if __name__ == "__main__":
    main()
