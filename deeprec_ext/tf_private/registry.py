"""Which operations there are in this process: what is public tells no OpDef without a graph that has such a node."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tensorflow.python.framework import op_def_registry


@lru_cache(maxsize=4096)
def op_def(op: str) -> Any:
    """The OpDef, or None for an op whose library is not loaded here."""
    return op_def_registry.get(op)
