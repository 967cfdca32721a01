"""A Sequence (Keras 3: a PyDataset), of which each process makes the batches that it trains.

Where an epoch has as many steps as it has batches, the number of a step is that of a batch (`of_steps`). Else each process
begins elsewhere, and goes on where it has stopped (`turned`): left to themselves all would begin each epoch with the same
batch, and none come to the last ones.
"""

from __future__ import annotations

import multiprocessing
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext import env
from deeprec_ext.keras.leased.weights import by_class
from deeprec_ext.tf_private.eager import is_a_share

LENGTH_MAX = 1 << 40
"""Batches of a pass; a range of more is one without end, which a callback stops."""

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
    return count if 0 < count < LENGTH_MAX else None


def of_steps(x: Any, numbers: Iterator[Any], spec: Any, workers: int, weigh: Any) -> Iterator[Any]:
    """Its batches by the numbers of the steps that this process makes; some are made ahead.

    Args:
      numbers: arrays of one each.
      spec: of a batch.
      workers: threads.
      weigh: for `class_weight`; None: there is none.
    """
    failed: list[BaseException] = []
    flat = tf.nest.flatten(spec)

    def make(number: Any) -> list[Any]:
        try:
            given = tf.nest.flatten(element(x[int(number)], weigh))
            if len(given) != len(flat):
                raise ValueError(
                    f"batch {int(number)} of the Sequence has {len(given)} arrays, and the first has {len(flat)}"
                )
            return [np.asarray(one).astype(kind.dtype.as_numpy_dtype) for one, kind in zip(given, flat)]
        except BaseException as error:
            failed.append(error)
            raise

    def batch(number: Any) -> Any:
        made = tf.numpy_function(make, [number[0]], [one.dtype for one in flat])
        return tf.nest.pack_sequence_as(spec, [tf.ensure_shape(one, kind.shape) for one, kind in zip(made, flat)])

    given = tf.data.Dataset.from_generator(lambda: numbers, output_signature=tf.TensorSpec([None], tf.int64))
    try:
        yield from given.map(batch, num_parallel_calls=workers).prefetch(max(2, workers))
    except tf.errors.OpError as error:
        if failed:
            raise failed[0] from error  # as the script has raised it
        raise


def turned(x: Any, words: Mapping[str, Any], generation: int, of_fit: int = 0) -> tuple[Any, Any]:
    """(the same for this process, `class_weight` for Keras).

    Args:
      words: of `fit`: `shuffle`, `class_weight`.
      of_fit: number of the call.
    """
    seed, weights = zlib.crc32(f"{env.role()} {env.index()} {of_fit}".encode()), words.get("class_weight")
    if generation == 3:  # it begins a PyDataset anew with each epoch, of which this process makes a part; no generator
        weigh = by_class(weights, generation, of_any=True) if weights else None
        return _endless(x, bool(words.get("shuffle", True)), seed, weigh), None
    return _going_on()(x, seed), weights


def _endless(x: Any, shuffle: bool, seed: int, weigh: Any) -> Iterator[Any]:
    """Its elements as Keras 3 takes them, pass after pass."""
    begins, ends = hooks_of(x)
    count = _batches(x)
    if count is None:  # each process begins elsewhere in it
        begins()
        yield from (element(x[number], weigh) for number in range(seed % APART, 1 << 62))
        return
    for number in range(1 << 62):
        begins()
        order = np.arange(count) + seed
        if shuffle:
            np.random.default_rng([seed, number]).shuffle(order)
        for place in order:
            yield element(x[int(place) % count], weigh)
        ends()


def content_of(first: Sequence[np.ndarray], again: Sequence[np.ndarray]) -> str:
    """Another one: other batches. Empty: a batch is another one each time that it is made.

    Args:
      first, again: arrays of the same batch, made twice.
    """
    check = 0
    for one, other in zip(first, again):
        if one.dtype != other.dtype or one.shape != other.shape or one.tobytes() != other.tobytes():
            return ""
        check = zlib.crc32(one.tobytes() if one.dtype != object else repr(one.tolist()).encode(), check)
    return f"{check:08x}"


def hooks_of(x: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """What it wants to hear when an epoch begins, and when it ends."""
    tells = hasattr(tf.keras.utils.Sequence, "on_epoch_begin")  # Keras 3.5 and later
    return x.on_epoch_begin if tells else _nothing, getattr(x, "on_epoch_end", _nothing)


def _nothing() -> None: ...


def workers_of(x: Any, words: Mapping[str, Any]) -> int:
    """Threads that make its batches; more processes are threads here, too."""
    return max(1, int(getattr(x, "workers", None) or words.get("workers") or 1))


def _batches(x: Any) -> int | None:
    """None: without end; where the script does not say how many there are it is taken for that."""
    try:
        count = x.num_batches if hasattr(type(x), "num_batches") else len(x)  # before 3.3
    except NotImplementedError:
        return None
    return None if count is None else int(count)


def element(given: Any, weigh: Any) -> tuple[Any, ...]:
    """As Keras takes it, with what its records weigh by their classes."""
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
