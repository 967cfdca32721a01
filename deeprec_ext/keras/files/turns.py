"""Who writes files of the model: the chief. In other processes whatever saves it does nothing but wait until the chief has.

Methods and functions of Keras, and those of TensorFlow that take a model: `tf.saved_model.save`, `tf.train.Checkpoint`,
`tf.train.CheckpointManager`. What the script then reads is the chief's. What is saved before the first `fit` is, too, though
nothing of it is on a PS yet: else all processes would write it at once. And between two calls of `fit` the chief evaluates for
all, for a script decides by that.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Protocol

import tensorflow as tf

from deeprec_ext.keras.leased.fitting import Fitting
from deeprec_ext.keras.milestones import Milestones
from deeprec_ext.tf_private import eager
from deeprec_ext.tf_private.wrapping import wrapper

log = logging.getLogger("deeprec_ext")

PARTS_MAX = 100_000
"""Of something that is saved it is looked at so many parts whether the job trains one."""


class Trained(Protocol):
    """What the job trains."""

    def trains(self, model: Any) -> bool:
        """Whether some of the model is of it."""

    def has(self, variable: Any) -> bool:
        """Whether it is of it."""


class Turns:
    """Of one process.

    Args:
      aware: the script tells its process from others.
    """

    def __init__(self, door: Trained, fitting: Fitting, milestones: Milestones, chief: bool, aware: bool) -> None:
        self._door, self._fitting, self._milestones, self._chief = door, fitting, milestones, chief
        self._aware = aware
        self._saving = threading.local()

    def take(self, thing: Any, save: Callable[[], Any], what: str, instead: Callable[[], Any], path: Any = None) -> Any:
        """What `save` gives, where this process saves.

        Args:
          thing: that is saved: a model, or what has one.
          what: it is, in words.
          instead: gives what a script gets that need not save.
          path: under which it is saved; None: nobody knows.
        """
        if getattr(self._saving, "here", False):  # what saves calls something else that saves
            return save()
        of_job = self.is_of_job(thing)
        if of_job and self._fitting.is_past:
            return instead()  # what was saved then is there, or is lost
        # Else the epochs keep the processes together, or each is where it is in a loop of its own.
        waited_for = of_job and not (self._fitting.is_under_way or self._fitting.by_batches)
        name = f"{what} {_path(path)}"
        if self._chief or not of_job:
            there = waited_for and self._milestones.made_before and os.path.exists(_path(path))
            self._saving.here = True
            try:
                return instead() if there else save()
            finally:
                self._saving.here = False
                if waited_for:
                    self._milestones.saved(name)  # also in vain: others would wait, and the script may go on without it
        log.info("%s is not saved here: all processes would write the same file, and the chief does", what)
        if waited_for:
            self._milestones.wait_saved(name)
        return instead()

    def result(self, model: Any, measure: Callable[[], Any]) -> Any:
        """What `evaluate` gives."""
        if self._aware or not self._fitting.ended_together or not self._trains(model):
            return measure()
        if self._chief:
            return self._milestones.measured(measure, self._fitting.trained_last)
        return self._milestones.result(measure)

    def is_of_job(self, thing: Any) -> bool:
        """Whether there is something in it that the job trains, or, before the first `fit`, that it could."""
        early = not (self._fitting.has_begun or self._aware)
        seen: set[int] = set()
        left = [thing]
        while left and len(seen) < PARTS_MAX:
            one = left.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            if isinstance(one, tf.keras.Model) and (early or self._trains(one)):
                return True
            if isinstance(one, tf.Variable):
                if eager.has_handle(one) and self._door.has(one):
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
        path = args[0] if args else words.get("export_dir")
        return turns.take(obj, lambda: original(obj, *args, **words), "a SavedModel", lambda: None, path)

    def write(original: Callable[..., Any], self: Any, file_prefix: Any, *args: Any, **words: Any) -> Any:
        def instead() -> str:
            return os.fspath(file_prefix)

        return turns.take(
            self, lambda: original(self, file_prefix, *args, **words), "a checkpoint", instead, file_prefix
        )

    def save(original: Callable[..., Any], self: Any, file_prefix: Any, *args: Any, **words: Any) -> Any:
        def instead() -> str:
            return f"{os.fspath(file_prefix)}-{int(self.save_counter.assign_add(1))}"

        return turns.take(
            self, lambda: original(self, file_prefix, *args, **words), "a checkpoint", instead, file_prefix
        )

    def manage(original: Callable[..., Any], self: Any, *args: Any, **words: Any) -> Any:
        def instead() -> str | None:
            self.checkpoint.save_counter.assign_add(1)
            return tf.train.latest_checkpoint(self.directory)

        kept = self.directory  # which has others in it
        return turns.take(self.checkpoint, lambda: original(self, *args, **words), f"a checkpoint in {kept}", instead)

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


def _path(path: Any) -> str:
    """Empty: it is none."""
    try:
        return os.fsdecode(path)
    except TypeError:
        return ""


def _of_chief(turns: Turns, own: property, found: Callable[[str], Any]) -> Callable[[Any], Any]:
    """What a CheckpointManager tells of the files: in other processes, what the chief has left in the directory."""

    def get(manager: Any) -> Any:
        assert own.fget is not None
        return found(manager.directory) if turns.reads_of_chief(manager.checkpoint) else own.fget(manager)

    return get


def _kept(directory: str) -> list[str]:
    state = tf.train.get_checkpoint_state(directory)
    return list(state.all_model_checkpoint_paths) if state is not None else []
