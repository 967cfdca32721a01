"""A GAN of plain Keras as public scripts have it, with `train_on_batch`, which writes down what it has after each iteration.

Nothing of DeepRec Extension here. `steps/ROLE.PID`: number of the discriminator's update, check of all weights and optimizers;
`batches/ROLE.PID`: the first numbers drawn.
"""

import argparse
import os
import time
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

ME = f"{os.environ.get('DEEPREC_EXT_ROLE', 'alone')}-{os.environ.get('DEEPREC_EXT_INDEX', '0')}.{os.getpid()}"
OUT = os.environ.get("DEEPREC_EXT_WORKDIR", ".")


def append(kind, *words):
    os.makedirs(os.path.join(OUT, kind), exist_ok=True)
    descriptor = os.open(os.path.join(OUT, kind, ME), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())
    os.close(descriptor)


def check():
    found = 0
    for optimizer in (discriminator.optimizer, combined.optimizer):
        variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
        for one in variables:
            found = zlib.crc32(np.ascontiguousarray(one).tobytes(), found)
    for one in (*generator.get_weights(), *discriminator.get_weights()):
        found = zlib.crc32(np.ascontiguousarray(one).tobytes(), found)
    return found


parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=100_000)
parser.add_argument("--critic", type=int, default=1)
parser.add_argument("--seconds", type=float, default=0.01)
arguments = parser.parse_args()

discriminator = keras.Sequential(
    [keras.Input((14, 14, 1)), layers.Flatten(), layers.Dense(32), layers.LeakyReLU(), layers.Dense(1, activation="sigmoid")]
)  # fmt: skip
discriminator.compile(keras.optimizers.Adam(0.0002, 0.5), "binary_crossentropy", metrics=["accuracy"])
generator = keras.Sequential(
    [keras.Input((20,)), layers.Dense(32), layers.LeakyReLU(), layers.BatchNormalization(momentum=0.8),
     layers.Dense(196, activation="tanh"), layers.Reshape((14, 14, 1))]
)  # fmt: skip
noise = keras.Input((20,))
discriminator.trainable = False
combined = keras.Model(noise, discriminator(generator(noise)))
combined.compile(keras.optimizers.Adam(0.0002, 0.5), "binary_crossentropy")
images = np.random.random((512, 14, 14, 1)).astype("float32")
half = 16
for _ in range(arguments.iterations):
    discriminator.trainable = True
    for _ in range(arguments.critic):
        index = np.random.randint(0, len(images), half)
        fake = generator.predict(np.random.normal(0, 1, (half, 20)), verbose=0)
        losses = [
            discriminator.train_on_batch(images[index], np.ones((half, 1))),
            discriminator.train_on_batch(fake, np.zeros((half, 1))),
        ]
    discriminator.trainable = False
    loss = combined.train_on_batch(np.random.normal(0, 1, (2 * half, 20)), np.ones((2 * half, 1)))
    assert np.isfinite(losses).all() and np.isfinite(loss)
    append("steps", int(combined.optimizer.iterations.numpy()), check())
    append("batches", *index)
    if os.path.exists(os.path.join(OUT, "enough")):
        break
    time.sleep(arguments.seconds)
generator.save_weights(os.path.join(OUT, "generator.weights.h5"))
