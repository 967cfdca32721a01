"""Which callbacks run where, and what they see, in a `fit` whose records are leased.

The chief runs all of them, and the validation. Those of Keras that write files, or all weights, run in no other process.
Everybody else's, those of the script among them, run in every process: for each batch with what this process has seen, at the
end of an epoch with the figures of the job, validation included. So EarlyStopping and ReduceLROnPlateau come to the same
everywhere; where a callback of the chief stops the training at the end of an epoch, all stop, and nobody else's does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import tensorflow as tf

from deeprec_ext.keras.leased.epochs import EpochOver, Epochs
from deeprec_ext.units import few

log = logging.getLogger("deeprec_ext")

WRITERS = ("ModelCheckpoint", "TensorBoard", "CSVLogger", "BackupAndRestore", "OrbaxCheckpoint", "RemoteMonitor")
"""Callbacks that write files, or tell a server: the chief's do, others' would write over them."""


DECIDE = ("EarlyStopping", "ReduceLROnPlateau", "LearningRateScheduler")
"""Callbacks that act on the figures of an epoch, or on its number."""

SWAPS = ("SwapEMAWeights",)
"""Callbacks that write all weights, between epochs and around a validation: the chief's do. Nobody may train meanwhile."""

PROGRESS = ("ProgbarLogger",)
"""Keras's progress bar. Where nobody says how many batches an epoch has, it takes those of the first one for the number of all,
and fails where there was none: in a process that comes late, or to which others have left nothing."""


class MeasuresError(BaseException):
    """A callback measures the model in an epoch that the others have had before: it would see what the model is now, and take
    that for what it was. No `except Exception` of the script's is to catch it."""


class Told(dict):  # type: ignore[type-arg]
    """Figures that the chief has told of, which stay: a callback that measures by itself does so in each process, perhaps when
    others have trained on, and all shall decide by what the chief's has measured."""

    def __setitem__(self, name: Any, value: Any) -> None:
        if name not in self:
            super().__setitem__(name, value)

    def update(self, *args: Any, **words: Any) -> None:
        for name, value in dict(*args, **words).items():
            self[name] = value


_READ = (*WRITERS, *DECIDE, *PROGRESS, "History", "TerminateOnNaN", "BaseLogger")
"""Callbacks that leave the weights as they are, but for what `EarlyStopping` puts back when all is over."""


def write(callbacks: Any) -> bool:
    """Whether one may write into the model."""
    held = tf.nest.flatten(getattr(callbacks, "callbacks", callbacks))
    return any(one is not None and not (type(one).__name__ in _READ and is_one_of(one, _READ)) for one in held)


def has(callbacks: Any, names: Sequence[str]) -> bool:
    """Whether there is one of Keras's with such a name."""
    return any(is_one_of(one, names) for one in tf.nest.flatten(getattr(callbacks, "callbacks", callbacks)))


def of_a_worker(callbacks: Any) -> Any:
    """Without those that write files or the model, and none keeps the weights of an epoch: what a worker puts into the model is
    left out, and each would fetch all of it. A CallbackList is the script's own affair."""
    for one in tf.nest.flatten(callbacks):
        if is_one_of(one, ("EarlyStopping",)):
            one.restore_best_weights = False
    callbacks = _without(callbacks, SWAPS, "the chief's alone, it writes into the model")
    return _without(callbacks, WRITERS, "the chief's alone, it writes for all")


def in_the_job(callbacks: Any) -> Any:
    """Without BackupAndRestore, which takes back to its own epoch a process that begins again, and no other."""
    why = "left out: a process that begins again goes on where the job is, and `run --resume` with a job that has ended"
    return _without(callbacks, ("BackupAndRestore",), why)


def _without(callbacks: Any, names: Sequence[str], why: str) -> Any:
    if callbacks is None or isinstance(callbacks, tf.keras.callbacks.CallbackList):
        return callbacks
    callbacks = tf.nest.flatten(callbacks)  # as Keras does
    left_out = sorted({type(one).__name__ for one in callbacks if is_one_of(one, names)})
    if left_out:
        log.info("%s: %s", few(left_out, 4), why)
    return [one for one in callbacks if not is_one_of(one, names)]


def is_one_of(callback: Any, names: Sequence[str]) -> bool:
    """Whether it is a callback of Keras with one of these names, or one made of it."""
    return any(
        kind.__name__ in names and kind.__module__.startswith(("keras", "tf_keras")) for kind in type(callback).__mro__
    )


def keep_weights(callbacks: Any) -> bool:
    """Whether one takes all weights out of the model at its best epoch, to put them back at the end."""
    return any(map(_keeps_weights, tf.nest.flatten(getattr(callbacks, "callbacks", callbacks))))


def _keeps_weights(callback: Any) -> bool:
    return is_one_of(callback, ("EarlyStopping",)) and bool(callback.restore_best_weights)


def job_callbacks(epochs: Epochs, callbacks: Any, model: Any, progress: bool, params: Mapping[str, Any]) -> Any:
    """What Keras's loop calls instead of its own CallbackList: it passes everything on, and puts the job's epochs into the
    place of this process's.

    Args:
      epochs: of this `fit`.
      callbacks: of the script, as far as they run here; of a CallbackList, its own.
      progress: whether Keras shows its progress bar.
      params: what callbacks are told of the training: epochs, steps, verbose.
    """
    if isinstance(callbacks, tf.keras.callbacks.CallbackList):
        params = {**params, **(callbacks.params or {})}
        return _kind()(epochs, list(callbacks.callbacks), model=model, **params)
    return _kind()(epochs, callbacks, add_history=True, add_progbar=progress, model=model, **params)


@lru_cache(maxsize=1)
def _kind() -> Any:
    """Made when it is wanted: this module is imported while Keras is."""

    class Last(tf.keras.callbacks.Callback):  # type: ignore[misc]
        """Sees what the others have made of the figures of an epoch."""

        _supports_tf_logs = True  # else Keras would convert those of each batch, for it alone

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.logs = {} if logs is None else logs

    class JobCallbacks(tf.keras.callbacks.CallbackList):  # type: ignore[misc]
        def __init__(self, job: Epochs, callbacks: Any, model: Any, **words: Any) -> None:
            self._epochs, self._fitted, self._told, self._batches = job, model, False, 0
            self._left_out: set[str] = set()
            super().__init__(callbacks, model=model, **words)
            self._last = Last()
            self.callbacks.append(self._last)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._epochs.begin(epoch)
            self._batches = 0
            if self._epochs.past:
                for one in self.callbacks:
                    self._in_past(one, one.on_epoch_begin, epoch, logs or {})
            else:
                super().on_epoch_begin(epoch, logs)
            self._epochs.go_on()

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self._epochs.within_batch, self._epochs.stepped = False, False
            if self._epochs.ready():  # else there is no batch, of which nobody shall hear
                super().on_train_batch_begin(batch, logs)
            self._epochs.within_batch = True

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._epochs.within_batch = False
            if self._epochs.stepped:
                self._batches = batch + 1
                super().on_train_batch_end(batch, logs)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs = {} if logs is None else logs
            stop = self._epochs.finish(self._fitted, logs)
            if isinstance(self._fitted.stop_training, EpochOver):
                self._fitted.stop_training = False
            if self._epochs.replayed and not self._told and any(map(_keeps_weights, self.callbacks)):
                self._told = True
                log.warning(
                    "EarlyStopping(restore_best_weights=True): the weights of the best epoch so far were with the process that "
                    "ended; those that the model has now are taken for them"
                )
            unknown = [one for one in self.callbacks if is_one_of(one, PROGRESS) and one.target is None]
            for bar in unknown:
                bar.target = bar.progbar.target = max(1, self._batches)
            if self._epochs.past:
                logs, before = Told(logs), self._fitted.stop_training
                if getattr(self, "_async_train", False):  # of Keras 3, which begins with that, too
                    self._flush_futures()
                for one in self.callbacks:
                    self._in_past(one, one.on_epoch_end, epoch, logs)
                self._fitted.stop_training = before  # the chief's have decided
            else:
                super().on_epoch_end(epoch, logs)
                logs = self._last.logs
            for bar in unknown:
                bar.target = None
            self._epochs.conclude(logs, bool(self._fitted.stop_training))
            if stop:
                self._fitted.stop_training = True
            if self._fitted.stop_training or epoch + 1 >= self.params["epochs"]:  # else when the next one has begun
                self._epochs.tell()
            self._epochs.replayed = False

        def _in_past(self, callback: Any, call: Any, epoch: int, logs: dict[str, Any]) -> None:
            try:
                call(epoch, logs)
            except MeasuresError:
                name = type(callback).__name__
                if name not in self._left_out:
                    self._left_out.add(name)
                    log.info("%s measures the model by itself, and is left out of epochs that are over", name)

        def on_train_end(self, logs: Any = None) -> None:
            self._epochs.tell()  # where Keras has ended by itself
            super().on_train_end(logs)

    return JobCallbacks
