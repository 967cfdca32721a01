"""Modules whose import is waited for. Their paths are private; nothing public is imported when Keras or Estimator is."""

from __future__ import annotations

ESTIMATOR = "tensorflow_estimator.python.estimator.training"
KERAS_MODELS = ("keras.src.engine.training", "tf_keras.src.engine.training")
"""Of Keras 2: TensorFlow 2.15's own, and `tf_keras` beside a later one."""

KERAS3_MODELS = "keras.src.models.model"
"""Of Keras 3, on whichever backend."""

KERAS_OPTIMIZERS = (
    "keras.src.optimizers.optimizer", "keras.src.optimizers.legacy.optimizer_v2", "tf_keras.src.optimizers.optimizer",
    "tf_keras.src.optimizers.legacy.optimizer_v2", "keras.src.optimizers.base_optimizer",
)  # fmt: skip
"""The last is Keras 3's."""
