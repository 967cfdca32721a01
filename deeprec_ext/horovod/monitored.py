"""Sessions of TensorFlow 1: what all have alike in them is all global variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.allreduce.ring import Array
from deeprec_ext.errors import UsageError
from deeprec_ext.horovod.world import WORLD, Shared

v1 = tf.compat.v1
_HERE = v1.RunOptions(inter_op_thread_pool=-1)
"""A run within a run: in the thread that asks, for there may be no other on a machine with one core."""


class OfSession(Shared):
    """`Shared`, of the variables that the default graph has now; once the session has ended, of what they were then."""

    def __init__(self) -> None:
        super().__init__()
        self.session: Any = None
        self._ended: list[Array] | None = None
        every = v1.global_variables()
        self._reads = [one.read_value() for one in every]
        self._values = [v1.placeholder(one.dtype.base_dtype, one.shape) for one in every]
        self._writes = [v1.assign(one, value).op for one, value in zip(every, self._values)]

    def end(self) -> None:
        """The session is closed in a moment; others may ask for its variables until there is another one."""
        self._ended = self.take()
        self.session = None

    def take(self) -> list[Array]:
        if self._ended is not None:
            return list(self._ended)
        return [np.asarray(one, order="C") for one in self.session.run(self._reads, options=_HERE)]

    def put(self, arrays: Sequence[Array]) -> None:
        if len(arrays) != len(self._values) or not all(
            value.shape.is_compatible_with(one.shape) for value, one in zip(self._values, arrays)
        ):
            raise UsageError(f"the graph here has {len(self._values)} variables, not the {len(arrays)} of the others")
        if self._ended is not None:
            self._ended = [np.array(one, order="C") for one in arrays]
            return
        self.session.run(self._writes, dict(zip(self._values, arrays)), options=_HERE)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """A session begins with the variables of `root_rank`; who comes later, with those that the others have by then."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        self._root_rank = root_rank
        self._shared: Any = None

    def begin(self) -> None:
        self._shared = OfSession()

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._shared.session, WORLD.shared = session, self._shared
        WORLD.hand_model(self._root_rank)

    def end(self, session: Any) -> None:
        self._shared.end()
        WORLD.rest()
