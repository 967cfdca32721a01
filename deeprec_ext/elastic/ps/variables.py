"""Reading and writing the variables of a job from a graph of ours, by name and device.

Two families behave alike here: resource variables (a handle op with a shared name) and reference variables
(`VariableV2`, made under `disable_v2_behavior()`). Sessions of ours find both where the user's sessions put them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from deeprec_ext.elastic.runtime.ops import BOOL, INT64, Ops, Program
from deeprec_ext.elastic.runtime.parcels import Sent
from deeprec_ext.elastic.runtime.view import elastic_config
from deeprec_ext.graph.attributes import flag, kind, shape, text
from deeprec_ext.proto import deeprec_ext_pb2 as pb


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
    unsized: bool = False
    """Nobody has said which shape it has: it may have another one each time it is read."""

    @classmethod
    def from_proto(cls, variable: pb.Variable) -> Facts:
        dtype = tf.as_dtype(variable.dtype)
        return cls(
            variable.name, variable.container, dtype, tuple(variable.shape), variable.reference, variable.bitmap,
            unsized=not variable.bytes,
        )  # fmt: skip

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
    """A variable on one PS; its methods add nodes to `ops`, on that PS, and return their names."""

    def __init__(self, ops: Ops, facts: Facts, task: int) -> None:
        self._ops, self.facts, self.device = ops, facts, ps_device(task)
        self._dtype = kind(facts.dtype)
        self.handle = ops.add(
            "VariableV2" if facts.reference else "VarHandleOp", device=self.device, dtype=self._dtype,
            shape=shape(facts.shape), container=text(facts.container), shared_name=text(facts.name),
        )  # fmt: skip

    def initialized(self) -> str:
        if self.facts.reference:
            return self._ops.add("IsVariableInitialized", [self.handle], self.device, dtype=self._dtype)
        return self._ops.add("VarIsInitializedOp", [self.handle], self.device)

    def read(self, after: tuple[str, ...] = ()) -> str:
        if self.facts.reference:
            return self._ops.add("Identity", [self.handle], self.device, after, T=self._dtype)
        return self._ops.add("ReadVariableOp", [self.handle], self.device, after, dtype=self._dtype)

    def sent(self, value: str) -> Sent:
        """A value of it that is to travel."""
        return Sent(value, self.facts.dtype, None if self.facts.unsized else self.facts.shape)

    def dimensions(self, after: tuple[str, ...] = ()) -> str:
        """The shape that a resource variable has now, int64 [rank]: not what its handle says."""
        return self._ops.add("VariableShape", [self.handle], self.device, after, out_type=INT64)

    def gather(self, rows: str, after: tuple[str, ...] = ()) -> str:
        """The values of these rows (int64)."""
        inputs = [self.handle, rows]
        if self.facts.reference:
            return self._ops.add("Gather", inputs, self.device, after, Tparams=self._dtype, Tindices=INT64)
        return self._ops.add("ResourceGather", inputs, self.device, after, dtype=self._dtype, Tindices=INT64)

    def assign(self, value: str) -> str:
        inputs = [self.handle, value]
        if self.facts.reference:
            return self._ops.add("Assign", inputs, self.device, T=self._dtype, validate_shape=flag(False))
        return self._ops.add("AssignVariableOp", inputs, self.device, dtype=self._dtype)

    def scatter(self, rows: str, values: str, after: tuple[str, ...] = (), index: tf.DType = tf.int64) -> str:
        """Writes these rows (of type `index`)."""
        inputs, indices = [self.handle, rows, values], kind(index)
        if self.facts.reference:
            return self._ops.add("ScatterUpdate", inputs, self.device, after, T=self._dtype, Tindices=indices)
        return self._ops.add("ResourceScatterUpdate", inputs, self.device, after, dtype=self._dtype, Tindices=indices)

    def zeros(self) -> str:
        """Makes the variable, with its memory, where it is missing."""
        dims = self._ops.constant(self.facts.shape, tf.int64, self.device)
        zero = self._ops.constant(_zero(self.facts.dtype), self.facts.dtype, self.device)
        return self.assign(self._ops.add("Fill", [dims, zero], self.device, T=self._dtype, index_type=INT64))

    def take_value(self) -> str:
        """Its value without a copy, for whoever destroys the variable afterwards (a reference variable is copied)."""
        if self.facts.reference:
            return self.read()
        return self.read((self._ops.add("DisableCopyOnRead", [self.handle], self.device),))

    def destroy(self, after: tuple[str, ...] = ()) -> str:
        """Idempotent. What still writes here gets an error afterwards, never a lost write."""
        if self.facts.reference:  # cannot be removed: without rows, every further update of it fails
            dims = self._ops.constant((0,), tf.int64, self.device)
            zero = self._ops.constant(_zero(self.facts.dtype), self.facts.dtype, self.device)
            none = self._ops.add("Fill", [dims, zero], self.device, after, T=self._dtype, index_type=INT64)
            return self.assign(none)
        return self._ops.add("DestroyResourceOp", [self.handle], self.device, after, ignore_lookup_error=flag(True))

    def checksum(self) -> str:
        """Of every bit and its position, as int64; 0 for types without bits of fixed size."""
        ops, device, dtype = self._ops, self.device, self.facts.dtype
        if dtype in (tf.string, tf.bool, tf.resource, tf.variant):
            return ops.constant(0, tf.int64, device)
        bits = tf.int32 if dtype.size % 4 == 0 else tf.uint8
        cast = ops.add("Bitcast", [self.read()], device, T=self._dtype, type=kind(bits))
        flat = ops.add("Reshape", [cast, ops.constant((-1,), tf.int64, device)], device, T=kind(bits), Tshape=INT64)
        wide = ops.add("Cast", [flat], device, SrcT=kind(bits), DstT=INT64)
        count = ops.add("Size", [wide], device, T=INT64, out_type=INT64)
        zero, one = ops.constant(0, tf.int64, device), ops.constant(1, tf.int64, device)
        place = ops.add("Range", [zero, count, one], device, Tidx=INT64)
        weight = ops.binary("FloorMod", place, ops.constant(65521, tf.int64, device), device)
        weighed = ops.binary("Mul", wide, ops.binary("AddV2", weight, one, device), device)
        return ops.add("Sum", [weighed, ops.constant((0,), tf.int64, device)], device, T=INT64, Tidx=INT64)


def local_program(target: str, own_task: int) -> Program:
    """In a session that knows this PS alone; the caller closes it."""
    return Program(target, elastic_config({own_task: target.removeprefix("grpc://")}))


def present(program: Program, wanted: Sequence[tuple[Facts, int]]) -> list[bool]:
    """Which of these (variable, task) are there, with their rows.

    A reference variable that was destroyed counts as initialised for TensorFlow; it has no rows (`Located.destroy`).
    """
    ops = Ops(f"look{program.loads}_")
    located = [Located(ops, facts, task) for facts, task in wanted]
    there = [one.initialized() for one in located]
    program.load(ops)
    found = [bool(good) for good in program.compile(fetches=there)()] if there else []
    doubtful = [n for n, good in enumerate(found) if good and located[n].facts.reference and located[n].facts.bytes]
    if doubtful:
        ops = Ops(f"look{program.loads}_")
        some = [Located(ops, *wanted[number]) for number in doubtful]
        sizes = [ops.add("Size", [one.read()], one.device, T=kind(one.facts.dtype), out_type=INT64) for one in some]
        program.load(ops)
        for number, size in zip(doubtful, program.compile(fetches=sizes)()):
            found[number] = bool(size)
    return found


def _zero(dtype: tf.DType) -> object:
    return "" if dtype == tf.string else False if dtype == tf.bool else 0


def bitmap_of(facts: Facts) -> Facts:
    """The bitmap that covers a table: one bool a row."""
    return Facts(facts.bitmap, "", tf.bool, (facts.rows,), False, "")


def set_rows(ops: Ops, bits: str, where: str) -> str:
    """The rows that are True in a tensor of bools [n], int64 [m]."""
    found = ops.add("Where", [bits], where, T=BOOL)
    return ops.add("Reshape", [found, ops.constant((-1,), tf.int64, where)], where, T=INT64, Tshape=INT64)
