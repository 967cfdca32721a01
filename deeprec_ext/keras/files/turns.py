"""Who writes files of the model: the chief. In other processes whatever saves it does nothing but wait until the chief has.

Methods and functions of Keras, and those of TensorFlow that take a model: `tf.saved_model.save`, `tf.train.Checkpoint`,
`tf.train.CheckpointManager`. What the script then reads is the chief's.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import tensorflow as tf

from deeprec_ext.keras import ownership
from deeprec_ext.keras.door import Door
from deeprec_ext.keras.leased.fitting import Fitting
from deeprec_ext.keras.milestones import Milestones
from deeprec_ext.tf_private import eager
from deeprec_ext.tf_private.wrapping import wrapper

log = logging.getLogger("deeprec_ext")

PARTS_MAX = 100_000
"""Of something that is saved it is looked at so many parts whether the job trains one."""


class Turns:
    """Of one process."""

    def __init__(self, door: Door, fitting: Fitting, milestones: Milestones, chief: bool) -> None:
        self._door, self._fitting, self._milestones, self._chief = door, fitting, milestones, chief
        self._saving = threading.local()

    def take(self, thing: Any, save: Callable[[], Any], what: str, instead: Callable[[], Any]) -> Any:
        """What `save` gives, where this process saves.

        Args:
          thing: that is saved: a model, or what has one.
          what: it is, in words.
          instead: gives what a script gets that need not save.
        """
        if getattr(self._saving, "here", False):  # what saves calls something else that saves
            return save()
        of_job = self.is_of_job(thing)
        if of_job and self._fitting.is_past:
            return instead()  # what was saved then is there, or is lost
        waited_for = of_job and not self._fitting.is_under_way  # else the epochs keep the processes together
        if self._chief or not of_job:
            self._saving.here = True
            try:
                return save()
            finally:
                self._saving.here = False
                if waited_for:
                    self._milestones.made()  # also in vain: others would wait, and the script may go on without it
        log.info("%s is not saved here: all processes would write the same file, and the chief does", what)
        if waited_for:
            self._milestones.wait()
        return instead()

    def is_of_job(self, thing: Any) -> bool:
        """Whether there is something in it that the job trains."""
        seen: set[int] = set()
        left = [thing]
        while left and len(seen) < PARTS_MAX:
            one = left.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            if isinstance(one, tf.keras.Model) and self._trains(one):
                return True
            if isinstance(one, tf.Variable):
                if eager.has_handle(one) and ownership.key(one) in self._door.steps.shared:
                    return True
            elif isinstance(one, getattr(tf.keras, "Variable", ())):  # Keras 3's, around TensorFlow's
                left.append(getattr(one, "value", None))
            elif isinstance(one, Mapping):
                left.extend(one.values())
            elif isinstance(one, (list, tuple)):
                left.extend(one)
            elif isinstance(one, (tf.Module, tf.__internal__.tracking.AutoTrackable)):
                left.extend(vars(one).values())
        return False

    def reads_of_chief(self, thing: Any) -> bool:
        """Whether files of it are another process's."""
        return not self._chief and self.is_of_job(thing)

    def _trains(self, model: Any) -> bool:
        return self._fitting.has_fitted(model) or (model.built and self._door.trains(model))


def of_tensorflow(turns: Turns, undo: ExitStack) -> None:
    """TensorFlow's functions that save a model among other things, until `undo` is left."""

    def save_model(original: Callable[..., Any], obj: Any, *args: Any, **words: Any) -> Any:
        return turns.take(obj, lambda: original(obj, *args, **words), "a SavedModel", lambda: None)

    def write(original: Callable[..., Any], self: Any, file_prefix: Any, *args: Any, **words: Any) -> Any:
        def instead() -> str:
            return os.fspath(file_prefix)

        return turns.take(self, lambda: original(self, file_prefix, *args, **words), "a checkpoint", instead)

    def save(original: Callable[..., Any], self: Any, file_prefix: Any, *args: Any, **words: Any) -> Any:
        def instead() -> str:
            return f"{os.fspath(file_prefix)}-{int(self.save_counter.assign_add(1))}"

        return turns.take(self, lambda: original(self, file_prefix, *args, **words), "a checkpoint", instead)

    def manage(original: Callable[..., Any], self: Any, *args: Any, **words: Any) -> Any:
        def instead() -> str | None:
            self.checkpoint.save_counter.assign_add(1)
            return tf.train.latest_checkpoint(self.directory)

        return turns.take(self.checkpoint, lambda: original(self, *args, **words), "a checkpoint", instead)

    manager = tf.train.CheckpointManager
    for owner, name, around in (
        (tf.saved_model, "save", save_model), (tf.train.Checkpoint, "write", write), (tf.train.Checkpoint, "save", save),
        (manager, "save", manage),
    ):  # fmt: skip
        before = getattr(owner, name)
        setattr(owner, name, wrapper(before, around))
        undo.callback(setattr, owner, name, before)
    for name, found in (("latest_checkpoint", tf.train.latest_checkpoint), ("checkpoints", _kept)):
        own = getattr(manager, name)
        setattr(manager, name, property(_of_chief(turns, own, found)))
        undo.callback(setattr, manager, name, own)


def _of_chief(turns: Turns, own: property, found: Callable[[str], Any]) -> Callable[[Any], Any]:
    """What a CheckpointManager tells of the files: in other processes, what the chief has left in the directory."""

    def get(manager: Any) -> Any:
        assert own.fget is not None
        return found(manager.directory) if turns.reads_of_chief(manager.checkpoint) else own.fget(manager)

    return get


def _kept(directory: str) -> list[str]:
    state = tf.train.get_checkpoint_state(directory)
    return list(state.all_model_checkpoint_paths) if state is not None else []
