"""What keeps `fit` from being elastic, in Keras of any generation, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from deeprec_ext.keras.optimizers import optimizers


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
    if not is_of_this_keras(model):
        return (
            f"{type(model).__name__} is a model of another Keras than tf.keras is here: run the script with "
            "TF_USE_LEGACY_KERAS=1, which makes them the same"
        )
    if any((getattr(one, "gradient_accumulation_steps", None) or 1) > 1 for one in optimizers(model)):
        return (
            "gradient_accumulation_steps adds up gradients of several steps, and those of all processes would be in one sum: "
            "leave it out, and take so many times the batch_size"
        )
    for name, method in makes.items():
        if getattr(type(model), name) is not method:
            return (
                f"{type(model).__name__} overrides {name}, by which Keras runs a step, so that nobody else can: override "
                "train_step, test_step or predict_step instead"
            )
    return ""


def is_of_this_keras(model: Any) -> bool:
    """What is done around `fit` is done with tf.keras."""
    return isinstance(model, tf.keras.Model)


def other_backend(name: str) -> str:
    """Why `fit` of Keras on this backend cannot be elastic; empty: it can."""
    if name == "tensorflow":
        return ""
    return (
        f"Keras runs on {name} here, and parameter servers are TensorFlow's: run the script with KERAS_BACKEND=tensorflow, and "
        "write what it computes by itself with keras.ops"
    )
