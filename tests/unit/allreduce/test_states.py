"""What a newcomer needs of variables."""

from __future__ import annotations

import numpy as np
import pytest

from deeprec_ext.allreduce.states import Variables
from deeprec_ext.errors import ProtocolError


class Variable:
    def __init__(self, value: np.ndarray) -> None:
        self.value = value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def numpy(self) -> np.ndarray:
        return self.value

    def assign(self, value: np.ndarray) -> None:
        self.value = value


def test_numbers_that_numpy_has_no_name_of_come_as_their_bytes() -> None:
    bfloat16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    there = Variables([Variable(np.arange(4).astype(bfloat16))])
    mine = Variable(np.zeros(4, bfloat16))
    came = [
        np.frombuffer(one.tobytes(), np.dtype(one.dtype.str)) for one in there.take()
    ]  # as a ring, or a file, has them
    Variables([mine]).put(came)
    assert mine.value.dtype == bfloat16 and mine.value.astype(float).tolist() == [0, 1, 2, 3]


def test_others_are_refused() -> None:
    with pytest.raises(ProtocolError, match="variable 0 of 1 here"):
        Variables([Variable(np.zeros(4, np.float32))]).put([np.zeros(4, np.float64)])
