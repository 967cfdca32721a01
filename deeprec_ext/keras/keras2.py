"""What is of Keras 2 alone: how its models step, which variables they have, and what keeps a step from being traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from deeprec_ext.keras import ownership
from deeprec_ext.tf_private import keras_classes
from deeprec_ext.tf_private.eager import not_converted
from deeprec_ext.tf_private.keras_classes import unwrapped


def step(model: Any, kind: str) -> Callable[[Any], Any]:
    """As Keras runs it on one batch."""

    @not_converted
    def run(batch: Any) -> Any:
        outputs = getattr(model, f"{kind}_step")(batch)
        tensors = (one for one in tf.nest.flatten(outputs, expand_composites=True) if tf.is_tensor(one))
        first = next((one for one in tensors if not isinstance(one, tf.Variable)), None)
        with tf.control_dependencies([first] if first is not None else []):  # only a step that succeeds counts
            keras_classes.counter(model, kind).assign_add(1)
        return outputs

    return run


def weights(model: Any) -> list[Any]:
    """In their order; without those of metrics, which Keras lists among them."""
    metrics = {ownership.key(unwrapped(one)) for metric in model.metrics for one in metric.variables}
    found = (unwrapped(one) for one in model.weights)
    return [one for one in found if ownership.key(one) not in metrics and not ownership.is_metric(one)]


def counters(model: Any) -> list[Any]:
    """Of batches, in this process."""
    return [keras_classes.counter(model, kind) for kind in keras_classes.COUNTERS]


def optimizers(model: Any) -> list[Any]:
    """Of the model, and those that it keeps under names of its own."""
    found = [getattr(model, "optimizer", None), *_held(vars(model))]
    found = [getattr(one, "inner_optimizer", one) for one in found] + found
    chosen = [one for one in found if callable(getattr(one, "apply_gradients", None)) and hasattr(one, "iterations")]
    return list({id(one): one for one in chosen}.values())


def _held(values: Mapping[Any, Any], deep: int = 2) -> list[Any]:
    """What is there, also in lists and dicts."""
    found: list[Any] = []
    for value in values.values():
        inside = (
            value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, (list, tuple)) else {}
        )
        found += _held(inside, deep - 1) if inside and deep else [value]
    return found


def optimizer_variables(model: Any) -> list[Any]:
    found: list[Any] = []
    for one in optimizers(model):
        variables = one.variables() if callable(one.variables) else one.variables
        found += [unwrapped(variable) for variable in (one.iterations, *variables)]
    return list({ownership.key(one): one for one in found}.values())


def traceable(model: Any) -> AbstractContextManager[None]:
    """Within, its steps can be traced and taken apart."""
    return keras_classes.without_xla(model, optimizers(model))


def steps_per_execution(model: Any) -> int:
    return keras_classes.steps_per_execution(model)


def refusal(model: Any, makes: Mapping[str, Any], default_strategy: Any) -> str:
    """Why `fit` cannot be elastic, and what to do; empty: it can.

    Args:
      makes: name -> method of Keras's Model.
      default_strategy: of `tf.distribute`, where no script has chosen one.
    """
    if model.run_eagerly:
        return (
            "run_eagerly=True runs each op by itself in this process, and no parameter server sees it: leave it out of "
            "compile(), and do not call tf.config.run_functions_eagerly(True)"
        )
    if model.distribute_strategy is not default_strategy:
        return (
            f"the model was made in the scope of a {type(model.distribute_strategy).__name__}: make it without tf.distribute, "
            "the job's processes are what distributes it"
        )
    for name, method in makes.items():
        if getattr(type(model), name) is not method:
            return (
                f"{type(model).__name__} overrides {name}, by which Keras runs a step, so that nobody else can: override "
                "train_step, test_step or predict_step instead"
            )
    return ""
