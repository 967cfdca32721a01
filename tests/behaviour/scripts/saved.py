"""Keras that trains a large table, and saves it three times: as it is, and twice slowly, telling its test how far it is."""

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
from tensorflow import keras

ROWS, WIDTH = 300_000, 16
PIECES = 8  # of the table, and as many of what its optimizer keeps
NAMES = ("plain", "killed", "scaled")


def file_of(directory: Path, name: str) -> Path:
    return directory / f"{name}.weights.h5"


def told(directory: Path, name: str, piece: int) -> Path:
    """Exists when this piece, or a later one, of a slow save has been read."""
    return directory / f"{name}-{piece}"


def moved(directory: Path) -> Path:
    """Of the last save, the last pieces are not read before it exists."""
    return directory / "moved"


def slowly(directory: Path, name: str, number: int = 0):
    """From now on a piece takes half a second. Returns what undoes it."""
    from deeprec_ext.keras.files import rows

    rows.PIECE_BYTES = -(-ROWS // PIECES) * WIDTH * 4
    pieces = rows.Rows.pieces

    def read(self):
        nonlocal number
        for one in pieces(self):
            told(directory, name, number).touch()
            number += 1
            time.sleep(0.5)
            while name == NAMES[-1] and number > PIECES + 4 and not moved(directory).exists():
                time.sleep(0.1)
            yield one

    rows.Rows.pieces = read
    return lambda: setattr(rows.Rows, "pieces", pieces)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    ids = keras.Input((8,), dtype="int64")
    rows = keras.layers.Embedding(ROWS, WIDTH, name="rows")(ids)
    model = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(rows)))
    model.compile("adagrad", "mse")
    x = np.random.default_rng(1).integers(0, ROWS, (4096, 8))
    model.fit(x, (x[:, 0] % 2).astype("float32"), batch_size=64, verbose=0)
    time.sleep(5)  # copies of the PS are taken every half a second
    for name in NAMES:
        undo = slowly(directory, name) if name != NAMES[0] else lambda: None
        model.save_weights(str(file_of(directory, name)))
        undo()


if __name__ == "__main__":
    main()
