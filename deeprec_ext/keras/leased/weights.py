"""`class_weight` of `fit`: what a record weighs by its label, as Keras makes it of a dataset's elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf


def by_class(
    class_weight: Mapping[int, float], generation: int, labels: Any = None, *, of_any: bool = False
) -> Callable[..., Any]:
    """A function for `dataset.map`: elements `(x, y)` or `(x, y, sample_weight)` get what their labels weigh.

    Keras 3 takes 1 for classes that are not named, in a dataset below the highest that is; records have weights of one kind.

    Args:
      labels: all there are, if they are known.
      of_any: those of classes beyond the highest that is named are 1, as Keras 3 has it of what is no dataset.

    Raises ValueError unless the classes are numbers from 0 on, and when it meets labels of several outputs.
    """
    if generation == 3:
        highest = max([*class_weight, _highest(labels)])
        class_weight = {number: class_weight.get(number, 1.0) for number in range(1 + highest)}
    if sorted(class_weight) != list(range(len(class_weight))):
        raise ValueError(
            "Expected `class_weight` to be a dict with keys from 0 to one less than the number of classes, "
            f"found {class_weight}"
        )
    table = np.asarray([class_weight[number] for number in range(len(class_weight))], np.float32)

    def weighed(x: Any, y: Any, sample_weight: Any = None) -> Any:
        if sample_weight is not None and generation == 3:
            raise ValueError("You cannot `class_weight` and `sample_weight` at the same time.")
        if tf.nest.is_nested(y):
            raise ValueError("`class_weight` is only supported for Models with a single output.")
        labels = tf.convert_to_tensor(y)
        if labels.shape.rank is not None and labels.shape.rank >= 2:
            several = labels.shape[-1] is None or labels.shape[-1] > 1
            classes = tf.argmax(labels, -1) if several else tf.cast(tf.round(tf.squeeze(labels, -1)), tf.int64)
        else:
            classes = tf.cast(tf.round(labels), tf.int64)
        named = classes < len(table) if of_any and generation == 3 else True
        weight = tf.where(named, tf.gather(table, tf.where(named, classes, 0)), 1.0)
        if sample_weight is None:
            return x, y, weight
        given = tf.convert_to_tensor(sample_weight)
        missing = (weight.shape.rank or 0) - (given.shape.rank or 0)
        given = tf.reshape(given, tf.concat([tf.shape(given), tf.ones([max(0, missing)], tf.int32)], 0))
        return x, y, given * tf.cast(weight, given.dtype)

    return weighed


def _highest(labels: Any) -> int:
    """Class; -1: nobody knows."""
    if not isinstance(labels, np.ndarray) or not np.issubdtype(labels.dtype, np.number):
        return -1
    several = labels.ndim >= 2 and labels.shape[-1] > 1
    return int(labels.shape[-1]) - 1 if several else int(np.round(labels.max()))
