"""The data ledger, training side: records leased from the AIMaster, as a `tf.data.Dataset` or as a Python iterator.

Nothing is imported before it is used: `elastic_records` needs no TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import Any

_PLACES = {
    "elastic_dataset": "deeprec_ext.data.dataset",
    "elastic_records": "deeprec_ext.data.records",
    "Reader": "deeprec_ext.data.readers",
    "DataError": "deeprec_ext.data.errors",
}

__all__ = ["DataError", "Reader", "elastic_dataset", "elastic_records"]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
