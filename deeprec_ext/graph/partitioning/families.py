"""What a graph does to each part of a variable alike, done to all parts at once.

`embedding_lookup` of a variable that is cut divides the ids (`DynamicPartition`), looks up each part and puts the rows together
(`DynamicStitch`); its gradient takes the rows of each part out again, and an optimizer updates each part with its own. So there
are families of tensors, one for each part, made by ops of one kind from families. Of a family the whole is what one of its ops
would make if nothing had been divided: rows in the order of the ids. Sums of the rows of one id come to the same bits: within a
part the ids have the order that they have in the whole.

What is asked first is whether a family has a whole (`Whole`); ops are only added when it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.types_pb2 import DT_INT32, DT_INT64

from deeprec_ext.graph import attributes
from deeprec_ext.graph.dedup_gather import normal
from deeprec_ext.graph.index import GraphIndex, on_ps, op_name, output_number
from deeprec_ext.graph.partitioning.parts import INT32, attrs_of, constant, controls_of, data_of, is_batched
from deeprec_ext.graph.partitioning.rownumbers import RowNumbers
from deeprec_ext.graph.partitioning.scripted import Scripted
from deeprec_ext.graph.partitioning.values import VALUE_BY_VALUE

_NUMBERS = (VALUE_BY_VALUE - {"AddN", "OnesLike", "ZerosLike", "CheckNumerics"}) | frozenset(
    "IsFinite IsInf IsNan Select SelectV2 Less LessEqual Greater GreaterEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot "
    "Floor Ceil Cos Sin".split()
)
_SUMS = frozenset({"Sum", "Mean", "Prod", "Max", "Min"})
_FAR = 200
"""Ops, one made from the other, looked at to see that something is one number, or whether two are the same."""

ROWS = "*"
"""The route of all rows of all parts, one after the other."""

Route = tuple[str, ...]
"""Which rows of the whole each of a family has; equal for families whose rows belong together."""


@dataclass(frozen=True)
class Whole:
    """Of a family, before it is made."""

    route: Route
    make: Callable[[], str]
    """Adds the ops, the first time; the tensor."""


class Families:
    """Of variables that have the same rows in their parts.

    Args:
      index: the graph, on slots.
      tables: the variables.
      device: where they will be.
    """

    def __init__(self, index: GraphIndex, tables: Sequence[Scripted], device: str, row_numbers: RowNumbers) -> None:
        self._index, self._device_of_all, self._row_numbers = index, device, row_numbers
        self._sizes = tables[0].sizes
        rows = {table.dimensions[1:] for table in tables}
        self._row_shape = rows.pop() if len(rows) == 1 else None
        self._begins = tables[0].begins
        self._of_part = {part.node.name: (table, at) for table in tables for at, part in enumerate(table.parts)}
        self._values: dict[tuple[str, ...], Whole | None] = {}
        self._rows: dict[tuple[str, ...], Whole | None] = {}
        self._scalars: dict[str, str] = {}
        self._interned: dict[str, str] = {}
        self._flat: dict[str, bool] = {}

    # ------------------------------------------------------------------------------------------------ what is asked

    def updates(self, node: NodeDef) -> bool:
        """Whether an op writes one of the parts."""
        return data_of(self._index, node.name)[0] in self._of_part

    def stitched(self, node: NodeDef) -> Whole | None:
        """Of rows that were looked up in each part and are put together in the order of their ids."""
        inputs = data_of(self._index, node.name)
        half = len(inputs) // 2
        places, rows = tuple(inputs[:half]), tuple(inputs[half:])
        divided = self._positions(places)
        found = self.values(rows) if divided is not None else None
        return found if found is not None and found.route == (divided,) else None

    def concatenated(self, node: NodeDef) -> Whole | None:
        """Of all rows of all parts, which are put together."""
        *pieces, axis = data_of(self._index, node.name)
        return self.blocks(tuple(pieces)) if len(pieces) == len(self._sizes) and self._number(axis) == 0 else None

    def rows_written(self, nodes: Sequence[NodeDef]) -> tuple[Whole, Whole | str] | None:
        """Of an update of rows, done to each part: which rows of the whole, with which values (or the name of one number)."""
        inputs = [data_of(self._index, node.name) for node in nodes]
        at = attributes.input_of(nodes[0], "indices")
        dense = next(
            n for name in ("grad", "delta", "updates") if (n := attributes.input_of(nodes[0], name)) is not None
        )
        ids = self.rows(tuple(one[at] for one in inputs)) if at is not None else None
        if ids is None:
            return None
        given = tuple(one[dense] for one in inputs)
        if self._are_one_number(given):
            return ids, given[0]
        values = self.values(given)
        return (ids, values) if values is not None and values.route == ids.route else None

    def blocks(self, tensors: tuple[str, ...]) -> Whole | None:
        """Of values for all rows of each part, one after the other."""
        found = self.values(tensors)
        return found if found is not None and found.route == (ROWS,) else None

    def scalar(self, tensor: str, depth: int = 0) -> str:
        """Equal for tensors that are the same number, however often a graph computes it; with a ? before it: it may be none."""
        known = self._scalars.get(tensor)
        if known is None:
            text = self._same(tensor, depth)
            known = text if text[0] == "?" else self._interned.setdefault(text, f"#{len(self._interned)}")
            self._scalars[tensor] = known
        return known

    def _is_sum(self, node: NodeDef) -> bool:
        """Whether it is made one number of many, as norms are."""
        if node.op == "L2Loss":
            return True
        if node.op not in _SUMS or node.attr["keep_dims"].b:
            return False
        given, axes = (self._index.nodes[op_name(tensor)] for tensor in data_of(self._index, node.name))
        if given.op != "Pack" or axes.op != "Const" or len(attributes.values(axes)) != 1:
            return False
        return all(self.scalar(tensor)[0] != "?" for tensor in data_of(self._index, given.name))

    def at_home(self, tensors: tuple[str, ...]) -> str:
        """Of equal numbers, one computed for each part: that which is computed where the whole is."""
        nodes = [self._index.nodes[op_name(tensor)] for tensor in tensors]
        at = next((n for n, node in enumerate(nodes) if node.device == self._device_of_all), 0)
        return tensors[at]

    # ------------------------------------------------------------------------------------------------ values

    def values(self, tensors: tuple[str, ...]) -> Whole | None:
        """Rows of values, in the order of the ids that they belong to, or of the variable itself."""
        tensors = tuple(map(normal, tensors))
        if tensors not in self._values:
            self._values[tensors] = None  # a loop leads nowhere
            nodes = [self._index.nodes[op_name(tensor)] for tensor in tensors]
            if len({node.op for node in nodes}) == 1 and len({node.name for node in nodes}) in (1, len(nodes)):
                self._values[tensors] = self._value(tensors, nodes)
        return self._values[tensors]

    def _value(self, tensors: tuple[str, ...], nodes: list[NodeDef]) -> Whole | None:
        op = nodes[0].op
        if len(set(tensors)) != len(tensors) or any(tensor[0] == "^" for tensor in tensors):
            return None
        if any(output_number(tensor) for tensor in tensors) and op != "Slice":
            return None
        inputs = [data_of(self._index, node.name) for node in nodes]
        if len({len(one) for one in inputs}) != 1:
            return None
        by_place = [tuple(one) for one in zip(*inputs)]
        if op in VALUE_BY_VALUE:
            return self._value_by_value(nodes, by_place)
        if op in ("GatherV2", "Gather", "Slice", "Reshape") and self._controls(nodes):
            return None  # what it waits for would be lost with it
        if op in ("GatherV2", "Gather"):
            return self._taken_out(nodes, by_place)
        if op == "Reshape":
            return self._reshaped(nodes, by_place)
        if op == "ConcatV2":
            return self._one_after_the_other(nodes, by_place, self.values)
        if op == "ResourceGather":
            return self._looked_up(nodes, by_place)
        if op == "ReadVariableOp":
            return self._read(nodes, by_place[0])
        if op == "UnsortedSegmentSum":
            return self._summed(nodes, by_place)
        return self._cut(nodes, by_place) if op == "Slice" else None

    def _value_by_value(self, nodes: list[NodeDef], by_place: list[tuple[str, ...]]) -> Whole | None:
        found: list[Whole | None] = []
        for tensors in by_place:
            one = None if self._are_one_number(tensors) else self.values(tensors)
            if one is None and not self._are_one_number(tensors):
                return None
            found.append(one)
        wholes = [one for one in found if one is not None]
        if not wholes or any(one.route != wholes[0].route for one in wholes) or not self._attributes_alike(nodes):
            return None

        def make() -> str:
            inputs = [one.make() if one is not None else self.at_home(tensors) for one, tensors in zip(found, by_place)]
            return self._add(nodes, nodes[0].op, [*inputs, *self._controls(nodes)])

        return self._once(wholes[0].route, make)

    def _reshaped(self, nodes: list[NodeDef], by_place: list[tuple[str, ...]]) -> Whole | None:
        """To rows of the variable's own shape, as gradients of look-ups are."""
        found, row = self.values(by_place[0]), self._row_shape
        if found is None or row is None:
            return None
        for number, tensor in enumerate(by_place[1]):
            shape = self._index.nodes[op_name(tensor)]
            if shape.op == "Const":
                sizes = tuple(attributes.values(shape))
                rows = (-1, self._sizes[number]) if found.route == (ROWS,) else (-1,)
                if len(sizes) != len(row) + 1 or sizes[1:] != row or sizes[0] not in rows:
                    return None
            elif shape.op not in ("ConcatV2", "Shape", "ShapeN", "VariableShape"):
                return None

        def make() -> str:
            index, name, device = self._index, f"{nodes[0].name}__whole", self._device(nodes)
            shape = constant(index, f"{name}_shape", device, (-1, *row), tf.int32)
            kinds = {"T": attributes.copied(nodes[0].attr["T"]), "Tshape": INT32}
            return index.add(name, "Reshape", device, [found.make(), shape], **kinds).name

        return self._once(found.route, make)

    def _taken_out(self, nodes: list[NodeDef], by_place: list[tuple[str, ...]]) -> Whole | None:
        """Rows of one tensor, for each part those of its own ids: the tensor itself."""
        source, places, *axis = by_place
        if len(set(source)) != 1 or any(map(is_batched, nodes)):
            return None
        if axis and any(self._number(tensor) != 0 for tensor in axis[0]):
            return None
        divided = self._positions(places)
        return Whole((divided,), lambda: source[0]) if divided is not None else None

    def _looked_up(self, nodes: list[NodeDef], by_place: list[tuple[str, ...]]) -> Whole | None:
        table = self._table(by_place[0])
        ids = self.rows(by_place[1]) if table is not None else None
        if table is None or ids is None or any(map(is_batched, nodes)):
            return None
        handle, device = table.parts[0].node.name, self._device_of_all

        def make() -> str:
            inputs = [handle, ids.make(), *self._controls(nodes)]
            return self._index.add(
                f"{nodes[0].name}__whole", "ResourceGather", device, inputs, **attrs_of(nodes[0])
            ).name

        return self._once(ids.route, make)

    def _read(self, nodes: list[NodeDef], handles: tuple[str, ...]) -> Whole | None:
        table = self._table(handles)
        if table is None:
            return None
        handle, device = table.parts[0].node.name, self._device_of_all

        def make() -> str:
            inputs = [handle, *self._controls(nodes)]
            return self._index.add(
                f"{nodes[0].name}__whole", "ReadVariableOp", device, inputs, **attrs_of(nodes[0])
            ).name

        return self._once((ROWS,), make)

    def _summed(self, nodes: list[NodeDef], by_place: list[tuple[str, ...]]) -> Whole | None:
        """What optimizers do to a gradient with repeated ids: the sum of the rows of each."""
        rows, segments, _ = by_place
        unique = [op_name(tensor) for tensor in segments]
        if any(output_number(tensor) != 1 for tensor in segments):
            return None
        ids, values = self.rows(tuple(unique)), self.values(rows)
        before = self.rows(tuple(data_of(self._index, name)[0] for name in unique)) if ids is not None else None
        if ids is None or before is None or values is None or values.route != before.route:
            return None

        def make() -> str:
            index, own = self._index, ids.make()
            place, device = index.nodes[own].attr["out_idx"], index.nodes[own].device
            count = index.add(
                f"{own}__count", "Size", device, [own], T=attributes.copied(index.nodes[own].attr["T"]),
                out_type=attributes.kind(tf.int32),
            ).name  # fmt: skip
            kinds = {
                "T": attributes.copied(nodes[0].attr["T"]), "Tindices": attributes.copied(place),
                "Tnumsegments": attributes.kind(tf.int32),
            }  # fmt: skip
            inputs = [values.make(), f"{own}:1", count, *self._controls(nodes)]
            return index.add(f"{nodes[0].name}__whole", "UnsortedSegmentSum", device, inputs, **kinds).name

        return self._once(ids.route, make)

    def _cut(self, nodes: list[NodeDef], by_place: list[tuple[str, ...]]) -> Whole | None:
        """The gradient of what was put together from all rows of all parts: the tensor itself."""
        source, begins, sizes = by_place
        offsets = [self._index.nodes[op_name(tensor)] for tensor in begins]
        first = offsets[0]
        if len(set(source)) != 1 or first.op != "ConcatOffset" or any(one.name != first.name for one in offsets):
            return None
        axis, *shapes = data_of(self._index, first.name)
        if len(shapes) != len(sizes) or [output_number(tensor) for tensor in begins] != list(range(len(shapes))):
            return None
        if tuple(map(normal, shapes)) != tuple(map(normal, sizes)) or self._number(axis) != 0:
            return None
        rows = self._rows_of_shapes(tuple(map(normal, shapes)))
        return Whole((ROWS,), lambda: source[0]) if rows == self._sizes else None

    def _rows_of_shapes(self, shapes: tuple[str, ...]) -> tuple[int, ...]:
        """How many rows parts of these shapes have; empty: not known."""
        index = self._index
        nodes = [index.nodes[op_name(tensor)] for tensor in shapes]
        if all(node.op == "Const" for node in nodes):
            return tuple(attributes.values(node)[0] for node in nodes)
        if all(node.op == "Shape" for node in nodes):
            read = tuple(data_of(index, node.name)[0] for node in nodes)
        elif len({node.name for node in nodes}) == 1 and nodes[0].op == "ShapeN":
            inputs = data_of(index, nodes[0].name)
            read = tuple(inputs[output_number(tensor)] for tensor in shapes)
        else:
            return ()
        found = self.values(read)
        return self._sizes if found is not None and found.route == (ROWS,) else ()

    # ------------------------------------------------------------------------------------------------ rows

    def rows(self, tensors: tuple[str, ...]) -> Whole | None:
        """Ids within each part: the numbers of these rows in the whole."""
        tensors = tuple(map(normal, tensors))
        if tensors not in self._rows:
            self._rows[tensors] = None
            nodes = [self._index.nodes[op_name(tensor)] for tensor in tensors]
            if len({node.op for node in nodes}) == 1 and len(tensors) == len(self._sizes):
                self._rows[tensors] = self._row(tensors, nodes)
        return self._rows[tensors]

    def _row(self, tensors: tuple[str, ...], nodes: list[NodeDef]) -> Whole | None:
        op, inputs = nodes[0].op, [data_of(self._index, node.name) for node in nodes]
        if op == "DynamicPartition":
            return self._divided(tensors, nodes)
        if len({node.name for node in nodes}) != len(nodes) or any(map(output_number, tensors)):
            return None
        firsts = tuple(one[0] for one in inputs)
        if op in ("Reshape", "Identity", "StopGradient"):
            flat = op != "Reshape" or all(self._is_flat_shape(one[1]) for one in inputs)
            return self.rows(firsts) if flat and not self._controls(nodes) else None
        if op == "Cast" and {node.attr["DstT"].type for node in nodes} <= {DT_INT32, DT_INT64}:
            return self._carried(nodes, self.rows(firsts))
        if op == "ConcatV2":
            return self._one_after_the_other(nodes, [tuple(one) for one in zip(*inputs)], self.rows)
        if op == "Unique":
            return self._carried(nodes, self.rows(firsts), ("unique", nodes[0].name))
        return None

    def _carried(self, nodes: list[NodeDef], ids: Whole | None, route: Route | None = None) -> Whole | None:
        """The same op on the numbers of all rows."""
        if ids is None or not self._attributes_alike(nodes):
            return None
        return self._once(
            route or ids.route, lambda: self._add(nodes, nodes[0].op, [ids.make(), *self._controls(nodes)])
        )

    def _divided(self, tensors: tuple[str, ...], nodes: list[NodeDef]) -> Whole | None:
        """Ids, divided by which part has each."""
        node = nodes[0]
        in_order = [output_number(tensor) for tensor in tensors] == list(range(len(tensors)))
        if not in_order or len({one.name for one in nodes}) != 1:
            return None
        ids, part = map(normal, data_of(self._index, node.name))
        if node.attr["num_partitions"].i != len(tensors) or not self._is_flat(part) or self._controls([node]):
            return None
        if node.attr["T"].type not in (DT_INT32, DT_INT64) or not self._row_numbers.are_alike(ids, part):
            return None
        return self._once((part,), lambda: self._numbered(node, ids, part))

    def _numbered(self, node: NodeDef, ids: str, part: str) -> str:
        """Rows of the whole that ids within their parts are. One that its part does not have is -1, which no look-up takes."""
        found = self._row_numbers.source(ids, part, node.attr["T"].type, self._sizes)
        if found is not None:
            return found
        index, name, device = self._index, f"{node.name}__whole", node.device
        kind = attributes.copied(node.attr["T"])
        dtype = tf.as_dtype(kind.type)
        unsigned = tf.uint64 if dtype == tf.int64 else tf.uint32
        zero = constant(index, f"{name}_axis", device, 0, tf.int32)
        kinds = {"Tindices": INT32, "Taxis": INT32}
        begins = constant(index, f"{name}_begins", device, self._begins, dtype)
        begin = index.add(f"{name}_begin", "GatherV2", device, [begins, part, zero], Tparams=kind, **kinds).name
        row = index.add(f"{name}_row", "AddV2", device, [ids, begin], T=kind).name
        sizes = constant(index, f"{name}_sizes", device, self._sizes, unsigned)
        wide = attributes.kind(unsigned)
        size = index.add(f"{name}_size", "GatherV2", device, [sizes, part, zero], Tparams=wide, **kinds).name
        least = index.add(f"{name}_unsigned", "Bitcast", device, [ids], T=kind, type=wide).name
        there = index.add(f"{name}_there", "Less", device, [least, size], T=wide).name
        none = constant(index, f"{name}_none", device, -1, dtype)
        return index.add(name, "SelectV2", device, [there, row, none], T=kind).name

    def _is_flat_shape(self, tensor: str) -> bool:
        """Whether what gets this shape has one dimension, as far as it is constant."""
        node = self._index.nodes[op_name(tensor)]
        return node.op != "Const" or len(attributes.values(node)) == 1

    # ------------------------------------------------------------------------------------------------ helpers

    def _one_after_the_other(
        self, nodes: list[NodeDef], by_place: list[tuple[str, ...]], of: Callable[[tuple[str, ...]], Whole | None]
    ) -> Whole | None:
        """Of several look-ups of one variable: their rows one after the other."""
        *pieces, axes = by_place
        found = [of(tensors) for tensors in pieces]
        if any(self._number(axis) != 0 for axis in axes) or not self._attributes_alike(nodes):
            return None
        wholes = [one for one in found if one is not None]
        if len(wholes) != len(found) or any(one.route[0] == ROWS for one in wholes):
            return None

        def make() -> str:
            axis = constant(self._index, f"{nodes[0].name}__whole_axis", self._device(nodes), 0, tf.int32)
            inputs = [*(one.make() for one in wholes), axis, *self._controls(nodes)]
            return self._add(nodes, "ConcatV2", inputs, Tidx=INT32)

        return self._once(tuple(one for whole in wholes for one in whole.route), make)

    def _positions(self, places: tuple[str, ...]) -> str | None:
        """Where in the order of the ids those of each part are: by which tensor they were divided. None: they are not that."""
        nodes = {op_name(tensor) for tensor in places}
        if len(nodes) != 1 or [output_number(tensor) for tensor in places] != list(range(len(self._sizes))):
            return None
        node = self._index.nodes[nodes.pop()]
        if self._controls([node]):
            return None
        if node.op != "DynamicPartition" or node.attr["num_partitions"].i != len(self._sizes):
            return None
        data, part = data_of(self._index, node.name)
        return normal(part) if self._counts(data) else None

    def _counts(self, tensor: str) -> bool:
        """Whether it is 0, 1, 2, ..."""
        node = self._index.nodes[op_name(tensor)]
        if node.op != "Range":
            return False
        first, _, step = data_of(self._index, node.name)
        return self._number(first) == 0 and self._number(step) == 1

    def _is_flat(self, part: str) -> bool:
        """Whether this has one dimension: something else that it divides has, then."""
        if part not in self._flat:
            self._flat[part] = any(
                consumer.op == "DynamicPartition"
                and number == 1
                and self._counts(data_of(self._index, consumer.name)[0])
                for consumer, number in self._index.consumers(op_name(part))
            )
        return self._flat[part]

    def _table(self, handles: tuple[str, ...]) -> Scripted | None:
        """The variable of which these are the parts, in order."""
        found = [self._of_part.get(handle) for handle in handles]
        first = found[0]
        if first is None or [one and (one[0].name, one[1]) for one in found] != [
            (first[0].name, n) for n in range(len(found))
        ]:
            return None
        return first[0] if len(found) == len(self._sizes) else None

    def _number(self, tensor: str) -> int | None:
        """The value of an integer that is constant, as far as TensorFlow computes an axis; None: it is not."""
        node = self._index.nodes[op_name(tensor)]
        if node.op == "Const":
            value = node.attr["value"].tensor
            found = [*value.int_val, *value.int64_val] or (
                attributes.values(node) if not value.tensor_shape.dim else []
            )
            return int(found[0]) if len(found) == 1 and not value.tensor_shape.dim else None
        inputs = data_of(self._index, node.name)
        if node.op == "Identity":
            return self._number(inputs[0])
        if node.op == "FloorMod":
            one, other = map(self._number, inputs)
            return one % other if one is not None and other else None
        if node.op == "Rank" and self._index.nodes[op_name(inputs[0])].op == "Const":
            return len(self._index.nodes[op_name(inputs[0])].attr["value"].tensor.tensor_shape.dim)
        return None

    def _are_one_number(self, tensors: tuple[str, ...]) -> bool:
        first = self.scalar(tensors[0])
        return first[0] != "?" and all(self.scalar(tensor) == first for tensor in tensors[1:])

    def _same(self, tensor: str, depth: int) -> str:
        """What a number is computed from. With a ? before it: it may be no number."""
        node = self._index.nodes[op_name(tensor)]
        unknown = normal(tensor) if self._is_sum(node) else f"?{normal(tensor)}"
        inputs, controls = data_of(self._index, node.name), controls_of(self._index, node.name)
        if node.op == "Const":
            shape = node.attr["value"].tensor.tensor_shape
            known = not shape.dim and not shape.unknown_rank
            return node.attr["value"].tensor.SerializeToString(deterministic=True).hex() if known else unknown
        if node.op == "ReadVariableOp":
            handle = self._index.nodes[op_name(inputs[0])]
            shape = handle.attr["shape"].shape
            if handle.op != "VarHandleOp" or shape.unknown_rank or shape.dim:
                return unknown
            return f"read({normal(inputs[0])},{sorted(controls)})"
        if node.op in ("Placeholder", "PlaceholderWithDefault"):
            shape = node.attr["shape"].shape
            return unknown if shape.unknown_rank or shape.dim else normal(tensor)
        if node.op not in _NUMBERS or depth > _FAR or not inputs:
            return unknown
        before = [self.scalar(one, depth + 1) for one in inputs]
        if any(one[0] == "?" for one in before):
            return unknown
        if controls:
            return normal(tensor)  # a number, but when it is computed may matter
        if node.op == "Identity":
            return before[0]
        kinds = [value.type for key, value in sorted(node.attr.items()) if key in ("T", "SrcT", "DstT")]
        return f"{node.op}{kinds}({','.join(before)})"

    def _attributes_alike(self, nodes: Sequence[NodeDef]) -> bool:
        said = [{k: v for k, v in node.attr.items() if k not in ("_class", "_output_shapes")} for node in nodes]
        return all(one == said[0] for one in said[1:])

    def _controls(self, nodes: Iterable[NodeDef]) -> list[str]:
        """All that any of them waits for."""
        return list(dict.fromkeys(one for node in nodes for one in controls_of(self._index, node.name)))

    def _device(self, nodes: Sequence[NodeDef]) -> str:
        device = nodes[0].device
        return self._device_of_all if on_ps(device) else device

    def _add(self, nodes: list[NodeDef], op: str, inputs: list[str], **changed: attributes.AttrValue) -> str:
        kinds = {**attrs_of(nodes[0]), **changed}
        return self._index.add(f"{nodes[0].name}__whole", op, self._device(nodes), inputs, **kinds).name

    def _once(self, route: Route, make: Callable[[], str]) -> Whole:
        made: list[str] = []

        def once() -> str:
            if not made:
                made.append(make())
            return made[0]

        return Whole(route, once)
