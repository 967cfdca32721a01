"""Modules of models, written for a test."""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

_numbers = itertools.count()

WHOLE = """
    import tensorflow as tf

    def custom_model():
        value = tf.keras.Input(shape=(), dtype="float32", name="value")
        column = tf.keras.layers.Reshape((1,))(value)
        return tf.keras.Model(value, tf.keras.layers.Dense(1, kernel_initializer="ones", name="out")(column))

    def loss(labels, predictions):
        return tf.square(labels - predictions[:, 0])

    def optimizer():
        return tf.keras.optimizers.SGD(0.1)

    def feed(dataset, mode, metadata):
        numbers = dataset.map(lambda line: tf.strings.to_number(line))
        return numbers if mode == "prediction" else numbers.map(lambda number: (number, 2.0 * number))

    def eval_metrics_fn():
        return {"error": lambda labels, predictions: tf.abs(labels - predictions[:, 0])}
"""
"""One with all that each command needs."""


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """`written(text)` makes a module below `zoo/`; its name."""
    before = list(sys.path), set(sys.modules)
    directory = tmp_path / "zoo"
    directory.mkdir()

    def write(text: str = WHOLE) -> str:
        name = f"module_{next(_numbers)}"
        (directory / f"{name}.py").write_text(textwrap.dedent(text))
        return name

    yield write
    sys.path[:] = before[0]
    for name in set(sys.modules) - before[1]:
        if name.startswith(("module_", "elasticdl")):
            del sys.modules[name]


@pytest.fixture
def zoo(tmp_path: Path) -> str:
    return str(tmp_path / "zoo")


@pytest.fixture
def lines(tmp_path: Path) -> str:
    """A directory with 100 records in two files: the numbers 0 to 99 divided by 100."""
    directory = tmp_path / "data"
    directory.mkdir()
    for number in range(2):
        text = "".join(f"{one / 100}\n" for one in range(50 * number, 50 * number + 50))
        (directory / f"part-{number}.txt").write_text(text)
    return str(directory)
