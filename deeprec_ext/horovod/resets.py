"""`hvd.elastic`: a function that all processes run together, and begin again with one state where processes come or go."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from deeprec_ext.horovod.committed import KerasState, ObjectState, State, TensorFlowKerasState, TensorFlowState
from deeprec_ext.horovod.world import WORLD, HorovodInternalError, HostsUpdatedInterrupt

T = TypeVar("T")


def run(func: Callable[..., T]) -> Callable[..., T]:
    """`func(state, ...)` begins with the state of the others. Where processes come or go it is called again: with the state of
    now where `state.commit` or `check_host_updates` has heard of it, with that of the last commit where one was lost."""

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> T:
        WORLD.init()
        before, size = WORLD.resets, len(WORLD.addresses)
        WORLD.resets, anew = True, False
        try:
            while True:
                try:
                    if anew:
                        WORLD.begin_anew()
                        state.on_reset()
                    elif WORLD.enter() and len(WORLD.addresses) != size:  # others have come with it
                        state.on_reset()
                    state.synchronise()
                    return func(state, *args, **kwargs)
                except HorovodInternalError:
                    state.restore()
                except HostsUpdatedInterrupt:
                    pass
                except tf.errors.OpError:
                    failure, WORLD.failure = WORLD.failure, None
                    if not isinstance(failure, HorovodInternalError):
                        raise
                    state.restore()
                anew = True
        finally:
            WORLD.resets = before

    return wrapper


class CommitStateCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Commits after so many batches, and after each epoch."""

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__()
        self._state, self._every = state, batches_per_commit
        self._left = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        self._left = self._every

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._left -= 1
        if self._left == 0:
            self._left = self._every
            self._state.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._state.commit()


class UpdateBatchStateCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """`state.batch` is the last batch of the epoch, 0 between epochs."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self._state = state

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._state.batch = 0


class UpdateEpochStateCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """`state.epoch` is how many epochs are over, also where `fit` counts them from 0 again."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self._state = state
        self._first = state.epoch

    def on_train_begin(self, logs: Any = None) -> None:
        self._first = self._state.epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._state.epoch = self._first + epoch + 1


__all__ = [
    "CommitStateCallback", "HorovodInternalError", "HostsUpdatedInterrupt", "KerasState", "ObjectState", "State",
    "TensorFlowKerasState", "TensorFlowState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run",
]  # fmt: skip
