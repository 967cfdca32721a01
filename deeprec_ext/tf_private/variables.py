"""A variable in checkpoints. Apart from `training`, since a PS imports it too and has no use for the rest."""

from __future__ import annotations

from typing import Any


def is_variable(candidate: Any) -> bool:
    """Whether it can be asked for its slice: collections of a graph hold anything."""
    return hasattr(candidate, "_get_save_slice_info")


def save_slice(variable: Any) -> Any:
    """Of which whole, and which part of it, it is in checkpoints (`tf.Variable.SaveSliceInfo`); None: it is a whole."""
    return variable._get_save_slice_info()
