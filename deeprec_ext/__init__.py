"""DeepRec Extension: elastic, resource-aware, fault-tolerant parameter-server training on stock TensorFlow.

`import deeprec_ext` at the top of a script makes its process elastic when the environment names an AIMaster, and changes
nothing otherwise. Nothing heavy is imported here: the master side, which has no TensorFlow, imports this package too.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

__version__ = "0.1.0"

if os.environ.get("DEEPREC_EXT_AIMASTER") and os.environ.get("DEEPREC_EXT_ROLE") not in (None, "", "ps"):
    importlib.import_module("deeprec_ext.autoload").install()


def __getattr__(name: str) -> Any:
    """`deeprec_ext.elastic_partitioner` and `deeprec_ext.global_batch`, imported on first use."""
    if name == "global_batch":
        return importlib.import_module("deeprec_ext.elastic.member.joined").global_batch
    if name == "elastic_partitioner":
        return importlib.import_module("deeprec_ext.elastic.trainer.partitioner").elastic_partitioner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def report_metrics(metrics: Mapping[str, Any], step: int = 0) -> None:
    """Reports numbers of the job (an AUC, a loss) for its summary; a no-op outside an elastic job.

    Args:
      metrics: name → number.
      step: the global step they belong to, 0 if unknown.

    Raises:
      ValueError: a value is no number.
    """
    numbers = {name: float(value) for name, value in metrics.items()}
    in_a_job = os.environ.get("DEEPREC_EXT_AIMASTER")
    if in_a_job and os.environ.get("DEEPREC_EXT_SLOTS") == "0":  # without PS
        reporter = importlib.import_module("deeprec_ext.elastic.member.joined").member()
    else:
        reporter = importlib.import_module("deeprec_ext.elastic.trainer.process").trainer() if in_a_job else None
    if reporter is not None:
        reporter.report_metrics(numbers, step)
