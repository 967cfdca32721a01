"""One message made of many tensors, and taken apart again.

    source:  [sizes and shapes that are not known] + every tensor, made flat  →  ConcatV2
    target:  SplitV by these sizes  →  each tensor in its shape

The last bit of a sum depends on its order, and TensorFlow's optimiser chooses that: by the names of what is added up, and by
what it knows of shapes. So what is taken apart has a name that sorts as the old one (`instead`), and rows that were looked up
get their shape from the ids, as the look-up itself gives it.

Sizes that are known are in the graph; those that are not travel in the message itself, as bits of its type: one number for
each tensor, and its shape, where that does not follow from ids: what a script says with `set_shape` of any dimension may hold
for most batches only. Bits are copied and nothing is computed, so whatever a float is, it arrives as it was.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue

from deeprec_ext.graph import attributes
from deeprec_ext.graph.index import GraphIndex, op_name
from deeprec_ext.graph.marks import PACKING
from deeprec_ext.graph.packing.crossings import Crossing
from deeprec_ext.graph.packing.shapes import Shapes, elements
from deeprec_ext.graph.packing.sparing import cpu, instead, use_instead
from deeprec_ext.graph.partitioning.parts import INT32, INT64, constant

TYPES = frozenset({tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64})
"""Those in which a number can travel as bits."""


_MADE = re.compile(r"__(packed|flat)(_|$)|-unpacked(_|$)")


def is_of_packing(name: str) -> bool:
    """Whether an op has a name as those have that put together here or take apart."""
    return _MADE.search(name) is not None


@dataclass(frozen=True)
class Member:
    """A tensor of a message."""

    crossing: Crossing
    shape: tuple[int | None, ...]
    """Of which one dimension at most is unknown."""
    ids: str = ""
    """A tensor of the target whose shape it has, with `row` behind it; empty: it is not known that there is one."""
    row: tuple[int, ...] = ()

    @property
    def static(self) -> bool:
        return None not in self.shape

    @property
    def flat(self) -> bool:
        return len(self.shape) == 1

    @property
    def told(self) -> bool:
        """Whether its shape travels with it."""
        return not (self.static or self.flat or self.ids)


class Constants:
    """Those of all messages, each once for each process."""

    def __init__(self, index: GraphIndex) -> None:
        self._index = index
        self._made: dict[tuple[str, int | tuple[int, ...]], str] = {}

    def of(self, name: str, device: str, value: int | tuple[int, ...]) -> str:
        """An int32; `name`: what it is called if there is none yet."""
        key = device, value
        if key not in self._made:
            self._made[key] = constant(self._index, name, device, value, tf.int32)
        return self._made[key]


def send(index: GraphIndex, members: Sequence[Member], shapes: Shapes, constants: Constants) -> None:
    """Changes the graph: all of them, of one type and one way, become one message."""
    fixed = [one for one in members if one.static]
    loose = [one for one in members if not one.static]
    message = _Message(index, [*fixed, *loose], shapes, len(loose), constants)
    message.put_together()
    message.take_apart()


class _Message:
    def __init__(
        self, index: GraphIndex, members: Sequence[Member], shapes: Shapes, loose: int, constants: Constants
    ) -> None:
        self._constants = constants
        self._index, self._members, self._shapes, self._loose = index, members, shapes, loose
        first = members[0].crossing
        dtype = shapes.dtype(first.way.tensor)
        assert dtype is not None  # it would travel alone
        self._dtype, self._type = dtype, attributes.kind(dtype)
        self._name = f"{first.op}__packed"
        self._source, self._target = cpu(first.source), cpu(first.way.target)
        self._sent = ""

    def put_together(self) -> None:
        parts = [self._flat(one) for one in self._members]
        if self._loose:
            parts.insert(0, self._header())
        self._sent = self._sealed(self._concat(self._name, self._source, parts, self._type))

    def _sealed(self, tensor: str) -> str:
        """The same, of which TensorFlow takes it that nobody knows the value: for every shape that depends on what is unpacked
        it would else look through all that the message is made of, whether it is constant."""
        return self._add(
            f"{self._name}_sealed",
            "PlaceholderWithDefault",
            self._source,
            [tensor],
            dtype=self._type,
            shape=attributes.shape([None]),
        )

    def _flat(self, one: Member) -> str:
        tensor = one.crossing.way.tensor
        if one.flat:
            return tensor
        return self._reshape(f"{one.crossing.op}__flat", self._source, tensor, (-1,))

    def _header(self) -> str:
        """Sizes and shapes as bits of the message's type."""
        members, name = self._members[len(self._members) - self._loose :], self._name
        sizes = [self._asked("Size", one) for one in members]
        packed = self._add(
            f"{name}_sizes", "Pack", self._source, sizes, T=INT32, N=attributes.integer(len(sizes)),
            axis=attributes.integer(0),
        )  # fmt: skip
        shapes = [self._asked("Shape", one) for one in members if one.told]
        if shapes:
            packed = self._concat(f"{name}_header", self._source, [packed, *shapes], INT32)
        if self._dtype == tf.int32:
            return packed
        if self._dtype.size == 8:
            packed = self._add(f"{self._name}_wide", "Cast", self._source, [packed], SrcT=INT32, DstT=INT64)
            return packed if self._dtype == tf.int64 else self._bits(packed, self._source, INT64, self._type)
        packed = self._bits(packed, self._source, INT32, self._type)
        if self._dtype.size == 4:
            return packed
        return self._reshape(f"{self._name}_row", self._source, packed, (-1,))

    def _asked(self, op: str, one: Member) -> str:
        tensor = one.crossing.way.tensor
        name = f"{one.crossing.op}__{op.lower()}"
        return self._add(name, op, self._source, [tensor], T=self._type, out_type=INT32)

    def take_apart(self) -> None:
        fixed = [elements(one.shape, 0) for one in self._members if one.static]
        device, name = self._target, self._name
        told = [one for one in self._members if one.told]
        shapes: dict[int, str] = {}
        if self._loose:
            ranks = [len(one.shape) for one in told]
            length = (self._loose + sum(ranks)) * (2 if self._dtype.size == 2 else 1)
            known = self._constants.of(f"{name}_known", device, (length, *fixed))
            header = self._read_header(length)
            if told:
                parts = self._constants.of(f"{name}_ranks", device, (self._loose, *ranks))
                header = self._split(f"{name}_told", header, parts, 1 + len(told), INT32)
                shapes = {id(one): f"{header}:{number}" for number, one in enumerate(told, 1)}
            sizes = self._concat(f"{name}_all", device, [known, header], INT32)
        else:
            sizes = self._constants.of(f"{name}_known", device, tuple(fixed))
        count = len(self._members) + bool(self._loose)
        split = self._split(f"{name}_apart", self._sent, sizes, count, self._type)
        for number, one in enumerate(self._members, bool(self._loose)):
            part = f"{split}:{number}" if number else split
            if one.static or not one.flat or one.ids:
                part = self._shaped(one, part, shapes.get(id(one), ""))
            use_instead(self._index, one.crossing, part)

    def _split(self, name: str, tensor: str, sizes: str, count: int, kind: AttrValue) -> str:
        axis = self._constants.of(f"{name}_axis", self._target, 0)
        return self._add(
            name, "SplitV", self._target, [tensor, sizes, axis], T=kind, Tlen=INT32, num_split=attributes.integer(count)
        )

    def _shaped(self, one: Member, part: str, wanted: str) -> str:
        name, device = instead(one.crossing.op, "unpacked"), self._target
        if one.static:
            return self._reshape(name, device, part, tuple(size or 0 for size in one.shape))
        if one.ids:
            row = self._constants.of(f"{name}_row", device, one.row)
            wanted = self._concat(f"{name}_shape", device, [self._shape_of(one.ids), row], INT32)
        return self._add(name, "Reshape", device, [part, wanted], T=self._type, Tshape=INT32)

    def _shape_of(self, ids: str) -> str:
        """Asked once, however many tables are looked up with them."""
        name = f"{ids.replace(':', '_')}__packed_shape"
        if name not in self._index.nodes:
            kind = attributes.kind(self._shapes.dtype(ids))
            self._add(name, "Shape", self._target, [ids], T=kind, out_type=INT32)
        return name

    def _read_header(self, length: int) -> str:
        """int32, one for each tensor of unknown size."""
        device, name = self._target, self._name
        begin = self._constants.of(f"{name}_begin", device, (0,))
        size = self._constants.of(f"{name}_length", device, (length,))
        head = self._add(f"{name}_head", "Slice", device, [self._sent, begin, size], T=self._type, Index=INT32)
        if self._dtype == tf.int32:
            return head
        if self._dtype.size == 8:
            if self._dtype != tf.int64:
                head = self._bits(head, device, self._type, INT64)
            return self._add(f"{name}_narrow", "Cast", device, [head], SrcT=INT64, DstT=INT32)
        if self._dtype.size == 2:
            head = self._reshape(f"{name}_pairs", device, head, (-1, 2))
        return self._bits(head, device, self._type, INT32)

    def _bits(self, tensor: str, device: str, source: AttrValue, target: AttrValue) -> str:
        return self._add(f"{op_name(tensor)}_bits", "Bitcast", device, [tensor], T=source, type=target)

    def _reshape(self, name: str, device: str, tensor: str, shape: tuple[int, ...]) -> str:
        wanted = self._constants.of(f"{name}_shape", device, shape)
        kind = self._type
        return self._add(name, "Reshape", device, [tensor, wanted], T=kind, Tshape=INT32)

    def _concat(self, name: str, device: str, parts: Sequence[str], kind: AttrValue) -> str:
        axis = self._constants.of(f"{name}_axis", device, 0)
        count = attributes.integer(len(parts))
        return self._add(name, "ConcatV2", device, [*parts, axis], T=kind, N=count, Tidx=INT32)

    def _add(self, name: str, op: str, device: str, inputs: Sequence[str], **attrs: AttrValue) -> str:
        return self._index.add(name, op, device, inputs, **attrs, **{PACKING: attributes.flag(True)}).name
