"""The learning rate of a job without PS whose steps have more records with more workers.

An update that is a multiple of the learning rate (of SGD, momentum, Adam and AdamW, with its decay) is that of another rate
when what it has changed is multiplied: so no optimizer has to be known, and a script's schedules and callbacks see their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.allreduce.ring import Array


class Rate:
    """The factor of the rate. It follows from what all members know of each sum, so it is the same everywhere.

    Args:
      follows: whether steps have more records with more workers.
    """

    def __init__(self, follows: bool = False) -> None:
        self.follows = follows
        self._now = np.ones(())

    def after(self, members: int, settings: Any) -> float:
        """Of the step that so many have summed.

        Args:
          settings: with `rate_scaling`, `rate_warmup_steps`.
        """
        wanted = 1.0
        if self.follows and settings.rate_scaling == "linear":
            wanted = float(members)
        elif self.follows and settings.rate_scaling == "root":
            wanted = math.sqrt(members)
        most = wanted / max(1, settings.rate_warmup_steps)
        now = float(self._now)
        self._now = np.array(now + min(wanted - now, most) if now < wanted else wanted)  # less is safe at once
        return float(self._now)

    def take(self) -> Array:
        return self._now

    def put(self, now: Array) -> None:
        self._now = now


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
