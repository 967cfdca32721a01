"""Who writes files of the model: the chief. In other processes whatever saves it does nothing but wait until the chief has.

Methods and functions of Keras, and those of TensorFlow that take a model: `tf.saved_model.save`, `tf.train.Checkpoint`,
`tf.train.CheckpointManager`. What the script then reads is the chief's.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import tensorflow as tf

from deeprec_ext.keras.door import Door
from deeprec_ext.keras.leased.fitting import Fitting
from deeprec_ext.keras.milestones import Milestones
from deeprec_ext.tf_private.wrapping import wrapper

log = logging.getLogger("deeprec_ext")


class Turns:
    """Of one process."""

    def __init__(self, door: Door, fitting: Fitting, milestones: Milestones, chief: bool) -> None:
        self._door, self._fitting, self._milestones, self._chief = door, fitting, milestones, chief
        self._saving = threading.local()

    def take(self, models: Iterable[Any], save: Callable[[], Any], what: str, instead: Callable[[], Any]) -> Any:
        """What `save` gives, where this process saves.

        Args:
          models: that are in what is saved.
          what: it is, in words.
          instead: gives what a script gets that need not save.
        """
        if getattr(self._saving, "here", False):  # what saves calls something else that saves
            return save()
        of_job = any(self._door.trains(one) or self._fitting.has_fitted(one) for one in models)
        if of_job and self._fitting.is_past:
            return instead()  # what was saved then is there, or is lost
        waited_for = of_job and not self._fitting.is_under_way  # else the epochs keep the processes together
        if self._chief or not of_job:
            self._saving.here = True
            try:
                result = save()
            finally:
                self._saving.here = False
            if waited_for:
                self._milestones.made()
            return result
        log.info("%s is not saved here: all processes would write the same file, and the chief does", what)
        if waited_for:
            self._milestones.wait()
        return instead()


def of_tensorflow(turns: Turns, undo: ExitStack) -> None:
    """TensorFlow's functions that save a model among other things, until `undo` is left."""

    def save_model(original: Callable[..., Any], thing: Any, *args: Any, **words: Any) -> Any:
        return turns.take(_models(thing), lambda: original(thing, *args, **words), "a SavedModel", lambda: None)

    def write(original: Callable[..., Any], one: Any, prefix: Any, *args: Any, **words: Any) -> Any:
        def instead() -> str:
            return os.fspath(prefix)

        return turns.take(_models(one), lambda: original(one, prefix, *args, **words), "a checkpoint", instead)

    def save(original: Callable[..., Any], one: Any, prefix: Any, *args: Any, **words: Any) -> Any:
        def instead() -> str:
            return f"{os.fspath(prefix)}-{int(one.save_counter.assign_add(1))}"

        return turns.take(_models(one), lambda: original(one, prefix, *args, **words), "a checkpoint", instead)

    def manage(original: Callable[..., Any], one: Any, *args: Any, **words: Any) -> Any:
        def instead() -> str | None:
            return tf.train.latest_checkpoint(one.directory)

        return turns.take(_models(one.checkpoint), lambda: original(one, *args, **words), "a checkpoint", instead)

    for owner, name, around in (
        (tf.saved_model, "save", save_model), (tf.train.Checkpoint, "write", write), (tf.train.Checkpoint, "save", save),
        (tf.train.CheckpointManager, "save", manage),
    ):  # fmt: skip
        before = getattr(owner, name)
        setattr(owner, name, wrapper(before, around))
        undo.callback(setattr, owner, name, before)


def _models(thing: Any) -> list[Any]:
    """What it is, or has, of Keras's models."""
    return [one for one in (thing, *vars(thing).values()) if isinstance(one, tf.keras.Model)]
