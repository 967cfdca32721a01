"""Keras 2 and 3: their modules are passed in when they are imported (`imports`), as a script may never do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from deeprec_ext.tf_private.wrapping import wrap

_APPLIES = {"_BaseOptimizer": "apply_gradients", "OptimizerV2": "apply_gradients", "BaseOptimizer": "apply"}
"""Base classes of optimizers: Keras 2's new and old, Keras 3's, and what all their steps go through."""


def optimizers(module: Any) -> Iterator[tuple[Any, str]]:
    """(class, method that applies gradients) of those that a module defines."""
    for name, method in _APPLIES.items():
        kind = getattr(module, name, None)
        if method in vars(kind or object):
            yield kind, method


def wrap_fit(module: Any, around: Callable[..., Any]) -> None:
    wrap(module.Model, "fit", around)


def wrap_fit_of_3(module: Any, around: Callable[..., Any]) -> None:
    wrap(module.TensorFlowTrainer, "fit", around)
