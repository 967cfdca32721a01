"""`class_weight` of `fit`: what a record weighs by its label, as Keras makes it of a dataset's elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf


def by_class(class_weight: Mapping[int, float]) -> Callable[..., Any]:
    """A function for `dataset.map`: elements `(x, y)` or `(x, y, sample_weight)` get what their labels weigh.

    Raises ValueError unless the classes are numbers from 0 on, and when it meets labels of several outputs.
    """
    if sorted(class_weight) != list(range(len(class_weight))):
        raise ValueError(
            "Expected `class_weight` to be a dict with keys from 0 to one less than the number of classes, "
            f"found {class_weight}"
        )
    table = np.asarray([class_weight[number] for number in range(len(class_weight))], np.float32)

    def weighed(x: Any, y: Any, sample_weight: Any = None) -> Any:
        if tf.nest.is_nested(y):
            raise ValueError("`class_weight` is only supported for Models with a single output.")
        labels = tf.convert_to_tensor(y)
        if labels.shape.rank is not None and labels.shape.rank >= 2:
            several = labels.shape[-1] is None or labels.shape[-1] > 1
            classes = tf.argmax(labels, -1) if several else tf.cast(tf.round(tf.squeeze(labels, -1)), tf.int64)
        else:
            classes = tf.cast(tf.round(labels), tf.int64)
        weight = tf.gather(table, classes)
        if sample_weight is None:
            return x, y, weight
        given = tf.convert_to_tensor(sample_weight)
        missing = (weight.shape.rank or 0) - (given.shape.rank or 0)
        given = tf.reshape(given, tf.concat([tf.shape(given), tf.ones([max(0, missing)], tf.int32)], 0))
        return x, y, given * tf.cast(weight, given.dtype)

    return weighed
