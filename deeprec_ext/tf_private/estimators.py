"""`tf.estimator.train_and_evaluate`: its executor is private, and so is what fills in a model directory.

The modules are passed in: Estimator is imported after TensorFlow, if at all (`imports`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deeprec_ext.tf_private.wrapping import wrap


def start_at_once(module: Any) -> None:
    """Without waiting 5 s for each index, and without a server of its own, since ours runs: there are no options for it."""
    module._DELAY_SECS_PER_WORKER = module._MAX_DELAY_SECS = 0
    module._TrainingExecutor._start_std_server = lambda self, config: None


def wrap_training(module: Any, around: Callable[..., Any]) -> None:
    wrap(module._TrainingExecutor, "_start_distributed_training", around)


def wrap_evaluation(module: Any, around: Callable[..., Any]) -> None:
    """`around(original, evaluator)` returns what it does: (result, exports)."""
    wrap(module._TrainingExecutor._Evaluator, "evaluate_and_export", around)


def wrap_chief(module: Any, around: Callable[..., Any]) -> None:
    wrap(module._TrainingExecutor, "run_chief", around)


def evaluate(executor: Any) -> None:
    """The newest checkpoint, once, with the evaluator that the job has none of."""
    kind = type(executor)
    kind._Evaluator(executor._estimator, executor._eval_spec, executor._train_spec.max_steps).evaluate_and_export()


def wrap_sessions(module: Any, around: Callable[..., Any]) -> None:
    """The function by which Estimator makes the session that trains, which is that of MonitoredTrainingSession under another
    name."""
    wrap(module.estimator_lib.training, "MonitoredTrainingSession", around)


def wrap_model_directory(module: Any, around: Callable[..., Any]) -> None:
    """`around(original, config, model_dir)`, where each Estimator's directory is decided; `module`: `….estimator.estimator`."""
    wrap(module, "maybe_overwrite_model_dir_and_session_config", around)
