"""What keeps `fit` from being elastic, in Keras of any generation, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def refusal(model: Any, makes: Mapping[str, Any], default_strategy: Any) -> str:
    """Why `fit` cannot be elastic, and what to do; empty: it can.

    Args:
      makes: name -> method of Keras's Model.
      default_strategy: of `tf.distribute`, where no script has chosen one.
    """
    if model.run_eagerly or tf.config.functions_run_eagerly():
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


def other_backend(name: str) -> str:
    """Why `fit` of Keras on this backend cannot be elastic; empty: it can."""
    if name == "tensorflow":
        return ""
    return (
        f"Keras runs on {name} here, and parameter servers are TensorFlow's: run the script with KERAS_BACKEND=tensorflow, and "
        "write what it computes by itself with keras.ops"
    )
