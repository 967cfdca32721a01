"""Inputs that each process reads by itself, of whose steps it makes a part; a Sequence (Keras 3: a PyDataset) among them.

Left to themselves all processes would begin each epoch with the same batch, and none come to the last ones. Here each begins
elsewhere, and goes on where it has stopped.
"""

from __future__ import annotations

import multiprocessing
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext import env
from deeprec_ext.keras.leased.weights import by_class
from deeprec_ext.tf_private.eager import is_a_share

SKIPPED_MAX = 1000
"""Batches of a pipeline that a process reads in vain, so that it begins elsewhere."""

APART = 1 << 30
"""Numbers of batches are below this where a process begins in an input without end."""


def length_of(x: Any) -> int | None:
    """Batches of a pass over such an input, for all processes together; None: nobody knows, or it is a share of each process's
    own."""
    if isinstance(x, tf.keras.utils.Sequence):
        return _batches(x) or None
    if not isinstance(x, tf.data.Dataset) or is_a_share(x):
        return None
    count = int(x.cardinality())
    return count if count > 0 else None


def begin_of(count: int) -> int:
    """The batch, of so many, with which this process begins."""
    return _seed() % min(count, SKIPPED_MAX)


def _seed() -> int:
    return zlib.crc32(f"{env.role()} {env.index()}".encode())


def turned(x: Any, words: Mapping[str, Any], generation: int) -> tuple[Any, Any]:
    """(the same for this process, `class_weight` for Keras).

    Args:
      words: of `fit`: `shuffle`, `class_weight`.
    """
    seed, weights = _seed(), words.get("class_weight")
    if generation == 3:  # it begins a PyDataset anew with each epoch, of which this process makes a part; no generator
        weigh = by_class(weights, generation) if weights else None
        return _endless(x, bool(words.get("shuffle", True)), seed, weigh), None
    return _going_on()(x, seed), weights


def _endless(x: Any, shuffle: bool, seed: int, weigh: Any) -> Iterator[Any]:
    """Its elements as Keras 3 takes them, pass after pass."""
    begins = x.on_epoch_begin if hasattr(tf.keras.utils.Sequence, "on_epoch_begin") else lambda: None  # before 3.5
    count = _batches(x)
    if count is None:  # each process begins elsewhere in it
        begins()
        yield from (_element(x[number], weigh) for number in range(seed % APART, 1 << 62))
        return
    for number in range(1 << 62):
        begins()
        order = np.arange(count) + seed
        if shuffle:
            np.random.default_rng([seed, number]).shuffle(order)
        for place in order:
            yield _element(x[int(place) % count], weigh)
        x.on_epoch_end()


def _batches(x: Any) -> int | None:
    """None: without end; where the script does not say how many there are it is taken for that."""
    try:
        count = x.num_batches if hasattr(type(x), "num_batches") else len(x)  # before 3.3
    except NotImplementedError:
        return None
    return None if count is None else int(count)


def _element(given: Any, weigh: Any) -> tuple[Any, ...]:
    made = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    return tuple(weigh(*made)) if weigh is not None and len(made) > 1 else made


@lru_cache(maxsize=1)
def _going_on() -> Any:
    """Of Keras 2, which begins an epoch with a new iterator, and shuffles by itself."""

    class GoingOn(tf.keras.utils.Sequence):  # type: ignore[misc]
        def __init__(self, x: Any, seed: int) -> None:
            self._x, self._begin, self._used = x, seed % max(1, len(x)), multiprocessing.Value("q", 0, lock=False)

        def __len__(self) -> int:
            return len(self._x)

        def __getitem__(self, index: int) -> Any:
            self._used.value = max(self._used.value, index + 1)  # it may be a process of Keras's pool that does so
            return self._x[(self._begin + index) % len(self._x)]

        def on_epoch_end(self) -> None:
            self._x.on_epoch_end()
            self._begin, self._used.value = self._begin + self._used.value, 0

    return GoingOn
