"""What a newcomer needs of a member, read off the variables of a framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deeprec_ext.allreduce.ring import Array
from deeprec_ext.errors import ProtocolError


class Variables:
    """The `State` of variables that have `numpy()` and `assign(array)`, as those of TensorFlow and Keras.

    Args:
      variables: of model and optimizer, all that steps change; they exist already, in the same order in every process.
      names: of them in backups; None: their own.
    """

    def __init__(self, variables: Sequence[Any], names: Sequence[str] | None = None) -> None:
        self._variables = list(variables)
        self._names = names

    def names(self) -> list[str]:
        if self._names is not None:
            return list(self._names)
        return [str(getattr(one, "path", None) or getattr(one, "name", "variable")) for one in self._variables]

    def take(self) -> list[Array]:
        return [np.asarray(one.numpy()) for one in self._variables]

    def put(self, arrays: Sequence[Array]) -> None:
        """Raises ProtocolError where they are of other variables."""
        mine = [(tuple(one.shape), np.dtype(one.numpy().dtype)) for one in self._variables]
        arrays = [_as(kind, one) for (_, kind), one in zip(mine, arrays)] if len(mine) == len(arrays) else arrays
        others = [(one.shape, one.dtype) for one in arrays]
        if mine != others:
            place = next((at for at, (a, b) in enumerate(zip(mine, others)) if a != b), min(len(mine), len(others)))
            raise ProtocolError(
                f"variable {place} of {len(mine)} here is not variable {place} of {len(others)} there: the models are not alike"
            )
        for variable, array in zip(self._variables, arrays):
            variable.assign(array)


def _as(kind: np.dtype[Any], array: Array) -> Array:
    """bfloat16 and its like, which NumPy knows no name of, come as bytes of their width."""
    nameless = array.dtype.kind == kind.kind == "V" and array.dtype.itemsize == kind.itemsize
    return array.view(kind) if nameless else array
