"""Keras is imported in a trainer of an elastic job: its models step on parameter servers from now on."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext import env
from deeprec_ext.errors import RefusedError
from deeprec_ext.keras import keras2, keras3, unmade
from deeprec_ext.keras.door import Door, WentBackError
from deeprec_ext.keras.files.redirected import Redirected, is_aware
from deeprec_ext.keras.files.turns import Turns, of_tensorflow
from deeprec_ext.keras.leased.fitting import Fitting
from deeprec_ext.keras.leased.roles import MeasuresError
from deeprec_ext.keras.milestones import NAME as milestones_name
from deeprec_ext.keras.milestones import Milestones
from deeprec_ext.keras.opening import Monitored
from deeprec_ext.keras.refusing import other_backend, refusal
from deeprec_ext.keras.stepping import Steps
from deeprec_ext.tf_private import eager, keras_classes
from deeprec_ext.units import few

log = logging.getLogger("deeprec_ext")

SAVES = ("save", "save_weights", "export")
"""Methods of a model that write files: the chief does."""

LOADS = ("load_weights",)

SAVES_MAX = 3
"""So often a file is begun, if the model goes back to something older meanwhile."""

GENERATIONS: dict[int, Any] = {2: keras2, 3: keras3}


def install(module: Any, trainer: Any, generation: int) -> None:
    """
    Args:
      module: with Keras's `Model` in it, one of `tf_private.imports.KERAS_MODELS` or `KERAS3_MODELS`.
      trainer: of this process (`elastic.trainer.trainer.Trainer`).
      generation: 2 or 3.
    """
    if generation == 3 and (reason := other_backend(module.backend.backend())):
        refuse(module, trainer, reason)
        return
    directory = os.path.join(run, "model") if (run := env.workdir()) else None

    def discarded(names: Sequence[str]) -> None:
        trainer.notice(
            "worker-writes", f"what a worker writes into variables of the model is left out ({few(sorted(names), 3)})",
            "none needed where the script does so in every process: what the chief writes counts", mended=True,
        )  # fmt: skip

    door = Door(
        lambda graph, examples: Monitored(trainer, graph, directory, examples),
        env.slots(), trainer.chief, GENERATIONS[generation], trainer.refused, discarded,
    )  # fmt: skip
    atexit.register(_end, door)
    unmade.begin()
    patch(module, door, trainer)


def refuse(module: Any, trainer: Any, reason: str) -> None:
    """`fit` would train on this machine alone, unnoticed."""

    def fit(original: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
        trainer.refused(reason)
        raise RefusedError(reason)

    keras_classes.wrap_model(module, "fit", fit)


def patch(module: Any, door: Door, trainer: Any) -> Callable[[], None]:
    """Replaces what makes the functions that Keras calls for each batch, and nothing of its loop. Returns what undoes what is
    not of Keras."""
    strategy = tf.distribute.get_strategy()
    directory = Path(run) if (run := env.workdir()) else None
    milestones = Milestones(directory, trainer.chief, trainer.leaving, lambda: trainer.generation)
    door.further, door.went_back = lambda: milestones.made_before, lambda: trainer.generation
    fitting = Fitting(trainer, door, milestones)
    turns = Turns(door, fitting, milestones, trainer.chief, is_aware())

    def check(model: Any) -> None:
        """Raises RefusedError."""
        if reason := refusal(model, makes, strategy):
            trainer.refused(reason)
            raise RefusedError(reason)

    def make(kind: str) -> Callable[..., Any]:
        def made(original: Callable[..., Any], model: Any, force: bool = False) -> Any:
            if kind != "train" and fitting.is_past and (fitting.has_fitted(model) or door.trains(model)):
                raise MeasuresError
            if not tf.executing_eagerly() or not (kind == "train" or door.trains(model)):
                return original(model, force)
            if kind == "train" and not fitting.is_under_way:  # train_on_batch
                check(model)
                fitting.tell_of_batches()
            name = f"{kind}_function"
            if isinstance(present := getattr(model, name), Steps) and not force:
                return present

            def otherwise() -> Any:
                original(model, True)
                made = getattr(model, name)
                setattr(model, name, steps)
                return made

            if kind == "train":
                steps = Steps(door, model, kind, lambda: fitting.epochs(model))
            else:
                steps = Steps(door, model, kind, otherwise=otherwise)
            setattr(model, name, steps)
            return steps

        return made

    def fit(original: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly():
            check(model)
            return fitting.fit(original, model, args, kwargs)
        return original(model, *args, **kwargs)

    def evaluate(original: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
        if fitting.is_past and kwargs.get("_use_cached_eval_dataset"):
            return {}  # `fit` validates an epoch of which is known what it came to
        if fitting.is_under_way:
            return measure(original, model, args, kwargs)
        return turns.result(model, lambda: measure(original, model, args, kwargs))

    def measure(original: Callable[..., Any], model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        results = original(model, *args, **kwargs)
        if trainer.chief and door.trains(model):
            trainer.report_metrics(measured(door.generation.named(model, results), kwargs), trainer.clock.global_step)
        return results

    def save_whole(original: Callable[..., Any], model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        def once() -> Any:
            with door.saving(model, args, kwargs) as (given, words):
                return original(model, *given, **words)

        for _ in range(SAVES_MAX - 1):
            try:
                return once()
            except WentBackError as error:
                log.info("%s is saved once more: %s", model.name, error)
        return once()

    def save(original: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
        path = args[0] if args else kwargs.get("filepath")
        return turns.take(model, lambda: save_whole(original, model, args, kwargs), model.name, lambda: None, path)

    def load(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with door.loading(module.Model):
            return original(*args, **kwargs)

    for kind, name in keras_classes.MAKES.items():
        keras_classes.wrap_model(module, name, make(kind))
    makes = {name: getattr(module.Model, name) for name in keras_classes.MAKES.values()}
    keras_classes.wrap_model(module, "fit", fit)
    keras_classes.wrap_model(module, "evaluate", evaluate)
    for name in SAVES:
        keras_classes.wrap_model(module, name, save)
    keras_classes.wrap_saving(module, "save_model", save)
    for name in LOADS:
        keras_classes.wrap_model(module, name, load)
    keras_classes.wrap_saving(module, "load_model", load)
    undo = ExitStack()
    if directory is not None and not is_aware():
        place = directory / "workers" / f"{env.role()}-{env.index()}"
        ours = (str(directory / milestones_name), str(directory / f".{milestones_name}"))
        of_worker, late = not trainer.chief, milestones.begun_before
        redirected = Redirected(
            place, lambda: of_worker and fitting.has_begun, lambda: late and not fitting.has_begun, ours
        )  # fmt: skip
        if of_worker or late:
            undo.callback(redirected.begin())
    of_tensorflow(turns, undo)
    undo.callback(eager.calls_by(door.windows.function))
    atexit.register(milestones.script_ends)
    undo.callback(atexit.unregister, milestones.script_ends)
    return undo.close


def measured(results: Mapping[str, Any], kwargs: Mapping[str, Any]) -> dict[str, float]:
    """Numbers of an evaluation by name, also by that of a validation where it is `fit` that asks.

    Args:
      kwargs: those of `evaluate`.
    """
    found = {name: float(value) for name, value in results.items() if np.ndim(value) == 0}
    if kwargs.get("_use_cached_eval_dataset"):
        found.update({f"val_{name}": value for name, value in found.items()})
    return found


def _end(door: Door) -> None:
    """The script has ended: the session's hooks are told, as where a MonitoredSession is left."""
    try:
        door.pass_on()
        door.close()
    except (tf.errors.OpError, RuntimeError) as error:
        log.info("the session of Keras ended with %s: %s", type(error).__name__, str(error)[:200])
