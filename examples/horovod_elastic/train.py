"""A Keras script written for Elastic Horovod; of DeepRec Extension it has the import.

    python train.py --epochs 2                                                            # one process
    deeprec-ext run --strategy allreduce --workers 2 -- python train.py --epochs 100      # three, which come and go

Each process draws its own records (digits that are drawn and moved about). When processes come, go or die, all begin an epoch
with the same weights, and the learning rate that belongs to their number.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

import deeprec_ext.horovod as hvd  # was: import horovod.tensorflow.keras as hvd

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
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=240, help="batches of all processes in an epoch")
    parser.add_argument("--batch", type=int, default=64, help="records of each process in a step")
    parser.add_argument("--model-dir", help="where the trained model is saved")
    arguments = parser.parse_args()
    hvd.init()
    pictures, kinds = records(np.random.default_rng(), 4096)
    dataset = tf.data.Dataset.from_tensor_slices((pictures, kinds)).repeat().shuffle(4096).batch(arguments.batch)
    model = tf.keras.Sequential([
        tf.keras.Input((SIDE, SIDE, 1)), tf.keras.layers.Conv2D(16, 5, activation="relu"), tf.keras.layers.MaxPooling2D(2),
        tf.keras.layers.Conv2D(32, 3, activation="relu"), tf.keras.layers.GlobalMaxPooling2D(), tf.keras.layers.Dense(KINDS),
    ])  # fmt: skip
    rate = 5e-4
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(rate * hvd.size()))
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])

    def on_state_reset():
        optimizer.learning_rate.assign(rate * hvd.size())

    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    state.register_reset_callbacks([on_state_reset])
    callbacks = [
        hvd.callbacks.MetricAverageCallback(), hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.CommitStateCallback(state),
    ]  # fmt: skip

    @hvd.elastic.run
    def train(state):
        model.fit(
            dataset, steps_per_epoch=arguments.steps // hvd.size(), epochs=arguments.epochs - state.epoch,
            callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0,
        )  # fmt: skip

    train(state)
    if hvd.rank() == 0:
        _, accuracy = model.evaluate(*records(np.random.default_rng(7), 1000), verbose=0)
        print(f"accuracy {accuracy:.3f}", flush=True)
        if arguments.model_dir:
            os.makedirs(arguments.model_dir, exist_ok=True)
            model.save_weights(os.path.join(arguments.model_dir, "horovod.weights.h5"))


if __name__ == "__main__":
    main()
