"""Horovod's callbacks for Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.horovod.committed import build, variables_of
from deeprec_ext.horovod.reducing import Average, Compression, reduce_arrays, reference
from deeprec_ext.horovod.world import WORLD
from deeprec_ext.keras.optimizers import optimizers, rate_of, settings_of


class BroadcastGlobalVariablesCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """After the first batch all have what `root_rank` has, of model and optimizer. Who comes later gets it from the others."""

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = ()) -> None:
        super().__init__()
        self._root_rank = root_rank
        given = local_variables if isinstance(local_variables, (list, tuple)) else [local_variables]
        self._local = {reference(one) for one in given if one is not None}
        self._done = False

    def register_local_var(self, var: Any) -> None:
        self._local.add(reference(var))

    def _variables(self) -> list[Any]:
        if self.model.optimizer is not None and self.model.built:
            build(self.model.optimizer, self.model.trainable_variables)
        return [one for one in variables_of(self.model, self.model.optimizer) if reference(one) not in self._local]

    def on_train_begin(self, logs: Any = None) -> None:
        WORLD.shared.variables = self._variables
        WORLD.shared.settings = lambda: [one for optimizer in optimizers(self.model) for one in settings_of(optimizer)]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self._done:
            WORLD.hand_model(self._root_rank)
        self._done = True

    def on_train_end(self, logs: Any = None) -> None:
        WORLD.rest()


class MetricAverageCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """The logs of an epoch are the mean of all; before callbacks that look at them."""

    def __init__(self, device: str = "") -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        names = sorted(logs or {})
        if names:
            values = [np.array(float(logs[name])) for name in names]
            for name, value in zip(names, reduce_arrays(values, Average, Compression.none, "metrics", " ".join(names))):
                logs[name] = float(value)


class LearningRateScheduleCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """The learning rate is `initial_lr` times a multiplier, in the epochs from `start_epoch` until before `end_epoch`.

    Args:
      multiplier: a number, whose power of the epochs since `start_epoch` it is; or a function of the epoch.
      staircase: once an epoch; else with each batch, of an epoch that is no whole number.
      momentum_correction: the momentum of the batch follows a rate that changes (Goyal et al., "Accurate, large minibatch
        SGD", 2017).
    """

    def __init__(
        self, initial_lr: float, multiplier: float | Callable[[float], float], start_epoch: int = 0,
        end_epoch: int | None = None, staircase: bool = True, momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is needed: the learning rate that the multiplier is of")
        self._rate, self._start, self._end = initial_lr, start_epoch, end_epoch
        self._staircase, self._corrects, self.steps_per_epoch = staircase, momentum_correction, steps_per_epoch
        self._multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier ** (epoch - start_epoch)
        self._epoch = 0
        self._momentum: float | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        if not self._staircase and not self.steps_per_epoch:
            self.steps_per_epoch = (self.params or {}).get("steps")
            if not self.steps_per_epoch:
                raise ValueError(
                    f"{type(self).__name__} needs steps_per_epoch, for nobody knows how many steps an epoch has"
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._epoch < self._start or (self._end is not None and self._epoch >= self._end):
            return
        if not self._staircase:
            self._set(self._epoch + batch / (self.steps_per_epoch or 1))
        elif batch == 0:
            self._set(self._epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._momentum is not None:
            _assign(self.model.optimizer, "momentum", self._momentum)
            self._momentum = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["lr"] = self._present

    @property
    def _present(self) -> float:
        return float(np.asarray(self.model.optimizer.learning_rate))

    def _set(self, epoch: float) -> None:
        before, now = self._present, self._rate * self._multiplier(epoch)
        variable = rate_of(self.model.optimizer)
        if variable is None:
            raise ValueError(
                f"{type(self).__name__} sets the learning rate, and the optimizer has a schedule: leave one out"
            )
        variable.assign(now)
        momentum = getattr(self.model.optimizer, "momentum", None)
        if self._corrects and hasattr(momentum, "assign") and before:  # a number is part of the compiled step
            self._momentum = float(np.asarray(momentum))
            _assign(self.model.optimizer, "momentum", self._momentum * now / before)


def _assign(optimizer: Any, name: str, value: float) -> None:
    getattr(optimizer, name).assign(value)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """From `initial_lr / size()` to `initial_lr`, batch by batch in the first epochs, with the size that there is then."""

    def __init__(
        self, initial_lr: float, warmup_epochs: int = 5, momentum_correction: bool = True,
        steps_per_epoch: int | None = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        def multiplier(epoch: float) -> float:
            size = len(WORLD.addresses)
            epoch += 1 / (self.steps_per_epoch or 1)  # whole at the end of each epoch
            return (epoch * (size - 1) / warmup_epochs + 1) / size

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self._verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self._verbose and self._end is not None and epoch == self._end - 1 and WORLD.rank == 0:
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {self._present:g}.")


class BestModelCheckpoint(tf.keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """`ModelCheckpoint` of the best; its `filepath` is set later."""

    def __init__(
        self, monitor: str = "val_loss", verbose: int = 0, save_weights_only: bool = False, mode: str = "auto",
        save_freq: str = "epoch",
    ) -> None:  # fmt: skip
        end = ".weights.h5" if save_weights_only else ".keras"
        super().__init__(f"best{end}", monitor, verbose, True, save_weights_only, mode, save_freq)
