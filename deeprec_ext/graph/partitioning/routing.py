"""Ids to their parts and rows back: what `embedding_lookup` does for variables partitioned as `div`.

The ids are divided where they are made, on the worker, so that each PS gets its own alone. Ids outside the variable go to the
first or the last part, whose look-up fails as the whole one would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.node_def_pb2 import NodeDef

from deeprec_ext.graph import attributes
from deeprec_ext.graph.dedup_gather import normal
from deeprec_ext.graph.index import GraphIndex, on_ps, op_name
from deeprec_ext.graph.partitioning.layout import Layout
from deeprec_ext.graph.partitioning.parts import INT32, PartitionedVariable, attrs_of, constant, controls_of

_MOVABLE = frozenset(
    "Unique UnsortedSegmentSum Shape StridedSlice Const Neg Mul RealDiv Cast Reshape Identity ConcatV2 Pack ExpandDims Sub "
    "Add AddV2 AddN Sqrt Rsqrt Square Maximum Minimum Pow GatherV2 Range Size Fill ZerosLike".split()
)
"""What optimizers make of a gradient beside the variable, before they update with it: pure, and as quick on a worker."""
_MOST_MOVED = 64


@dataclass(frozen=True)
class Route:
    """The ids of one tensor, divided."""

    device: str
    flat: str
    """All ids, [n]."""
    part: str
    """Of each id, int32 [n]."""
    ids: tuple[str, ...]
    """Per part: the rows within it."""
    positions: tuple[str, ...]
    """Per part: which of the ids they are, int32."""


class Router:
    """Divides each tensor of ids once, whoever looks up or updates with it."""

    def __init__(self, index: GraphIndex) -> None:
        self._index = index
        self._known: dict[tuple[str, Layout], Route] = {}
        self.moved: set[str] = set()
        """Names of ops that went from a PS to the worker."""

    def worker_of(self, tensors: Sequence[str]) -> str:
        """Where these are made. Ops of a PS that only make a gradient ready go to the worker with it."""
        index = self._index
        sources: list[str] = []
        moved: list[NodeDef] = []
        stack, seen = [op_name(tensor) for tensor in tensors], set()
        while stack:
            name = stack.pop()
            if name in seen:
                continue
            seen.add(name)
            node = index.nodes[name]
            if not on_ps(node.device):
                if node.op != "Const":
                    sources.append(node.device)
                continue
            if node.op in _MOVABLE and len(moved) < _MOST_MOVED:
                moved.append(node)
                stack += [op_name(tensor) for tensor in index.inputs(name) if tensor[0] != "^"]
        device = max(sources, key=len, default="")
        for node in moved:
            node.device = device
            self.moved.add(node.name)
        return device

    def route(self, ids: str, layout: Layout, dtype: AttrValue) -> Route:
        key = normal(ids), layout
        if key not in self._known:
            self._known[key] = self._divide(ids, layout, dtype)
        return self._known[key]

    def _divide(self, ids: str, layout: Layout, dtype: AttrValue) -> Route:
        index, device, count = self._index, self.worker_of([ids]), layout.count
        name, number = f"{op_name(ids)}__cut_{count}", tf.as_dtype(dtype.type)
        minus = constant(index, f"{name}_minus", device, (-1,), tf.int32)
        flat = index.add(f"{name}_flat", "Reshape", device, [ids, minus], T=dtype, Tshape=INT32).name
        block = constant(index, f"{name}_block", device, layout.block, number)
        least = constant(index, f"{name}_least", device, 0, number)
        most = constant(index, f"{name}_most", device, count - 1, number)
        part = index.add(f"{name}_div", "FloorDiv", device, [flat, block], T=dtype).name
        part = index.add(f"{name}_max", "Maximum", device, [part, least], T=dtype).name
        part = index.add(f"{name}_min", "Minimum", device, [part, most], T=dtype).name
        begin = index.add(f"{name}_begin", "Mul", device, [part, block], T=dtype).name
        local = index.add(f"{name}_local", "Sub", device, [flat, begin], T=dtype).name
        part = index.add(f"{name}_part", "Cast", device, [part], SrcT=dtype, DstT=INT32).name
        size = index.add(f"{name}_size", "Size", device, [flat], T=dtype, out_type=INT32).name
        zero, one = (constant(index, f"{name}_{text}", device, n, tf.int32) for n, text in enumerate(("zero", "one")))
        every = index.add(f"{name}_every", "Range", device, [zero, size, one], Tidx=INT32).name
        rows = self._partition(f"{name}_ids", device, local, part, count, dtype)
        places = self._partition(f"{name}_places", device, every, part, count, INT32)
        return Route(device, flat, part, tuple(rows), tuple(places))

    def _partition(self, name: str, device: str, data: str, part: str, count: int, dtype: AttrValue) -> list[str]:
        made = self._index.add(
            name, "DynamicPartition", device, [data, part], T=dtype, num_partitions=attributes.integer(count)
        ).name  # fmt: skip
        return [made if number == 0 else f"{made}:{number}" for number in range(count)]

    def values(
        self, name: str, route: Route, values: str, dtype: AttrValue, flatten: Layout | None = None
    ) -> list[str]:
        """Of the rows of a gradient those of each part. `flatten`: they come in the shape of the ids."""
        if flatten is not None:
            rows = constant(self._index, f"{name}__row", route.device, (-1, *flatten.dimensions[1:]), tf.int32)
            values = self._index.add(
                f"{name}__flat", "Reshape", route.device, [values, rows], T=dtype, Tshape=INT32
            ).name  # fmt: skip
        return self._partition(f"{name}__values", route.device, values, route.part, len(route.ids), dtype)

    def look_up(self, node: NodeDef, variable: PartitionedVariable) -> None:
        """Each part looks up its rows under a new name; the node itself becomes all of them, in the order of the ids."""
        index, name, controls = self._index, node.name, controls_of(self._index, node.name)
        ids, kind, dtype = (
            index.inputs(name)[1],
            attributes.copied(node.attr["Tindices"]),
            attributes.copied(node.attr["dtype"]),
        )
        route = self.route(ids, variable.layout, kind)
        device, rows = route.device, []
        for part, handle in enumerate(variable.handles):
            inputs = [handle, route.ids[part], *controls]
            rows.append(
                index.add(f"{name}__cut_{part}", node.op, variable.devices[part], inputs, **attrs_of(node)).name
            )
        many = attributes.integer(variable.count)
        stitched = index.add(
            f"{name}__stitched", "ParallelDynamicStitch", device, [*route.positions, *rows], N=many, T=dtype
        ).name
        shape = index.add(f"{name}__shape", "Shape", device, [ids], T=kind, out_type=INT32).name
        row = constant(index, f"{name}__row", device, variable.layout.dimensions[1:], tf.int32)
        axis = constant(index, f"{name}__axis", device, 0, tf.int32)
        both = index.add(
            f"{name}__dims", "ConcatV2", device, [shape, row, axis], T=INT32, N=attributes.integer(2), Tidx=INT32
        ).name
        index.replace(node, "Reshape", device, [stitched, both], T=dtype, Tshape=INT32)
