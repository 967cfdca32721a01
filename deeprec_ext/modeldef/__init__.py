"""Training without training code: a module says what its model is, `deeprec-ext train | evaluate | predict` do the rest.

The module has a function that makes a Keras model, and beside it `loss`, `optimizer`, `feed` and what else `definition` lists;
the form is ElasticDL's. What such a module may import is here: `Mode`, `Metadata`, `LearningRateScheduler`,
`BasePredictionOutputsProcessor`. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import importlib
from typing import Any

_PLACES = {
    "Mode": "deeprec_ext.modeldef.words",
    "Metadata": "deeprec_ext.modeldef.words",
    "BasePredictionOutputsProcessor": "deeprec_ext.modeldef.words",
    "LearningRateScheduler": "deeprec_ext.modeldef.schedule",
}

__all__ = ["BasePredictionOutputsProcessor", "LearningRateScheduler", "Metadata", "Mode"]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
