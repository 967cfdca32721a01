"""What is of Keras 3 alone: how its models step, and which variables they have. Its variables have TensorFlow's inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from deeprec_ext.keras import ownership, unmade
from deeprec_ext.keras.optimizers import optimizers
from deeprec_ext.tf_private import keras_classes

NUMBER = 3
APPLIES = "apply"
"""Of an optimizer: what all its steps go through."""
GIVES_LAST = True
"""Where the input ends within an execution of several steps, it gives what the last of them gave, and ends with the next."""


def step(model: Any, kind: str) -> Callable[[Any], Any]:
    """As Keras runs it on one batch."""

    @tf.autograph.experimental.do_not_convert
    def run(batch: Any) -> Any:
        return getattr(model, f"{kind}_step")(batch)

    return run


def weights(model: Any) -> list[Any]:
    """In their order, without what recurrent layers remember from batch to batch, which Keras 3 lists among them."""
    metrics = {id(one) for metric in model.metrics for one in metric.variables}
    states = {id(one) for layer in keras_classes.layers(model) for one in _remembered(layer)}
    return _unwrapped(one for one in model.weights if id(one) not in metrics and id(one) not in states)


def _remembered(layer: Any) -> list[Any]:
    states = getattr(layer, "states", None) if getattr(layer, "stateful", False) else None
    return tf.nest.flatten(states) if states is not None else []


def counters(model: Any) -> list[Any]:
    """Of batches, in this process: Keras 3 has none."""
    return []


def optimizer_variables(model: Any) -> list[Any]:
    """Where their paths do not say of which weight they are, as those of Adagrad and Ftrl before Keras 3.10, theirs does."""
    held = optimizers(model)
    found = _unwrapped(variable for one in held for variable in one.variables)
    for kept, weight in (pair for one in held for pair in keras_classes.kept_of(one)):
        if weight.path.replace("/", "_") not in kept.path and (variable := keras_classes.value(kept)) is not None:
            ownership.call(variable, f"{kept.path}/{weight.path}")
    return found


def _unwrapped(variables: Iterable[Any]) -> list[Any]:
    """Each once. TensorFlow's are called `kernel`, whichever layer they are of; their path is noted."""
    found: dict[int, Any] = {}
    for one in variables:
        variable = keras_classes.value(one)
        if variable is not None:  # it may be built later
            ownership.call(variable, one.path)
            found.setdefault(ownership.key(variable), variable)
    return list(found.values())


def filling(model: Any) -> AbstractContextManager[None]:
    """Within, what optimizers keep of tables without storage is made outside of a trace, which would fill it."""
    return unmade.building(optimizers(model), keras_classes.value, unmade.outside)


def traceable(model: Any) -> AbstractContextManager[None]:
    """Within, its steps can be traced and taken apart: XLA, which Keras 3 takes by itself, compiles what calls them."""
    return filling(model)


def steps_per_execution(model: Any) -> int:
    return int(model.steps_per_execution)


def named(model: Any, results: Any) -> dict[str, Any]:
    """The values of an evaluation by name, whichever way it gave them."""
    return results if isinstance(results, dict) else model.get_metrics_result()


def trained(model: Any) -> list[Any]:
    return _unwrapped(model.trainable_variables)


def gradients_of(
    original: Callable[..., Any], args: Sequence[Any], words: Mapping[str, Any]
) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """Of a call of `APPLIES`: the gradients with the shapes of their variables, None for a variable without one, and how it is
    called with others."""
    rest = dict(words)
    gradients = list(args[0] if args else rest.pop("grads"))
    variables = args[1] if len(args) > 1 else rest.get("trainable_variables")
    if variables is None:
        variables = keras_classes.trained_by(original)
    shapes = [tuple(one.shape) for one in variables]
    return list(zip(gradients, shapes)), lambda means: original(list(means), *args[1:], **rest)
