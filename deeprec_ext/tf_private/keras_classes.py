"""Keras 2: its modules are passed in when they are imported (`imports`), as a script may never do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from deeprec_ext.tf_private.wrapping import wrap


def optimizers(module: Any) -> Iterator[Any]:
    """The base classes of its optimizers, new and old, that a module defines."""
    for kind in (getattr(module, name, None) for name in ("_BaseOptimizer", "OptimizerV2")):
        if "apply_gradients" in vars(kind or object):
            yield kind


def wrap_fit(module: Any, around: Callable[..., Any]) -> None:
    wrap(module.Model, "fit", around)
