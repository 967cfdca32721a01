"""Tensors of one process that travel to another as one of each type: a message costs as much as tens of thousands of numbers.

What is large travels by itself: it would be copied twice, on both sides, to save one message.
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

_TOGETHER = frozenset(
    (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.int64)
)  # fmt: skip
"""Types that TensorFlow joins and splits on any CPU."""


@dataclass(frozen=True)
class Sent:
    """A tensor that is to travel."""

    tensor: str
    dtype: tf.DType
    shape: tuple[int, ...]
    """Of all of it, or, where `rows` says of how many, of one row."""
    rows: int | None = None
    """Which of the numbers that travel with it is that of its rows."""

    @property
    def alone(self) -> bool:
        count = math.prod(self.shape)
        large = self.rows is None and count * self.dtype.size > ALONE_BYTES
        return large or not count or self.dtype not in _TOGETHER


def together(ops: Ops, sent: Sequence[Sent], source: str, target: str, numbers: str = "") -> list[str]:
    """What is to be used on the target, for each of them.

    Args:
      ops: gets the nodes.
      sent: made on the device `source`.
      source, target: devices of two processes.
      numbers: int64 [n], made on the source: counts of rows, of which `Sent.rows` names one each.
    """
    arrived = [one.tensor for one in sent]
    by_type: dict[tf.DType, list[int]] = {}
    for at, one in enumerate(sent):
        if not one.alone:
            by_type.setdefault(one.dtype, []).append(at)
    for dtype, places in by_type.items():
        if len(places) > 1:
            for at, tensor in zip(places, _parcel(ops, [sent[at] for at in places], dtype, source, target, numbers)):
                arrived[at] = tensor
    return arrived


def _parcel(ops: Ops, sent: Sequence[Sent], dtype: tf.DType, source: str, target: str, numbers: str) -> list[str]:
    T, count = kind(dtype), integer(len(sent))
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
    return one.shape if one.rows is None else (-1, *one.shape)


def _sizes(ops: Ops, sent: Sequence[Sent], target: str, numbers: str) -> str:
    """Numbers in each of them, int64 [n]."""
    each = np.array([math.prod(one.shape) for one in sent], np.int64)
    if all(one.rows is None for one in sent):
        return ops.constant(each, tf.int64, target)
    assert all(one.rows is not None for one in sent), "either the rows of all of them travel with them, or of none"
    which = ops.constant([one.rows for one in sent], tf.int64, target)
    axis = ops.constant(0, tf.int64, target)
    rows = ops.add("GatherV2", [numbers, which, axis], target, Tparams=INT64, Tindices=INT64, Taxis=INT64)
    return ops.binary("Mul", rows, ops.constant(each, tf.int64, target), target)
