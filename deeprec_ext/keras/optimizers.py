"""The optimizers of a model, in Keras of any generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
