"""A value of many rows that is read a piece at a time: of a variable on PS that is being saved, of a file that was loaded.

Whoever writes it piece by piece never holds more than one (`streaming` makes Keras and TensorFlow do so). To all others it is
an array, which they get whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

PIECE_BYTES = 4 << 20
"""About what one piece has; a single row may be larger. It exists several times: as it is received, put together, and given."""

PIECE_ROWS = 1 << 19
"""PS are asked for rows by their numbers, which take more than rows of a single number do."""


class Rows(np.lib.mixins.NDArrayOperatorsMixin):
    """Args:
    shape: with at least one dimension.
    dtype: of NumPy.
    read: the rows [from, to), as an array.
    device: where TensorFlow shall think that it is.
    """

    def __init__(
        self, shape: Sequence[int], dtype: Any, read: Callable[[int, int], np.ndarray], device: str = ""
    ) -> None:
        self.shape, self.dtype, self.device = tuple(shape), np.dtype(dtype), device
        self._read = read

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * self.size

    def pieces(self) -> Iterator[tuple[int, np.ndarray]]:
        """(first row, rows) of all, in their order."""
        row = self.dtype.itemsize * math.prod(self.shape[1:])
        step = min(PIECE_ROWS, max(1, PIECE_BYTES // max(1, row)))
        for begin in range(0, self.shape[0], step):
            yield begin, self._read(begin, min(begin + step, self.shape[0]))

    def between(self, begin: int, end: int) -> np.ndarray:
        """The rows [begin, end)."""
        return self._read(int(begin), int(end))

    def release(self) -> None:
        """They are not wanted any more, as far as one can tell: a file that is held open for them is let go of."""
        if (release := getattr(self._read, "release", None)) is not None:
            release()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        whole = np.empty(self.shape, self.dtype)
        for begin, values in self.pieces():
            whole[begin : begin + len(values)] = values
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **words: Any) -> Any:
        return getattr(ufunc, method)(*(np.asarray(one) if isinstance(one, Rows) else one for one in inputs), **words)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):  # by which others find out what it is
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def __getitem__(self, place: Any) -> Any:
        return np.asarray(self)[place]

    def __len__(self) -> int:
        return self.shape[0]


def held(value: Any) -> Rows | None:
    """None: it is something else."""
    return value if isinstance(value, Rows) else None


def fitting(value: Any, variable: Any) -> Rows | None:
    """The same, of those that a variable of TensorFlow can have for its value."""
    rows = held(value)
    if rows is None or rows.shape != tuple(variable.shape) or rows.dtype != np.dtype(variable.dtype.as_numpy_dtype):
        return None
    return rows
