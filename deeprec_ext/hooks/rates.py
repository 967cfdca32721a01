"""The learning rate of a job without PS whose steps have more records with more workers.

An update that is a multiple of the learning rate (of SGD, momentum, Adam and AdamW, with its decay) is that of another rate
when what it has changed is multiplied: so no optimizer has to be known, and a script's schedules and callbacks see their own.
With PS it is done in the graph (`graph/learning_rates.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def scaled(variables: Sequence[Any], rate: Any, update: Callable[[], Any]) -> Any:
    """What `update` gives; what it has changed is `rate` times as much afterwards.

    Args:
      variables: of TensorFlow, that it changes.
      rate: a scalar tensor.
    """
    before = [tf.identity(one.read_value()) for one in variables]
    with tf.control_dependencies(before):
        done = update()
    after = [done] if isinstance(done, (tf.Operation, tf.Tensor)) else []
    with tf.control_dependencies(after):
        writes = [
            one.assign(old + tf.cast(rate, old.dtype) * (one.read_value() - old), read_value=False)
            for one, old in zip(variables, before)
        ]
    if tf.executing_eagerly() or tf.inside_function() or not after:
        return done
    with tf.control_dependencies([one for one in writes if one is not None]):
        return tf.group(done) if isinstance(done, tf.Operation) else tf.identity(done)
