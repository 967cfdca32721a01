"""Training that has no door to sums yet: it is refused when it begins, for each worker would train a model of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from deeprec_ext.tf_private import imports
from deeprec_ext.tf_private.wrapping import seen

WATCHED = ("tensorflow", imports.ESTIMATOR, *imports.KERAS_MODELS, imports.KERAS3_MODELS)
"""Modules in which something trains."""

Refuse = Callable[[str], None]
"""Told what has no door; does not return, but where the script has joined by itself."""


def close(module: ModuleType, refuse: Refuse) -> None:
    """What trains in this module, which has just been imported, is refused."""
    if module.__name__ == "tensorflow":
        _shut(module.compat.v1.train, "MonitoredTrainingSession", refuse, "MonitoredTrainingSession")
    elif module.__name__ == imports.ESTIMATOR:
        _shut(module.estimator_lib.EstimatorV2, "train", refuse, "Estimator")
    elif not seen(module):
        from deeprec_ext.keras.in_step import entry  # above this package, and only where a script has Keras

        entry.install(module, 3 if module.__name__ == imports.KERAS3_MODELS else 2)


def _shut(owner: Any, name: str, refuse: Refuse, what: str) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def refused(*arguments: Any, **named: Any) -> Any:
        refuse(what)
        return original(*arguments, **named)

    setattr(owner, name, refused)
