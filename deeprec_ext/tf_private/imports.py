"""Modules whose import is waited for. Their paths are private; nothing public is imported when Keras or Estimator is."""

from __future__ import annotations

ESTIMATOR = "tensorflow_estimator.python.estimator.training"
KERAS_MODEL = "keras.src.engine.training"
KERAS_OPTIMIZERS = ("keras.src.optimizers.optimizer", "keras.src.optimizers.legacy.optimizer_v2")
