"""Whether what a process counts can be. Pure: time is an argument. The global step: `globalstep`."""

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


SENT_TIMES, SENT_BESIDES = 4, 1 << 26
"""What one copy can send: each variable whole, with what belongs to it; with room for text of unknown length."""


def no_copy(told_bytes: int, model_bytes: int) -> str:
    """Why one copy cannot have sent so many bytes; empty: it can."""
    if told_bytes > SENT_TIMES * model_bytes + SENT_BESIDES:
        return f"{told_bytes} bytes of a model of {model_bytes}"
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

    def believes(self, value: int, now: float) -> bool:
        """Whether this can be; if so it is what is known from now on."""
        if value > self.most(now):
            return False
        if value > self.value:
            self.value, self.at = value, now
        return True
