"""Tensors of one process that travel to another as one of each type: a message costs as much as tens of thousands of numbers.

What is large travels by itself: it would be copied twice, on both sides, to save one message. So does what nobody knows the
size of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from deeprec_ext.elastic.runtime.ops import INT64, Ops
from deeprec_ext.graph.attributes import integer, kind

ALONE_BYTES = 256 << 10
"""A tensor of a known size that is larger than this travels by itself."""

PARCEL_BYTES = 32 << 20
"""About the most of tensors of known sizes that travel as one: bounds the memory of both sides, and the message."""

_TOGETHER = frozenset(
    map(tf.as_dtype, "float16 bfloat16 float32 float64 bool int8 uint8 int16 uint16 int32 int64".split())
)
"""Types that TensorFlow joins and splits on any CPU."""


@dataclass(frozen=True)
class Sent:
    """A tensor that is to travel."""

    tensor: str
    dtype: tf.DType
    shape: tuple[int, ...] | None
    """Of all of it, or, where `rows` says of how many, of one row. None: not known."""
    rows: int | None = None
    """Which of the numbers that travel with it is that of its rows."""

    @property
    def alone(self) -> bool:
        if self.shape is None or self.dtype not in _TOGETHER:
            return True
        return not self.numbers or (self.rows is None and self.bytes > ALONE_BYTES)

    @property
    def numbers(self) -> int:
        """In all of it, or in one row; of a known shape."""
        return math.prod(self.shape or ())

    @property
    def bytes(self) -> int:
        return self.numbers * self.dtype.size


def together(ops: Ops, sent: Sequence[Sent], source: str, target: str, numbers: str = "") -> list[str]:
    """What is to be used on the target, for each of them.

    Args:
      ops: gets the nodes.
      sent: made on the device `source`.
      source, target: devices of two processes.
      numbers: int64 [n], made on the source: counts of rows, of which `Sent.rows` names one each.
    """
    arrived = [one.tensor for one in sent]
    for places in _parcels(sent):
        if len(places) > 1:
            for at, tensor in zip(places, _parcel(ops, [sent[at] for at in places], source, target, numbers)):
                arrived[at] = tensor
    return arrived


def _parcels(sent: Sequence[Sent]) -> list[list[int]]:
    """Places of those that travel as one."""
    found: list[list[int]] = []
    open_ones: dict[tf.DType, tuple[list[int], int]] = {}  # the last parcel of each type, and its bytes
    for at, one in enumerate(sent):
        if one.alone:
            continue
        size = one.bytes if one.rows is None else 0
        places, filled = open_ones.get(one.dtype, ([], 0))
        if not places or filled + size > PARCEL_BYTES:
            places, filled = [], 0
            found.append(places)
        places.append(at)
        open_ones[one.dtype] = places, filled + size
    return found


def _parcel(ops: Ops, sent: Sequence[Sent], source: str, target: str, numbers: str) -> list[str]:
    T, count = kind(sent[0].dtype), integer(len(sent))
    flat = ops.constant((-1,), tf.int64, source)
    parts = [ops.add("Reshape", [one.tensor, flat], source, T=T, Tshape=INT64) for one in sent]
    axis = ops.constant(0, tf.int64, source)
    parcel = ops.add("ConcatV2", [*parts, axis], source, N=count, T=T, Tidx=INT64)
    split = ops.add(
        "SplitV", [parcel, _sizes(ops, sent, target, numbers), ops.constant(0, tf.int32, target)], target,
        num_split=count, T=T, Tlen=INT64,
    )  # fmt: skip
    return [
        ops.add("Reshape", [f"{split}:{at}", ops.constant(_whole(one), tf.int64, target)], target, T=T, Tshape=INT64)
        for at, one in enumerate(sent)
    ]


def _whole(one: Sent) -> tuple[int, ...]:
    shape = one.shape or ()
    return shape if one.rows is None else (-1, *shape)


def _sizes(ops: Ops, sent: Sequence[Sent], target: str, numbers: str) -> str:
    """Numbers in each of them, int64 [n]."""
    each = np.array([one.numbers for one in sent], np.int64)
    if all(one.rows is None for one in sent):
        return ops.constant(each, tf.int64, target)
    assert all(one.rows is not None for one in sent), "either the rows of all of them travel with them, or of none"
    which = ops.constant([one.rows for one in sent], tf.int64, target)
    axis = ops.constant(0, tf.int64, target)
    rows = ops.add("GatherV2", [numbers, which, axis], target, Tparams=INT64, Tindices=INT64, Taxis=INT64)
    return ops.binary("Mul", rows, ops.constant(each, tf.int64, target), target)
