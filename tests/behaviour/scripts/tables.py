"""A Keras script with a large table. It tells, for its test, by how much its process has grown since before the model, and by
how much its peak has while it saved."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import tensorflow as tf

WIDTH = 16
TOLD = "tables.py: "


def memory(field: str) -> int:
    """Bytes: `VmRSS`, or its peak, `VmHWM`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--examples", type=int, default=4096)
    parser.add_argument("--optimizer", default="adagrad")
    parser.add_argument("--load", help="a .keras file to begin with")
    parser.add_argument("--save", type=Path, help="a directory for what the model is saved as")
    args = parser.parse_args()
    before = memory("VmRSS")
    if args.load:
        model = tf.keras.models.load_model(args.load)
    else:
        ids = tf.keras.Input((8,), dtype="int64")
        rows = tf.keras.layers.Embedding(args.rows, WIDTH, name="rows")(ids)
        model = tf.keras.Model(ids, tf.keras.layers.Dense(1)(tf.keras.layers.Flatten()(rows)))
        model.compile(args.optimizer, "mse")
    x = np.random.default_rng(1).integers(0, args.rows, (args.examples, 8))
    history = model.fit(x, (x[:, 0] % 2).astype("float32"), batch_size=64, epochs=2, verbose=0).history
    told = {"grown": memory("VmHWM") - before, "peak": memory("VmHWM"), "loss": history["loss"]}
    if args.save:
        model.save_weights(str(args.save / "all.weights.h5"))
        model.save(str(args.save / "model.keras"))
        told["saving"] = memory("VmHWM") - told["peak"]
    print(TOLD + json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
