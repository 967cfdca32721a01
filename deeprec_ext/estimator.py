"""Estimator adaptor: `train_and_evaluate` with elasticity spelled out, for scripts that prefer that to autoload."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from deeprec_ext import autoload


def train_and_evaluate(estimator: Any, train_spec: Any, eval_spec: Any) -> Any:
    """`tf.estimator.train_and_evaluate`, elastic when the process belongs to a job, stock otherwise.

    The chief (or the job's evaluator) evaluates the final checkpoint, and its metrics go into the job's summary.
    Arguments, result and errors are those of `tf.estimator.train_and_evaluate`.
    """
    autoload.install()
    return tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)
