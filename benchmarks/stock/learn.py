"""The Keras script of `benchmarks/convergence.py`: a model, and records with a planted signal or the census, through `fit`.

It names nothing of DeepRec Extension and runs unchanged in one process and under `deeprec-ext run`. The models of the two
examples are theirs; records are arrays, so that each is trained once an epoch, however many processes there are.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

keras = tf.keras
ROOT = Path(__file__).resolve().parents[2]
MODELS = ("census", "deepfm", "xdeepfm")
BATCH, TEST_BATCHES = 256, 200
NUMBERS = (0, 2, 4, 10, 11, 12)
"""Columns of the census that are numbers; the last is the answer."""


def records_of_example(name: str, count: int) -> tuple[Any, tuple[Any, Any], tuple[Any, Any]]:
    """(model, training records, test records)."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"keras_{name}" / "train.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def arrays(seed: int, batches: int) -> tuple[Any, Any]:
        made = [module.make_batch(number, seed) for number in range(batches)]
        x, y = (np.concatenate([np.asarray(one[part]) for one in made]) for part in (0, 1))
        noise = np.random.default_rng(seed).random(len(y)) < 0.1  # nobody can learn everything
        return x, np.where(noise, 1 - y, y).astype("float32")

    return module.make_model(), arrays(1, count // BATCH), arrays(0, TEST_BATCHES)


def census(directory: Path) -> tuple[Any, tuple[Any, Any], tuple[Any, Any]]:
    """Wide & Deep of who earns more than 50 000 dollars (UCI Adult: `adult.data`, `adult.test`)."""

    def rows(name: str) -> list[list[str]]:
        with open(directory / name, newline="") as file:
            return [[word.strip() for word in row] for row in csv.reader(file) if len(row) == 15]

    train, test = rows("adult.data"), rows("adult.test")
    kinds = [column for column in range(14) if column not in NUMBERS]
    known = {
        column: {word: number for number, word in enumerate(sorted({row[column] for row in train}), 1)}
        for column in kinds
    }
    scale = np.array([[float(row[column]) for column in NUMBERS] for row in train])
    mean, spread = scale.mean(0), scale.std(0)

    def arrays(found: list[list[str]]) -> tuple[Any, Any]:
        ids = np.array([[known[column].get(row[column], 0) for column in kinds] for row in found], "int64")
        numbers = (np.array([[float(row[column]) for column in NUMBERS] for row in found]) - mean) / spread
        answers = np.array([row[14].startswith(">50K") for row in found], "float32")
        return {"ids": ids, "numbers": numbers.astype("float32")}, answers

    ids = keras.Input(shape=(len(kinds),), dtype="int64", name="ids")
    numbers = keras.Input(shape=(len(NUMBERS),), name="numbers")
    wide, deep = [], [numbers]
    for number, column in enumerate(kinds):
        one = ids[:, number]
        wide.append(keras.layers.Embedding(len(known[column]) + 1, 1, name=f"wide_{column}")(one))
        deep.append(keras.layers.Embedding(len(known[column]) + 1, 8, name=f"deep_{column}")(one))
    hidden = keras.layers.Concatenate()(deep)
    for units in (64, 32):
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
    logit = keras.layers.Add()([*wide, keras.layers.Dense(1)(hidden)])
    model = keras.Model([ids, numbers], keras.layers.Activation("sigmoid")(logit))
    return model, arrays(train), arrays(test)


def auc(answers: Any, scores: Any) -> float:
    """Exact, by ranks; equal scores share theirs."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positive = answers > 0.5
    yes, no = positive.sum(), (~positive).sum()
    return float((ranks[positive].sum() - yes * (yes + 1) / 2) / (yes * no))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--data", type=Path, help="directory with adult.data and adult.test")
    parser.add_argument("--seed", type=int, default=1, help="of first values and of the order of records")
    parser.add_argument("--records", type=int, default=500_000, help="of those that are made")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()

    keras.utils.set_random_seed(arguments.seed)
    model, (x, y), test = (
        census(arguments.data)
        if arguments.model == "census"
        else records_of_example(arguments.model, arguments.records)
    )
    model.compile(
        keras.optimizers.Adagrad(arguments.rate), loss="binary_crossentropy", metrics=[keras.metrics.AUC(name="auc")]
    )
    told = model.fit(x, y, batch_size=arguments.batch, epochs=arguments.epochs, validation_data=test, verbose=2)
    scores = model.predict(test[0], batch_size=4096, verbose=0)
    found = {
        "auc": auc(test[1], np.asarray(scores)[:, 0]), "steps": int(model.optimizer.iterations.numpy()),
        "curve": [float(one) for one in told.history["val_auc"]], "loss": [float(one) for one in told.history["loss"]],
    }  # fmt: skip
    if json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "chief"})["type"] == "chief":
        arguments.out.write_text(json.dumps(found))  # a worker has gone through a part of the epochs
    print(f"AUC {found['auc']:.5f} after {found['steps']} steps", flush=True)


if __name__ == "__main__":
    main()
