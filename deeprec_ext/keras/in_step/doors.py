"""Keras is imported in a worker of a job without PS: its models train in step with those of the others from now on."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import tensorflow as tf

from deeprec_ext import env
from deeprec_ext.allreduce.kept import Kept
from deeprec_ext.errors import RefusedError
from deeprec_ext.keras import keras2, keras3
from deeprec_ext.keras.entry import SAVES, measured
from deeprec_ext.keras.files.redirected import Redirected, is_aware
from deeprec_ext.keras.files.turns import Turns, of_tensorflow
from deeprec_ext.keras.in_step.home import Home
from deeprec_ext.keras.in_step.loops import Loops
from deeprec_ext.keras.in_step.model import InStep
from deeprec_ext.keras.in_step.voting import EpochsInStep
from deeprec_ext.keras.leased.fitting import Fitting
from deeprec_ext.keras.leased.roles import MeasuresError
from deeprec_ext.keras.milestones import NAME as milestones_name
from deeprec_ext.keras.milestones import Milestones
from deeprec_ext.keras.refusing import is_of_this_keras, other_backend
from deeprec_ext.keras.stepping import Steps
from deeprec_ext.tf_private import keras_classes
from deeprec_ext.tf_private.wrapping import seen

GENERATIONS: dict[int, Any] = {2: keras2, 3: keras3}

NO_DOOR = (
    "{} would train a model of its own in each process: call fit with arrays, a tf.data pipeline over files, a Sequence or "
    "steps_per_epoch, or write the loop yourself, with deeprec_ext.allreduce.join(state) and sum(gradients) in each step"
)


def keras_imported(module: Any) -> None:
    """One of `imports.KERAS_MODELS`."""
    install(module, 2)


def keras3_imported(module: Any) -> None:
    """`imports.KERAS3_MODELS`."""
    install(module, 3)


def install(module: Any, generation: int) -> None:
    """
    Args:
      module: with Keras's `Model` in it, one of `tf_private.imports.KERAS_MODELS` or `KERAS3_MODELS`.
      generation: 2 or 3.
    """
    if seen(module):
        return
    home = Home()

    def refuse(reason: str) -> None:
        home.refused(reason)
        raise RefusedError(reason)

    if generation == 3 and (reason := other_backend(module.backend.backend())):
        for name in ("fit", "train_on_batch"):
            keras_classes.wrap_model(module, name, lambda *args, **words: refuse(reason))
        return
    directory = Path(run) if (run := env.workdir()) else None
    kept = Kept(
        directory / "model" if directory is not None else None, lambda: home.inputs.position(newest=True),
        lambda: home.member.begun,
    )  # fmt: skip
    door = InStep(home, GENERATIONS[generation], kept)
    milestones = Milestones(directory, home.chief, home.leaving, lambda: 0)
    of_job: Any = home
    fitting = Fitting(of_job, door, milestones, EpochsInStep, alone=False)
    turns = Turns(door, fitting, milestones, home.chief, is_aware())
    _patch(module, door, home, fitting, turns, refuse)
    atexit.register(milestones.script_ends)
    _redirect(directory, home, fitting, milestones)
    of_tensorflow(turns, ExitStack())


def _patch(
    module: Any, door: InStep, home: Home, fitting: Fitting, turns: Turns, refuse: Callable[[str], None]
) -> None:
    strategy = tf.distribute.get_strategy()
    loops = Loops(home, door, lambda: fitting.is_under_way, fitting.begin_batches)
    runs: Any = loops

    def check(model: Any, what: str) -> None:
        if not tf.executing_eagerly():
            refuse(NO_DOOR.format(f"{what} in a graph of TensorFlow 1"))
        if model.distribute_strategy is not strategy:
            refuse(
                f"the model was made in the scope of a {type(model.distribute_strategy).__name__}: make it without "
                "tf.distribute, the job's processes are what distributes it"
            )
        if not is_of_this_keras(model):
            refuse(
                f"{type(model).__name__} is a model of another Keras than tf.keras is here: run the script with "
                "TF_USE_LEGACY_KERAS=1, which makes them the same"
            )

    def make(original: Callable[..., Any], model: Any, force: bool = False) -> Any:
        if home.sums_by_itself:
            return original(model, force)
        if not fitting.is_under_way:  # train_on_batch
            check(model, "train_on_batch")
            if model.built and not door.generation.trained(model):
                return original(model, force)  # as in plain Keras, which says so
        if why := fitting.alone:  # Keras may have a word to say before it trains
            model.train_function = lambda iterator: refuse(NO_DOOR.format(f"fit ({why})"))
            return model.train_function
        present = model.train_function
        if not isinstance(present, Steps) or force:
            model.train_function = Steps(runs, model, "train", lambda: fitting.epochs(model))
        return model.train_function

    def make_other(original: Callable[..., Any], model: Any, force: bool = False) -> Any:
        if fitting.is_past and fitting.has_fitted(model):
            raise MeasuresError
        return original(model, force)

    def fit(original: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
        if home.sums_by_itself:
            one = getattr(model, "optimizer", None)
            with keras_classes.without_xla(model, ()) if getattr(one, "sums_by_itself", False) else nullcontext():
                return original(model, *args, **kwargs)
        check(model, "fit")
        loops.end()
        result = None
        _ = home.member  # before records are read
        try:
            result = fitting.fit(original, model, args, kwargs)
        finally:
            running = fitting.last
            if running is None or not running.ended_together:  # others would wait for its next sum
                home.member.pause()
        if home.leaving.is_set():
            home.member.leave()
        return result

    def evaluate(original: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
        if fitting.is_past and kwargs.get("_use_cached_eval_dataset"):
            return {}  # `fit` validates an epoch of which is known what it came to

        def measure() -> Any:
            results = original(model, *args, **kwargs)
            if home.chief and door.trains(model):
                found = measured(door.generation.named(model, results), kwargs)
                home.report_metrics(found)
            return results

        return measure() if fitting.is_under_way else turns.result(model, measure)

    def save(original: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
        path = args[0] if args else kwargs.get("filepath")
        return turns.take(model, lambda: original(model, *args, **kwargs), model.name, lambda: None, path)

    for kind, name in keras_classes.MAKES.items():
        keras_classes.wrap_model(module, name, make if kind == "train" else make_other)
    keras_classes.wrap_model(module, "fit", fit)
    keras_classes.wrap_model(module, "evaluate", evaluate)
    for name in SAVES:
        keras_classes.wrap_model(module, name, save)
    keras_classes.wrap_saving(module, "save_model", save)


def _redirect(directory: Path | None, home: Home, fitting: Fitting, milestones: Milestones) -> None:
    """Files that the script of a worker writes, as with PS."""
    if directory is None or is_aware():
        return
    of_worker, late = not home.chief, milestones.begun_before
    if of_worker or late:
        ours = (str(directory / milestones_name), str(directory / f".{milestones_name}"))
        place = directory / "workers" / f"{env.role()}-{env.index()}"
        Redirected(
            place, lambda: of_worker and fitting.has_begun, lambda: late and not fitting.has_begun, ours
        ).begin()  # fmt: skip
