"""Whether what a trainer counts can be: the global step, and its examples. Pure: time is an argument.

The global step is one number for all, and the chief's session owns it: the chief is believed. What others see of it lies at
most so much beyond what is known as could have been trained since then. So one liar does not move a figure that stays in the
summary, and a checkpoint that a chief restores moves it at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from deeprec_ext.proto import deeprec_ext_pb2 as pb

STEPS_PER_SECOND_MAX = 10_000.0
"""Of all trainers together: one step of TensorFlow takes a few tenths of a millisecond at least."""

EXAMPLES_PER_SECOND_MAX = 1e8
"""Of one trainer."""

GRACE_SECONDS, GRACE_AT_FIRST_SECONDS = 1.0, 600.0
"""Between two words; and since a word of which nobody knows how old it is (another AIMaster heard it)."""


ELEMENT_BYTES_MAX = 4096
"""Of an element of a variable: sixteen for the widest number, more where it is a string."""


def too_large(variable: pb.Variable) -> str:
    """Why a variable cannot take so many bytes; empty: it can, or its shape is not known."""
    elements = math.prod(variable.shape)
    if all(size >= 0 for size in variable.shape) and variable.bytes > ELEMENT_BYTES_MAX * elements:
        return f"catalogue.variables has one of {elements} elements in {variable.bytes} bytes"
    return ""


@dataclass
class Count:
    """Something that grows: the last number believed, and when (monotonic seconds; None: before this AIMaster)."""

    per_second_max: float
    value: int = 0
    at: float | None = None

    def most(self, now: float) -> int:
        """What it can be by now."""
        seconds = GRACE_AT_FIRST_SECONDS if self.at is None else max(0.0, now - self.at) + GRACE_SECONDS
        return self.value + int(seconds * self.per_second_max)

    def believes(self, value: int, now: float, *, owner: bool = False) -> bool:
        """Whether this can be; if so it is what is known from now on. `owner`: who says so decides what it is."""
        if not owner and value > self.most(now):
            return False
        if owner or value > self.value:
            self.value, self.at = value, now
        return True
