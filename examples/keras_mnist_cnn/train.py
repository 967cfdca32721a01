"""A small convolutional network in plain Keras, on digits that the script draws: arrays into `fit`, as on keras.io.

It knows nothing of DeepRec Extension:

    python train.py                                                     # stock Keras, one process
    deeprec-ext run --ps 2 --workers 2 -- python train.py               # elastic
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

GLYPHS = """
.###. ..#.. .###. ####. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# ....# ..##. #.... #.... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. .###. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# ..#.. #...# ....#
#...# ..#.. .#... ....# ...#. #...# #...# ..#.. #...# ....#
.###. .###. ##### ####. ...#. .###. .###. ..#.. .###. .###.
"""


def make_digits(count, seed):
    """Images [count, 28, 28, 1] of values from 0 to 1, and the digits, [count]."""
    random = np.random.default_rng(seed)
    rows = [line.split() for line in GLYPHS.split("\n") if line]
    glyphs = np.array([[[letter == "#" for letter in row[digit]] for row in rows] for digit in range(10)], np.float32)
    glyphs = glyphs.repeat(3, axis=1).repeat(3, axis=2)
    digits = random.integers(0, 10, count)
    images = random.normal(0.2, 0.25, (count, 28, 28, 1)).astype(np.float32)
    for image, digit, down, right in zip(images, digits, random.integers(0, 8, count), random.integers(0, 14, count)):
        image[down : down + 21, right : right + 15, 0] += 0.6 * glyphs[digit]
    return images.clip(0.0, 1.0), digits


def make_model():
    return keras.Sequential(
        [
            keras.Input(shape=(28, 28, 1)),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(32, 3, activation="relu"),
            layers.BatchNormalization(momentum=0.9),  # few steps: the averages keep up
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(10, activation="softmax"),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200, help="batches of an epoch, of the whole job")
    parser.add_argument("--seed", type=int, default=2, help="of the digits, the same in all processes")
    parser.add_argument(
        "--model-dir", default=os.environ.get("DEEPREC_EXT_WORKDIR"), help="where the trained model goes"
    )
    arguments = parser.parse_args()

    images, digits = make_digits(64 * arguments.steps, arguments.seed)
    model = make_model()
    model.compile(keras.optimizers.Adam(0.002), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(images, digits, batch_size=64, epochs=arguments.epochs, validation_data=make_digits(1000, 0), verbose=2)
    results = model.evaluate(*make_digits(2000, 1), return_dict=True, verbose=0)
    print("test " + ", ".join(f"{name} {value:.4f}" for name, value in sorted(results.items())), flush=True)
    if arguments.model_dir:
        os.makedirs(arguments.model_dir, exist_ok=True)
        model.save(os.path.join(arguments.model_dir, "mnist_cnn.keras"))


if __name__ == "__main__":
    main()
