"""Reading and writing the variables of a job from a graph of ours, by name and device.

Two families behave alike here: resource variables (a handle op with a shared name) and reference variables
(`VariableV2`, made under `disable_v2_behavior()`). Sessions of ours find both where the user's sessions put them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.proto import deeprec_ext_pb2 as pb

v1 = tf.compat.v1
raw = tf.raw_ops


def ps_device(task: int) -> str:
    return f"/job:ps/task:{task}/device:CPU:0"


@dataclass(frozen=True)
class Facts:
    """One variable of the catalogue, in TensorFlow's types."""

    name: str
    container: str
    dtype: tf.DType
    shape: tuple[int, ...]
    reference: bool
    bitmap: str

    @classmethod
    def from_proto(cls, variable: pb.Variable) -> Facts:
        dtype = tf.as_dtype(variable.dtype)
        return cls(variable.name, variable.container, dtype, tuple(variable.shape), variable.reference, variable.bitmap)

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.size if self.shape else self.dtype.size

    @property
    def bytes(self) -> int:
        return self.rows * self.row_bytes


class Located:
    """A variable on one PS; its methods add ops to the default graph, on that PS.

    The handle op is made once per device and graph by whoever makes this object.
    """

    def __init__(self, facts: Facts, task: int) -> None:
        self.facts, self.device = facts, ps_device(task)
        with v1.device(self.device):
            if facts.reference:
                self.handle = raw.VariableV2(
                    shape=facts.shape, dtype=facts.dtype, container=facts.container, shared_name=facts.name
                )
            else:
                self.handle = raw.VarHandleOp(
                    dtype=facts.dtype, shape=facts.shape, container=facts.container, shared_name=facts.name
                )

    def initialized(self) -> Any:
        with v1.device(self.device):
            if self.facts.reference:
                return raw.IsVariableInitialized(ref=self.handle)
            return raw.VarIsInitializedOp(resource=self.handle)

    def read(self) -> Any:
        with v1.device(self.device):
            if self.facts.reference:
                return raw.Identity(input=self.handle)
            return raw.ReadVariableOp(resource=self.handle, dtype=self.facts.dtype)

    def gather(self, rows: Any) -> Any:
        with v1.device(self.device):
            if self.facts.reference:
                return raw.Gather(params=self.handle, indices=rows)
            return raw.ResourceGather(resource=self.handle, indices=rows, dtype=self.facts.dtype)

    def assign(self, value: Any) -> Any:
        with v1.device(self.device):
            if self.facts.reference:
                return raw.Assign(ref=self.handle, value=value, validate_shape=False).op
            return raw.AssignVariableOp(resource=self.handle, value=value)

    def scatter(self, rows: Any, values: Any) -> Any:
        with v1.device(self.device):
            if self.facts.reference:
                return raw.ScatterUpdate(ref=self.handle, indices=rows, updates=values).op
            return raw.ResourceScatterUpdate(resource=self.handle, indices=rows, updates=values)

    def zeros(self) -> Any:
        """Makes the variable, with its memory, where it is missing."""
        with v1.device(self.device):
            return self.assign(raw.Fill(dims=tf.constant(self.facts.shape, tf.int64), value=tf.zeros([], self.facts.dtype)))

    def destroy(self) -> Any:
        """Idempotent. What still writes here gets an error afterwards, never a lost write."""
        with v1.device(self.device):
            if self.facts.reference:  # cannot be removed: without rows, every further update of it fails
                return self.assign(tf.zeros([0], self.facts.dtype))
            return raw.DestroyResourceOp(resource=self.handle, ignore_lookup_error=True)

    def checksum(self) -> Any:
        """Of every bit and its position, as int64; 0 for types without bits of fixed size."""
        with v1.device(self.device):
            value = self.read()
            if self.facts.dtype in (tf.string, tf.bool, tf.resource, tf.variant):
                return tf.zeros([], tf.int64)
            bits = tf.cast(tf.reshape(tf.bitcast(value, tf.uint8), [-1]), tf.int64)
            return tf.reduce_sum(bits * (1 + tf.range(tf.size(bits, tf.int64)) % 65521))


def bitmap_of(facts: Facts) -> Facts:
    """The bitmap that covers a table: one bool a row."""
    return Facts(facts.bitmap, "", tf.bool, (facts.rows,), False, "")
