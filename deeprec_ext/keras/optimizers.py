"""The optimizers of a model, in Keras of any generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from deeprec_ext.tf_private import keras_classes
from deeprec_ext.tf_private.eager import has_handle

SETTINGS = ("learning_rate", "momentum", "beta_1", "beta_2", "rho", "decay")
"""Of an optimizer, what callbacks may set where it is a variable."""


def optimizers(model: Any) -> list[Any]:
    """Of the model, those that it keeps under names of its own, and the same of the models inside it."""
    models, found, seen = [model], list[Any](), set[int]()
    while models:
        one = models.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        held = _held(vars(one))
        found += [getattr(one, "optimizer", None), *held]
        models += [inner for inner in held if _is_model(inner)]
    found = [getattr(one, "inner_optimizer", one) for one in found] + found
    chosen = [one for one in found if callable(getattr(one, "apply_gradients", None)) and hasattr(one, "iterations")]
    return list({id(one): one for one in chosen}.values())


def rate_of(optimizer: Any) -> Any:
    """The variable of its learning rate, of TensorFlow; None: a schedule gives it."""
    return _variable(optimizer, "learning_rate")


def settings_of(optimizer: Any) -> list[Any]:
    """Variables of TensorFlow that callbacks of each process may set: its learning rate, momentum and the like."""
    return [one for name in SETTINGS if (one := _variable(optimizer, name)) is not None]


def _variable(optimizer: Any, name: str) -> Any:
    given = getattr(optimizer, name, None)
    inside = keras_classes.inside(given) if not isinstance(given, tf.Variable) else None
    found = inside if inside is not None else keras_classes.unwrapped(given)
    return found if isinstance(found, tf.Variable) and has_handle(found) else None


def _is_model(thing: Any) -> bool:
    return any(kind.__name__ == "Model" and "keras" in kind.__module__ for kind in type(thing).__mro__)


def _held(values: Mapping[Any, Any], deep: int = 2) -> list[Any]:
    """What is there, also in lists and dicts."""
    found: list[Any] = []
    for value in values.values():
        inside = (
            value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, (list, tuple)) else {}
        )
        found += _held(inside, deep - 1) if inside and deep else [value]
    return found
