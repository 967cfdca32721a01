"""Modules of ElasticDL's model zoo import a few names of ElasticDL. Where it is not installed, ours stand under those names.

Only while a model's module is loaded by `deeprec-ext train` and its like; an installed ElasticDL is never touched. What has no
counterpart here (tables of MaxCompute, embeddings without a size) is not there, and the import error says so.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

from deeprec_ext.errors import UsageError
from deeprec_ext.modeldef import words

ROOT = "elasticdl"


def _constants() -> Mapping[str, Any]:
    return {"Mode": words.Mode, "MaxComputeConfig": SimpleNamespace()}


def _callbacks() -> Mapping[str, Any]:
    from deeprec_ext.modeldef.schedule import LearningRateScheduler

    return {"LearningRateScheduler": LearningRateScheduler}


def _feature_column() -> Mapping[str, Any]:
    import tensorflow as tf

    return {"embedding_column": tf.feature_column.embedding_column}


class _Elsewhere:
    """A reader or writer of ElasticDL, which a module names and does not need here."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        raise UsageError(f"{type(self).__name__} is ElasticDL's: records are read by --data and --reader here")


_MODULES: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "python.common.constants": _constants,
    "python.common.log_utils": lambda: {"default_logger": logging.getLogger("deeprec_ext.model")},
    "python.elasticdl.callbacks": _callbacks,
    "python.elasticdl.feature_column.feature_column": _feature_column,
    "python.worker.prediction_outputs_processor": lambda: {
        "BasePredictionOutputsProcessor": words.BasePredictionOutputsProcessor
    },
    "python.data.reader.recordio_reader": lambda: {
        "RecordIODataReader": type("RecordIODataReader", (_Elsewhere,), {})
    },
    "python.data.odps_io": lambda: {
        "ODPSWriter": type("ODPSWriter", (_Elsewhere,), {}), "is_odps_configured": lambda: False,
    },
}  # fmt: skip
"""Below `elasticdl`: what each has."""

_PACKAGES = {name.rpartition(".")[0] for name in _MODULES} | {"python", "python.elasticdl", "python.data"}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        root, _, below = fullname.partition(".")
        if root != ROOT or not (not below or below in _MODULES or below in _PACKAGES):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=below not in _MODULES)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        make = _MODULES.get(module.__name__.partition(".")[2])
        if make is not None:
            vars(module).update(make())


def install() -> bool:
    """Whether the names are ours from now on; False: ElasticDL itself is installed."""
    if any(isinstance(one, _Finder) for one in sys.meta_path):
        return True
    if importlib.util.find_spec(ROOT) is not None:
        return False
    sys.meta_path.append(_Finder())
    return True
